package disklock

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

const (
	workers   = 12
	workPaths = 5
)

// playWork tells what the directory has, ends the sessions of the round before, and
// then has workers claim paths, hold them and give them back, telling each step, until
// it is killed. What it says before a call it may not have done; what it says
// after a call was answered.
func playWork(args []string) error {
	dir, round := args[0], args[1]
	e, err := open(context.Background(), dir, options{snapshotEvery: 300, checkpointPages: 100})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(os.Stdout, words...)
	}
	sessions := map[string]bool{}
	for st, err := range e.List(context.Background(), lockkeeper.Query{}) {
		if err != nil {
			return err
		}
		sessions[st.Ref.Session] = true
		if st.State == lockkeeper.Held {
			say("held", st.Grants[0].Path, st.Ref, st.Fence)
		}
	}
	say("ready")
	for id := range sessions {
		lease, err := takeOver(e, lockkeeper.Session{ID: id, TTL: time.Hour})
		if err == nil {
			err = e.End(context.Background(), lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave})
		}
		if err != nil {
			return err
		}
	}
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			work := work
			if i%3 == 0 {
				work = workOpening
			}
			if err := work(e, "r"+round+"w"+strconv.Itoa(i), say); err != nil {
				say("error", err)
			}
		})
	}
	running.Wait()
	return nil
}

// work runs one worker until the process is killed.
func work(e *Engine, id string, say func(...any)) error {
	ctx := context.Background()
	granted := make(chan lockkeeper.Status, 1024)
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: id, TTL: time.Hour}, func(all []lockkeeper.Status) {
		for _, st := range all {
			if st.State == lockkeeper.Held {
				granted <- st
			}
		}
	})
	for n := uint64(1); err == nil; n++ {
		path, w := workWant(n)
		var st lockkeeper.Status
		if st, err = e.Claim(ctx, lease.Key, w); err != nil {
			break
		}
		for st.State == lockkeeper.Waiting || st.Ref.ID != n {
			st = <-granted
		}
		say("granted", path, st.Ref, st.Fence)
		say("releases", path, st.Ref, st.Fence)
		err = e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: n})
	}
	return err
}

// workOpening is work with a session for each claim, which one call opens and another one ends.
func workOpening(e *Engine, id string, say func(...any)) error {
	for n := 1; ; n++ {
		granted := make(chan lockkeeper.Status, 1)
		path, w := workWant(1)
		s := lockkeeper.Session{ID: id + "s" + strconv.Itoa(n), TTL: time.Hour}
		lease, commit, err := e.BeginOpen(context.Background(), s, w, func(all []lockkeeper.Status) {
			if all[0].State == lockkeeper.Held {
				granted <- all[0]
			}
		})
		if err == nil && commit != nil {
			<-commit.Done()
			err = commit.Finish()
		}
		if err != nil {
			return err
		}
		st := lease.Claims[0]
		if st.State == lockkeeper.Waiting {
			st = <-granted
		}
		say("granted", path, st.Ref, st.Fence)
		say("releases", path, st.Ref, st.Fence)
		if _, _, err = e.BeginLeave(context.Background(), lease.Key, 1); err != nil {
			return err
		}
	}
}

// workWant returns an exclusive claim of a random path.
func workWant(id uint64) (lockkeeper.Path, lockkeeper.Want) {
	path := lockkeeper.Path("p" + strconv.Itoa(rand.IntN(workPaths)))
	return path, lockkeeper.Want{
		ID:      id,
		Wait:    lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
	}
}

// TestKillLoop kills a process under load again and again, and checks what the next process
// finds: every acknowledged grant that was not released is there, fences never fall, and nothing
// is granted twice.
func TestKillLoop(t *testing.T) {
	random := testmode.Rand(t)
	dir := t.TempDir()
	j := &witness{held: make(map[string]grant)}
	began := time.Now()
	rounds := 0
	for ; time.Since(began) < testmode.Pick(6*time.Second, 5*time.Minute); rounds++ {
		text := killed(t, random, dir, rounds)
		if err := j.round(text); err != nil {
			t.Fatalf("round %d: %v", rounds, err)
		}
	}
	t.Logf("%d rounds, %d of them to the work, %d grants, last fence %d", rounds, j.worked, j.granted, j.fence)
	if j.granted == 0 {
		t.Error("nothing was granted: that proves nothing")
	}
}

// killed runs a process until it is killed, sometimes while it still opens the
// directory, mostly at its work, and returns what it said.
func killed(t *testing.T, random *rand.Rand, dir string, round int) string {
	p := roles.Start(t, "work", dir, strconv.Itoa(round))
	defer p.Kill()
	soon := time.Duration(random.Int64N(int64(60 * time.Millisecond)))
	var said strings.Builder
	for opening := random.IntN(5) == 0; !opening; {
		line, err := p.Out.ReadString('\n')
		said.WriteString(line)
		if err != nil || line == "ready\n" {
			break
		}
	}
	timer := time.AfterFunc(soon, func() { p.Cmd.Process.Kill() })
	defer timer.Stop()
	rest, _ := io.ReadAll(p.Out)
	said.Write(rest)
	return said.String()
}

// grant is a hold that was told.
type grant struct {
	ref       string
	fence     uint64
	releasing bool // its release was under way: it may be gone or not
}

// witness is who hears what all processes told.
type witness struct {
	held    map[string]grant // by path
	fence   uint64           // the largest that was told
	floor   uint64           // the largest that was told before the present process
	granted int
	worked  int
}

// round judges what one process said.
func (j *witness) round(text string) error {
	found := map[string]grant{}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // it was killed in the midst of it
		}
		var word, path string
		g := grant{}
		if n, _ := fmt.Sscan(line, &word, &path, &g.ref, &g.fence); n != 4 && word != "ready" {
			return fmt.Errorf("a process says %q", line)
		}
		switch word {
		case "held":
			found[path] = g
		case "ready":
			if err := j.compare(found); err != nil {
				return err
			}
			j.worked++
			j.floor = j.fence
		case "granted":
			if g.fence <= j.floor {
				return fmt.Errorf("%s is granted to %s with fence %d, though %d was told before the crash", path, g.ref, g.fence,
					j.floor)
			}
			if now, taken := j.held[path]; taken && !now.releasing {
				return fmt.Errorf("%s is granted to %s, though %s has it", path, g.ref, now.ref)
			}
			if g.fence <= j.held[path].fence {
				return fmt.Errorf("%s is granted to %s with fence %d, after fence %d", path, g.ref, g.fence, j.held[path].fence)
			}
			j.held[path] = g
			j.fence = max(j.fence, g.fence)
			j.granted++
		case "releases":
			if now := j.held[path]; now.ref == g.ref {
				g.releasing = true
				j.held[path] = g
			}
		}
	}
	return nil
}

// compare judges what a new process found.
func (j *witness) compare(found map[string]grant) error {
	for path, g := range j.held {
		if now := found[path]; !g.releasing && now.ref != g.ref {
			return fmt.Errorf("%s was granted to %s with fence %d and not given back; after the crash it is held by %q", path,
				g.ref, g.fence, now.ref)
		}
	}
	for path, g := range found {
		if g.fence < j.held[path].fence {
			return fmt.Errorf("%s has fence %d after the crash, though %d was told", path, g.fence, j.held[path].fence)
		}
	}
	for path, g := range found {
		g.releasing = true // their sessions are ended next
		found[path] = g
	}
	j.held = found
	return nil
}
