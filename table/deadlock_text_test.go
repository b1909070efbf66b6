package table_test

import (
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// Two holders below t are in a deadlock, each beside a hold that is not. The table names one of the two, always
// the same, also when it was restored: the nodes of a cluster compare their records, which have the text.
func TestDeadlockIsDescribedAlike(t *testing.T) {
	const lines = `attach a
attach b
attach c
attach d
attach e
claim a 1 shared t/u/x
claim b 1 shared t/v/x
claim c 1 exclusive t/u/y
claim d 1 exclusive t/v/y
claim e 1 exclusive z
claim a 2 exclusive z inside=a.1
claim b 2 exclusive z inside=b.1
claim e 2 exclusive t inside=e.1`
	first := ""
	for again := range 50 {
		tb := struct{ *table.Table }{table.New()}
		runner := story.New(&tb, func() []lockkeeper.Status { return nil })
		for line := range strings.Lines(lines) {
			if again%2 == 1 {
				restored, err := table.Restore(tb.Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				tb.Table = restored
			}
			runner.Do(line)
		}
		st, _ := tb.Status(lockkeeper.Ref{Session: "e", ID: 2})
		if st.Reason != lockkeeper.Deadlock {
			t.Fatalf("e.2 is %s for the reason %s", st.State, st.Reason)
		}
		if first == "" {
			first = st.Text
		}
		if st.Text != first {
			t.Fatalf("the same commands are a deadlock in which\n%s\nand one in which\n%s", first, st.Text)
		}
	}
}
