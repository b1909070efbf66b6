package sqlitelock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func TestMain(m *testing.M) {
	roles.Play(parts)
	os.Exit(m.Run())
}

// parts are what other processes of the tests do.
var parts = map[string]func(args []string) error{
	"open": playOpen, "hold": playHold, "queue": playQueue, "count": playCount, "sleep": playSleep, "clock": playClock,
}

// client opens the file as every process of the tests does.
func client(path string) (*lockkeeper.Client, *Engine, error) {
	e, err := Open(context.Background(), path)
	if err != nil {
		return nil, nil, err
	}
	return lockkeeper.New(e, lockkeeper.SessionID("p"+strconv.Itoa(os.Getpid())+strconv.FormatInt(time.Now().UnixNano(),
		36))), e, nil
}

func testClient(t testing.TB, path string) (*lockkeeper.Client, *Engine) {
	t.Helper()
	c, e, err := client(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, e
}

func playOpen(args []string) error {
	c, _, err := client(args[0])
	if err != nil {
		return err
	}
	if err := c.Do(context.Background(), "first", func(context.Context) error { return nil }); err != nil {
		return err
	}
	return c.Close()
}

// playHold holds until it is killed. With "child" a child has the session's file too.
func playHold(args []string) error {
	c, e, err := client(args[0])
	if err != nil {
		return err
	}
	hold, err := c.Lock(context.Background(), args[1])
	if err != nil {
		return err
	}
	child := 0
	if len(args) > 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roles.Variable+"=sleep")
		cmd.ExtraFiles = []*os.File{e.SessionFile(hold.Ref().Session)}
		if err := cmd.Start(); err != nil {
			return err
		}
		child = cmd.Process.Pid
	}
	fmt.Println("held", child)
	select {}
}

func playClock([]string) error {
	reading, err := newBootClock()()
	fmt.Println("clock", int64(reading))
	return err
}

func playSleep([]string) error { select {} }

// playQueue queues once for each line it reads, and tells when it waits and when it has it.
func playQueue(args []string) error {
	c, _, err := client(args[0])
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		pending, err := c.Enqueue(context.Background(), lockkeeper.Exclusive(args[1]))
		if err != nil {
			return err
		}
		fmt.Println("queued")
		hold, err := pending.Wait(context.Background())
		if err != nil {
			return err
		}
		reading, err := newBootClock()()
		if err != nil {
			return err
		}
		fmt.Println("held", int64(reading))
		if err := hold.Release(context.Background()); err != nil {
			return err
		}
		fmt.Println("released")
	}
	return c.Close()
}

// playCount raises the number in a file under the lock, until it has done so often enough.
func playCount(args []string) error {
	c, _, err := client(args[0])
	if err != nil {
		return err
	}
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	for range times {
		err := c.Do(context.Background(), "counter", func(ctx context.Context) error {
			return count(args[1])
		})
		if err != nil {
			return err
		}
		fmt.Println("counted")
	}
	return c.Close()
}

