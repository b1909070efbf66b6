package table_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// FuzzStory plays whatever text as a story: nothing may panic, every invariant
// must hold after each line, and what is refused must change nothing.
func FuzzStory(f *testing.F) {
	for seed := range uint64(30) {
		var lines []string
		for _, c := range model.Generate(seed, 25) {
			lines = append(lines, story.Format(c))
		}
		f.Add(strings.Join(lines, "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "\n") > 200 {
			return
		}
		tb := table.New()
		list := func() []lockkeeper.Status { return slices.Collect(tb.List(lockkeeper.Query{})) }
		runner := story.New(tb, list)
		for line := range strings.Lines(text) {
			before := tb.Snapshot()
			out := runner.Do(strings.TrimSpace(line))
			if err := tb.Check(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			after := tb.Snapshot()
			if strings.Contains(out, ": error, invalid request") && before.Counters.Now == after.Counters.Now &&
				before.Counters != after.Counters {
				t.Fatalf("%s is refused but changed the table", line)
			}
		}
	})
}
