package model_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// A6: the same commands always give the same table, step by step.
func TestSameCommandsSameTable(t *testing.T) {
	eachSequence(t, testmode.Pick(500, 40_000), func(all []table.Command) string {
		return differentRuns(all, func(int) []time.Duration { return nil })
	})
}

// R20: how time is cut into pieces changes nothing.
func TestSplitTime(t *testing.T) {
	eachSequence(t, testmode.Pick(500, 40_000), func(all []table.Command) string {
		now := time.Duration(0)
		stops := make([][]time.Duration, len(all))
		random := rand.New(rand.NewPCG(uint64(len(all)), uint64(all[len(all)-1].At)))
		for i, c := range all {
			for range random.IntN(3) {
				stops[i] = append(stops[i], now+time.Duration(random.Int64N(int64(max(1, c.At-now)))).Round(time.Second/4))
			}
			slices.Sort(stops[i])
			now = max(now, c.At)
		}
		return differentRuns(all, func(i int) []time.Duration {
			return slices.DeleteFunc(slices.Clone(stops[i]), func(at time.Duration) bool { return at > all[i].At })
		})
	})
}

// differentRuns plays all on two tables, letting time pass on the second one at
// stops before each command, and says how the tables first differ.
func differentRuns(all []table.Command, stops func(int) []time.Duration) string {
	one, two := table.New(), table.New()
	first := story.New(one, nil)
	for i, c := range all {
		c = first.Complete(c)
		reply, err := one.Step(&c)
		first.Learn(c, reply, err)
		events := slices.Clone(one.Events())

		var split []table.Event
		for _, at := range stops(i) {
			two.Step(&table.Command{At: at, Op: table.Pass})
			split = append(split, two.Events()...)
		}
		again, errAgain := two.Step(&c)
		split = append(split, two.Events()...)

		for _, d := range []string{
			differ("error", refusal(errAgain), refusal(err)),
			differ("events", story.PrintEvents(split), story.PrintEvents(events)),
			differ("answer", fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", reply)),
		} {
			if d != "" {
				return fmt.Sprintf("Command %d, %s (model: undivided time):\n%s", i+1, story.Format(c), d)
			}
		}
		if a, b := one.Snapshot(), two.Snapshot(); !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("Command %d, %s: the snapshots differ:\n%+v\n%+v", i+1, story.Format(c), b, a)
		}
	}
	return ""
}
