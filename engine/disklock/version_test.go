package disklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// emptyStore makes the database of a folder.
func emptyStore(t *testing.T, f folder) *store {
	t.Helper()
	s, err := openStore(f.journal(), dbfolder.Use{Careless: true})
	if err == nil {
		err = s.create()
	}
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

// The first two bytes of a batch and of a header are the versions of the form and of the rules.
const (
	formByte = iota
	rulesByte
)

var laterRules = fmt.Sprintf("version %d of the rules", table.RulesVersion+1)

// TestOtherVersionsAreRefused: a journal that another version wrote is refused, and the error says
// which version wrote it and what to do.
func TestOtherVersionsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		header bool
		change func(b []byte)
		words  []string
	}{
		"entries of other rules": {false, func(b []byte) { b[rulesByte] = table.RulesVersion + 1 },
			[]string{"row 1:", "lockkeeper v9.9.9 wrote it under " + laterRules, "end that cleanly"}},
		"entries of another form": {false, func(b []byte) { b[formByte] = record.Form + 1 },
			[]string{"row 1:", "form 3", "use lockkeeper v9.9.9"}},
		"a snapshot of later rules": {true, func(b []byte) { b[rulesByte] = table.RulesVersion + 1 },
			[]string{"number 1", "under " + laterRules, "use lockkeeper v9.9.9 or a later version"}},
		"a snapshot of another form": {true, func(b []byte) { b[formByte] = record.Form + 1 },
			[]string{"number 1", "form 3", "use lockkeeper v9.9.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := emptyStore(t, folder{path: t.TempDir()})
			if err := s.Exec("UPDATE meta SET writer = 'lockkeeper v9.9.9'"); err != nil {
				t.Fatal(err)
			}
			restart := table.Command{Op: table.Restart}
			var batch record.Batch
			batch.Append(&restart)
			r := row{seq: 1, count: 1, entries: batch.Bytes()}
			h := header{number: 1, head: record.AppendHeader(nil, &table.Snapshot{})}
			if c.header {
				c.change(h.head)
			} else {
				c.change(r.entries)
			}
			r.sum = r.seal(0)
			if err := errors.Join(s.complete(&h), s.append(&r)); err != nil {
				t.Fatal(err)
			}
			_, err := s.recover(context.Background())
			err = refusal(s.Path, err)
			if !errors.Is(err, lockkeeper.ErrInvalid) {
				t.Fatalf("%v, want ErrInvalid", err)
			}
			for _, words := range append(c.words, s.Path, "nothing was changed") {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%v\ndoes not say %q", err, words)
				}
			}
		})
	}
}

// TestWriterIsRecorded: the journal names the version that opened it last.
func TestWriterIsRecorded(t *testing.T) {
	e := openHere(t, t.TempDir(), options{careless: true})
	e.Close()
	r, err := e.folder.recover(t.Context(), options{driver: "sqlite"})
	if err != nil || r.writer != dbfolder.Writer() || !strings.HasPrefix(r.writer, "lockkeeper ") {
		t.Errorf("the writer is %q (%v), want %q", r.writer, err, dbfolder.Writer())
	}
}