// count raises the number in a file in two steps, as a process without the lock must not.
func count(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	next := path + ".next" // whole or not at all, also when this process is killed
	if err := os.WriteFile(next, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Ten processes and ten goroutines open one new file at once, and all of them
// can use it.
func TestManyOpenOneNewFile(t *testing.T) {
	path := file(t)
	var wg sync.WaitGroup
	for range 10 {
		p := roles.Start(t, "open", path)
		wg.Go(p.Wait)
		wg.Go(func() {
			c, _, err := client(path)
			if err == nil {
				err = c.Do(bounded(t), "first", func(context.Context) error { return nil })
			}
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var version, fences int
	e := openReal(t, path)
	err := e.call(bounded(t), true, func(tx *transaction) {
		version, fences = int(tx.meta.version), int(tx.meta.counters.Fences)
	})
	if err != nil || fences != 20 {
		t.Errorf("%d fences were given in %d changes, want 20 (%v)", fences, version, err)
	}
}

// A waiting process is woken by the release of another one.
func TestHandOff(t *testing.T) {
	path := file(t)
	c, _ := testClient(t, path)
	other := roles.Start(t, "queue", path, "db/hot")
	rounds := testmode.Pick(30, 600)
	var waits []time.Duration
	for range rounds {
		hold, err := c.Lock(bounded(t), "db/hot")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(other.In, "go")
		other.Read("queued")
		began, err := newBootClock()()
		if err != nil {
			t.Fatal(err)
		}
		if err := hold.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseInt(other.Read("held"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, time.Duration(at)-began)
		other.Read("released")
	}
	slices.Sort(waits)
	t.Logf("hand-off between two processes: median %s, longest %s of %d", waits[len(waits)/2], waits[len(waits)-1],
		len(waits))
	if slow := waits[len(waits)*3/4]; slow > pollWatching/2 {
		t.Errorf("a quarter took longer than %s: the bell does not ring", slow)
	}
}

// waitFor queues for a path; the grant comes through the channel.
func waitFor(t *testing.T, c *lockkeeper.Client, path string) (*lockkeeper.Pending, <-chan *lockkeeper.Hold) {
	t.Helper()
	pending, err := c.Enqueue(bounded(t), lockkeeper.Exclusive(path))
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan *lockkeeper.Hold, 1)
	go func() {
		hold, err := pending.Wait(context.Background())
		if err == nil {
			granted <- hold
		}
	}()
	return pending, granted
}

// When a process is killed, the next waiters get its holds at once, long before its TTL has passed.
func TestKilledHolder(t *testing.T) {
	path := file(t)
	c, _ := testClient(t, path)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	_, granted := waitFor(t, c, "db/x")
	select {
	case <-granted:
		t.Fatal("granted while it is held")
	default:
	}
	killed := time.Now()
	holder.Kill()
	select {
	case hold := <-granted:
		t.Logf("granted %s after the kill", time.Since(killed))
		if hold.Unconfirmed() {
			t.Error("the grant is marked unconfirmed, although the kernel says that the former holder is dead")
		}
		hold.Close()
	case <-time.After(lockkeeper.DefaultTTL / 2):
		t.Fatal("not granted though the holder is dead")
	}
}

// The death of a holder is noticed also by a process that waits for many others.
func TestKilledHolderOfTheLast(t *testing.T) {
	path := file(t)
	holder := roles.Start(t, "hold", path, "last")
	holder.Read("held")
	others, _ := testClient(t, path)
	c, _ := testClient(t, path)
	for i := range mostWatching + 8 {
		if _, err := others.Lock(bounded(t), fmt.Sprint("p", i)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, c, fmt.Sprint("p", i))
	}
	_, granted := waitFor(t, c, "last")
	holder.Kill()
	select {
	case <-granted:
	case <-time.After(lockkeeper.DefaultTTL / 2):
		t.Fatal("not granted though the holder is dead")
	}
}

// A try is not refused because of a process that was killed.
func TestTryAfterKill(t *testing.T) {
	path := file(t)
	c, _ := testClient(t, path)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	if _, err := c.TryLock(bounded(t), "db"); err == nil {
		t.Fatal("granted while it is held")
	}
	holder.Kill()
	hold, err := c.TryLock(bounded(t), "db")
	if err != nil {
		t.Fatal(err)
	}
	hold.Close()
}

// As long as a child of the killed process has the session's file, the session lives.
func TestKilledHolderWithChild(t *testing.T) {
	path := file(t)
	c, _ := testClient(t, path)
	holder := roles.Start(t, "hold", path, "db", "child")
	child, err := strconv.Atoi(holder.Read("held"))
	if err != nil || child == 0 {
		t.Fatal(child, err)
	}
	orphan, err := os.FindProcess(child)
	if err != nil {
		t.Fatal(err)
	}
	defer orphan.Kill()
	_, granted := waitFor(t, c, "db")
	holder.Kill()
	// The death of the holder alone is no event. So give the waiter every reason
	// to look again, and see that it does not go.
	for range 5 {
		if hold, err := c.TryLock(bounded(t), "db"); err == nil {
			t.Fatalf("granted with fence %d while the child lives", hold.Fence())
		}
	}
	select {
	case <-granted:
		t.Fatal("granted while the child lives")
	default:
	}
	orphan.Kill()
	select {
	case hold := <-granted:
		hold.Close()
	case <-time.After(lockkeeper.DefaultTTL / 2):
		t.Fatal("not granted though holder and child are dead")
	}
}

// Processes are killed again and again while they count under the lock: each
// count is done whole or not at all, so none is lost.
func TestKillLoop(t *testing.T) {
	path := file(t)
	counter := path + ".counter"
	if err := os.WriteFile(counter, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := testmode.Rand(t)
	rounds, workers := testmode.Pick(6, 120), 3
	told := 0 // counts of which the processes told
	killed := 0
	last := uint64(0)
	c, _ := testClient(t, path)
	for range rounds {
		var all []*roles.Process
		for range workers {
			all = append(all, roles.Start(t, "count", path, counter, "1000000"))
		}
		for range 20 + r.IntN(40) {
			all[r.IntN(workers)].Read("counted")
			told++
		}
		for _, p := range all {
			p.Cmd.Process.Kill()
			killed++
		}
		for _, p := range all {
			rest, _ := io.ReadAll(p.Out)
			told += strings.Count(string(rest), "counted\n")
			p.Cmd.Wait()
		}
		// Whatever they left behind, the next one gets it, with a higher fence.
		hold, err := c.Lock(bounded(t), "counter")
		if err != nil {
			t.Fatal(err)
		}
		if hold.Fence() <= last {
			t.Fatalf("fence %d after %d", hold.Fence(), last)
		}
		last = hold.Fence()
		hold.Close()
	}
	text, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d counts, %d told, %d processes killed, fences up to %d", n, told, killed, last)
	// A process that was killed between counting and reporting has counted once more.
	if n < told || n > told+killed {
		t.Errorf("counted to %d, but %d counts were told and %d processes killed", n, told, killed)
	}
	openReal(t, path) // ends the sessions of the dead that were in nobody's way
	if left, err := os.ReadDir(path + "-sessions"); err != nil || len(left) != 1 {
		t.Errorf("%d session files are left, want that of this process alone (%v)", len(left), err)
	}
}
