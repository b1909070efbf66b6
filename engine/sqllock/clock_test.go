package sqllock

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// shifted is a dialect whose database has its clock changed.
type shifted struct {
	dialect
	by *atomic.Int64
}

// clock implements dialect.
func (d shifted) clock(to *reading, blocks int) []statement {
	all := d.dialect.clock(to, blocks)
	for i, s := range all {
		if s.each == nil {
			continue
		}
		all[i].each = func(scan scanner) error {
			before := to.now
			err := s.each(scan)
			if to.now != before {
				to.now += time.Duration(d.by.Load())
			}
			return err
		}
	}
	return all
}

// openShifted opens locks on a database whose clock is ahead by so much.
func openShifted(t testing.TB, url string, by *atomic.Int64) *Engine {
	t.Helper()
	e := openEngine(t, url)
	e.dialect = shifted{e.dialect, by} // nothing has used it yet
	return e
}

// The database's clock is set back, again and again: nothing is granted twice, sessions that renew
// keep their holds, and a released path can be locked at once.
func TestClockSetBack(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		by := new(atomic.Int64)
		const ttl = 2 * lockkeeper.MinTTL
		a, b := join(t, openShifted(t, url, by), "a", ttl), join(t, openShifted(t, url, by), "b", cutTTL)
		first := a.claim(exclusive(1, 0, "a/b"), lockkeeper.Held)
		b.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		for i := range 9 {
			<-time.After(ttl / 4)
			if i == 5 { // when its last change is more than a TTL ago
				by.Store(int64(-time.Hour))
			}
			lease, err := a.Renew(bounded(t), a.key)
			if err != nil || lease.TTL > ttl {
				t.Errorf("a renewal after the clock was set back tells %s, which would be too long if it is set right again; %v",
					lease.TTL, err)
			}
			b.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
			a.claim(exclusive(1, 0, "a/b"), lockkeeper.Held)
		}
		a.release(1)
		if st := b.await(1, lockkeeper.Held); st.Fence <= first.Fence {
			t.Errorf("fence %d after %d", st.Fence, first.Fence)
		}
		b.release(1)

		c := stress.New(testmode.Seed(t), history.RulesOf(a.Guarantees()))
		c.Long = lockkeeper.MinTTL
		for range 3 {
			c.Add("client", quiet{openShifted(t, url, by)}, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
		}
		for _, back := range []time.Duration{time.Minute, 500 * time.Millisecond, 24 * time.Hour} {
			granted(t, c, 30)
			by.Add(int64(-back))
		}
		granted(t, c, 30)
		c.Pause()
		verdict(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The database's clock jumps ahead: leases end, and their holders are notified. The engine can't
// tell such a jump from time that has passed.
func TestClockJumpsAhead(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		by := new(atomic.Int64)
		a, b := join(t, openShifted(t, url, by), "a", time.Minute), join(t, openShifted(t, url, by), "b", cutTTL)
		first := a.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		b.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		by.Store(int64(2 * time.Minute))
		if st := b.await(1, lockkeeper.Held); st.Fence <= first.Fence { // at its next look
			t.Errorf("fence %d after %d", st.Fence, first.Fence)
		}
		if _, err := a.Renew(bounded(t), a.key); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("who was lost is renewed: %v", err)
		}
	})
}

// No date of this computer is used, so a process whose date is an hour off shares locks
// with those whose date is right: all that goes to the database is made of its own clock
// and of durations. A moment of this computer becomes a date by the functions below,
// none of which is called. (TestClockSetBack has processes whose dates are a day off.)
func TestNoDateOfThisComputer(t *testing.T) {
	dates := map[string]bool{
		"Unix":      true,
		"UnixMilli": true,
		"UnixMicro": true,
		"UnixNano":  true,
		"Date":      true,
		"Clock":     true,
		"UTC":       true,
		"Local":     true,
		"In":        true,
		"Year":      true, "YearDay": true, "Month": true, "Day": true, "Format": true, "AppendFormat": true,
		"MarshalJSON": true, "MarshalText": true, "MarshalBinary": true, "GobEncode": true,
	}
	set := token.NewFileSet()
	looks := 0
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "examine.go" { // which tells people how far the clocks differ
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if ok && dates[s.Sel.Name] {
				t.Errorf("%s: %s makes a date: use the database's clock", set.Position(n.Pos()), s.Sel.Name)
			}
			if ok && s.Sel.Name == "Now" {
				looks++
			}
			return true
		})
	}
	if looks == 0 {
		t.Error("nothing looks at any clock: these are the wrong files")
	}
}
