package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
)

func init() { programs["lkcrowd"] = func() { os.Exit(crowdMain(os.Args[1], os.Args[2], os.Args[3:])) } }

// labTTL is the TTL of all sessions in a lab.
const labTTL = time.Second

// observed is what the clients of a crowd observed until they paused.
type observed struct {
	Events []history.Event
	Wrong  []string
}

// crowdMain is a process with a client for each URL. It obeys the lines of its input, and answers each
// of them by a line: "pause FILE" ends all waits and holds, and writes what was observed to FILE;
// "resume" goes on. The history has the monotonic clock, which is the same in all time namespaces here.
func crowdMain(name, seed string, urls []string) int {
	number, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	load := stress.New(number, history.Rules{})
	load.Long, load.Clock = 2*labTTL, monotonic
	for _, url := range urls {
		e, err := openSoon(context.Background(), url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		load.Add(name, e, 2, lockkeeper.SessionTTL(labTTL))
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if file, pauses := strings.CutPrefix(lines.Text(), "pause "); pauses {
			load.Pause()
			var o observed
			o.Events, o.Wrong = load.Take()
			text, err := json.Marshal(o)
			if err == nil {
				err = os.WriteFile(file, text, 0o600)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			fmt.Println("paused:", load)
		} else {
			load.Resume()
			fmt.Println("resumed")
		}
	}
	return 0
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// openSoon opens an engine as soon as its server answers.
func openSoon(ctx context.Context, url string) (lockkeeper.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		e, err := lockkeeper.Open(ctx, url)
		if err == nil || ctx.Err() != nil || !errors.Is(err, lockkeeper.ErrUnavailable) {
			return e, err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// A crowd is such a process.
type crowd struct {
	*testing.T
	name, file string
	orders     *os.File
	answers    *bufio.Scanner
	said       string // at the latest pause
}

// newCrowd starts a crowd on a host of its own, whose boot clock began at another time.
func (l *lab) newCrowd(name string, seed uint64, origin time.Duration) {
	l.Helper()
	at := l.newHost()
	args := []string{"--time", "--boottime", wholeSeconds(origin), "lkcrowd", name, strconv.FormatUint(seed, 10)}
	for _, n := range l.nodes {
		args = append(args, n.url())
	}
	cmd := exec.Command("unshare", args...)
	cmd.Stderr = os.Stderr
	in, orders, err := os.Pipe()
	l.ok(err)
	cmd.Stdin = in
	answers, err := cmd.StdoutPipe()
	l.ok(err)
	l.ok(at.host.Start(cmd))
	in.Close()
	l.Cleanup(func() { orders.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c := &crowd{T: l.T, name: name, file: l.dir + "/" + name, orders: orders, answers: bufio.NewScanner(answers)}
	l.crowds = append(l.crowds, c)
	c.hear("ready")
}

func (c *crowd) order(line string) {
	c.Helper()
	if _, err := fmt.Fprintln(c.orders, line); err != nil {
		c.Fatal(err)
	}
}

// hear waits for an answer.
func (c *crowd) hear(want string) {
	c.Helper()
	heard := make(chan string, 1)
	go func() {
		c.answers.Scan()
		heard <- c.answers.Text()
	}()
	select {
	case c.said = <-heard:
		if !strings.HasPrefix(c.said, want) {
			c.Fatalf("%s said %q, want %s", c.name, c.said, want)
		}
	case <-time.After(2 * patience):
		c.Fatalf("%s has not said %s in %s", c.name, want, 2*patience)
	}
}

// observe pauses all crowds, and returns what they observed since they were resumed last.
func (l *lab) observe() (events []history.Event, wrong []string) {
	l.Helper()
	for _, c := range l.crowds {
		c.order("pause " + c.file)
	}
	for _, c := range l.crowds {
		c.hear("paused")
		text, err := os.ReadFile(c.file)
		l.ok(err)
		var o observed
		l.ok(json.Unmarshal(text, &o))
		events, wrong = history.Merge(events, o.Events), append(wrong, o.Wrong...)
	}
	return events, wrong
}

func (l *lab) resume() {
	l.Helper()
	for _, c := range l.crowds {
		c.order("resume")
		c.hear("resumed")
	}
}
