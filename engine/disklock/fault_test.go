package disklock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// patience bounds what must happen soon.
const patience = 20 * time.Second

// asker is a session for tests.
type asker struct {
	t   testing.TB
	e   lockkeeper.Engine
	key lockkeeper.Key
	id  uint64
}

func attachTo(t testing.TB, e lockkeeper.Engine, id string, named ...uint64) *asker {
	t.Helper()
	lease, err := takeOver(e, lockkeeper.Session{ID: id, TTL: time.Minute, Named: named})
	if err != nil {
		t.Fatal(err)
	}
	return &asker{t: t, e: e, key: lease.Key}
}

// takeOver attaches the session, whatever epoch it has.
func takeOver(e lockkeeper.Engine, s lockkeeper.Session) (lockkeeper.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := e.Attach(ctx, s, nil)
	if open := new(lockkeeper.Error); errors.As(err, &open) && open.Epoch != 0 {
		s.Epoch = open.Epoch
		lease, err = e.Attach(ctx, s, nil)
	}
	return lease, err
}

// claim asks for the path, for at most d.
func (a *asker) claim(path string, d time.Duration) (lockkeeper.Status, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), d)
	defer cancel()
	a.id++
	w := lockkeeper.Want{ID: a.id,
		Targets: []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}}}
	return a.e.Claim(ctx, a.key, w)
}

// hold has the path granted.
func (a *asker) hold(path string) uint64 {
	a.t.Helper()
	st, err := a.claim(path, patience)
	if err != nil || st.State != lockkeeper.Held {
		a.t.Fatalf("claim %s: %v %v", path, st.State, err)
	}
	return st.Fence
}

func (a *asker) release(id uint64) error {
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.e.End(ctx, a.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
}

// A bug in the writer leaves nobody waiting.
func TestWriterPanics(t *testing.T) {
	var now atomic.Bool
	e := openHere(t, t.TempDir(), options{committed: func(*row) {
		if now.Load() {
			panic("planted")
		}
	}})
	a := attachTo(t, e, "ann")
	now.Store(true)
	for range 2 {
		if _, err := a.claim("db", patience); !errors.Is(err, lockkeeper.ErrUnavailable) ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnavailable at once", err)
		}
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("Close says %v, want what happened", err)
	}
}

// Who follows learns that nothing comes any more, also if it was a renewal that could
// not be written, of which there is nothing to tell.
func TestFollowersOfDeadJournal(t *testing.T) {
	var now atomic.Bool
	e := openHere(t, t.TempDir(), options{committed: func(*row) {
		if now.Load() {
			panic("planted")
		}
	}})
	defer e.Close()
	quiet := attachTo(t, e, "quiet")
	attachTo(t, e, "ann").hold("db")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, err := range e.List(ctx, lockkeeper.Query{Follow: true}) {
		if err != nil {
			if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "could not be written") {
				t.Errorf("the follower is told %v, want an ErrUnavailable that says what happened", err)
			}
			return
		}
		now.Store(true)
		if _, err := e.Renew(ctx, quiet.key); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the follower is told nothing")
}

