package model_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// After every step all is settled: a review finds nothing to do.
func TestReviewChangesNothing(t *testing.T) {
	eachSequence(t, testmode.Pick(500, 40_000), func(all []table.Command) string {
		one := table.New()
		first := story.New(one, nil)
		for i, c := range all {
			c = first.Complete(c)
			reply, err := one.Step(&c)
			first.Learn(c, reply, err)
			before := one.Snapshot()
			if _, err := one.Step(&table.Command{At: one.Now(), Op: table.Review}); err != nil {
				return err.Error()
			}
			if d := differ("events", story.PrintEvents(one.Events()), ""); d != "" {
				return fmt.Sprintf("A review after command %d, %s (model: nothing):\n%s", i+1, story.Format(c), d)
			}
			if after := one.Snapshot(); !reflect.DeepEqual(before, after) {
				return fmt.Sprintf("A review after command %d, %s changed the table:\n%+v\n%+v", i+1, story.Format(c), before,
					after)
			}
		}
		return ""
	})
}
