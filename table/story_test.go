package table_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// TestStories plays the stories in testdata: commands in, then what each came
// to and how the table stands after them. They are the rules for people to read.
// `go test ./table -run Stories -rewrite` writes them again after a change of the
// rules; read the difference before you commit it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		tb, silent := table.New(), false
		runner := story.New(tb, func() []lockkeeper.Status {
			if silent {
				return nil
			}
			return slices.Collect(tb.List(lockkeeper.Query{}))
		})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "play" {
				d.Fatalf(t, "the only directive is play, not %q", d.Cmd)
			}
			var out strings.Builder
			lines := strings.Split(d.Input, "\n")
			for i, line := range lines {
				silent = i < len(lines)-1
				if len(lines) > 1 {
					fmt.Fprintf(&out, "> %s\n", line)
				}
				out.WriteString(runner.Do(line))
				if err := tb.Check(); err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
			}
			return out.String()
		})
	})
}