// TestFullDisk: while there is no room nobody is told of a grant, claims are refused
// at the door, renewals and releases go on; with room again it all goes on by itself.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "2m")
	e := openHere(t, filepath.Join(dir, "locks"), options{backlog: 64 << 10})
	a, quiet := attachTo(t, e, "ann"), attachTo(t, e, "quiet")
	a.hold("db/1")
	fill(t, dir)
	err := a.claimUntilFull()
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("a claim that fills the disk: %v, want ErrUnavailable that says so", err)
	}
	if _, err := a.claim("db/2", patience); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim on a full disk: %v, want ErrUnavailable at once", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := e.Renew(soon, quiet.key); err != nil {
		t.Errorf("a renewal on a full disk: %v", err)
	}
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, err := e.Renew(late, a.key); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "disk is full") {
		t.Errorf("a renewal that would tell of a grant which is not safe: %v, want that it waits, and why", err)
	}
	if err := a.release(1); err != nil {
		t.Errorf("a release on a full disk: %v", err)
	}
	for n := 0; err == nil || !strings.Contains(err.Error(), "too many entries wait"); n++ {
		if _, err = e.Renew(soon, quiet.key); n > 10_000 {
			t.Fatalf("after %d renewals: %v, want that too many entries wait for the disk", n, err)
		}
	}
	if worst := worstOf(e.Examine(t.Context())); worst.Grade == lockkeeper.Fine {
		t.Error("the examination finds nothing")
	}
	image := t.TempDir()
	copyFolder(t, e.folder.path, image)
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		if _, err = a.claim("db/3", patience); err == nil || time.Now().After(end) {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("with room again: %v", err)
	}
	a.hold("db/1")
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	// A crash while it was full loses nothing that was told.
	again := openHere(t, image, options{})
	b := attachTo(t, again, "bob")
	if st, err := b.claim("db/1", patience); err != nil || st.State != lockkeeper.Ended {
		t.Errorf("after a crash on a full disk db/1 is %v (%v), want it taken", st.State, err)
	}
	again.Close()
}

// TestCloseOnFullDisk: closing says what is lost, and the directory can be opened again.
func TestCloseOnFullDisk(t *testing.T) {
	dir := smallDisk(t, "2m")
	locks := filepath.Join(dir, "locks")
	e := openHere(t, locks, options{})
	a := attachTo(t, e, "ann")
	a.hold("db")
	fill(t, dir)
	if err := a.claimUntilFull(); err == nil {
		t.Fatal("the disk does not become full")
	}
	if err := e.Close(); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("Close says %v, want ErrUnavailable", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	again := openHere(t, locks, options{})
	if st, err := attachTo(t, again, "bob").claim("db", patience); err != nil || st.State != lockkeeper.Ended {
		t.Errorf("db is %v (%v), want it taken", st.State, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// claimUntilFull claims many paths until the disk is full, or something else is wrong.
// A disk that is only slow is not.
func (a *asker) claimUntilFull() (err error) {
	for n := range 100_000 {
		_, err = a.claim(fmt.Sprint("many/", n), time.Second)
		if err != nil && (!errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "disk is full")) {
			break
		}
	}
	return err
}

// fill leaves no room on the disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
}

func worstOf(findings []lockkeeper.Finding) (worst lockkeeper.Finding) {
	for _, f := range findings {
		if f.Grade >= worst.Grade {
			worst = f
		}
	}
	return worst
}

// TestListsOnAFullDisk: who looks while the disk is full is told what is safe, that it is old, and
// why; it is told once that the disk is full, and once that it is not any more.
func TestListsOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, "2m")
	e := openHere(t, filepath.Join(dir, "locks"), options{})
	defer e.Close()
	changed := make(chan struct{}, 10)
	e.NotifyRefusal(func() { changed <- struct{}{} })
	a := attachTo(t, e, "ann")
	a.hold("db")
	fill(t, dir)
	if err := a.claimUntilFull(); err == nil {
		t.Fatal("the disk does not become full")
	}
	if err := a.release(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list := func() (held int, last error) {
		for st, err := range e.List(ctx, lockkeeper.Query{Stale: true}) {
			if last = err; err == nil && st.State == lockkeeper.Held {
				held++
			}
		}
		return held, last
	}
	for range 2 {
		held, err := list()
		if _, ok := lockkeeper.Stale(err); !ok || !strings.Contains(err.Error(), "disk is full") || held != int(a.id)-1 {
			t.Errorf("%d holds, then %v; want those that were granted, %d, and that the disk is full", held, err, a.id-1)
		}
	}
	<-changed
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	<-changed
	for {
		held, err := list()
		if err == nil {
			if held != int(a.id)-1 && held != int(a.id)-2 { // the one that was not answered may be there
				t.Errorf("with room again %d holds of %d", held, a.id)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if len(changed) > 0 {
		t.Error("it is told more than twice")
	}
}
