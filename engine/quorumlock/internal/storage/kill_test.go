package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// playWrite opens the folder, which has the first writes of a script, and goes on with the script,
// in groups, until it is killed. It says how many writes it asks for, and how many are durable.
func playWrite(args []string) error {
	seed, _ := strconv.ParseUint(args[1], 10, 64)
	done, _ := strconv.Atoi(args[2])
	s, err := open(context.Background(), args[0], testNode, options{checkpointPages: 60})
	if err != nil {
		return err
	}
	fmt.Println("open")
	sc := newScript(seed)
	sc.skip(done)
	for {
		var writes []replica.Write
		for range 1 + done%5 {
			writes = append(writes, sc.next())
		}
		fmt.Println("begin", done+len(writes))
		if err := s.Write(writes); err != nil {
			return err
		}
		done += len(writes)
		fmt.Println("durable", done)
	}
}

// playTrace makes a node and writes a script, line by line of its input, or all of it if that ends.
func playTrace(args []string) error {
	dir := args[0]
	seed, _ := strconv.ParseUint(args[1], 10, 64)
	writes, _ := strconv.Atoi(args[2])
	if err := Create(dir, testNode, newScript(seed).state); err != nil {
		return err
	}
	say := func(text string) { os.Stdout.WriteString(text + "\n") }
	say("durable 0")
	s, err := open(context.Background(), dir, testNode, options{checkpointPages: 40})
	if err != nil {
		return err
	}
	say("open")
	sc := newScript(seed)
	for n := 1; n <= writes; n++ {
		if len(args) > 3 {
			if _, err := fmt.Scanln(); err != nil && err.Error() == "EOF" {
				return nil
			}
		}
		say(fmt.Sprint("begin ", n))
		if err := s.Write([]replica.Write{sc.next()}); err != nil {
			say(fmt.Sprint("error ", errors.Is(err, ErrFailed), " ", err))
			continue
		}
		say(fmt.Sprint("durable ", n))
	}
	return s.Close()
}

// A process is killed again and again. The next one has every write that was confirmed, and of one
// that was not all or nothing.
func TestKilledWritersLoseNothing(t *testing.T) {
	seed := testmode.Seed(t)
	random := newScript(seed).random
	dir := newNode(t)
	done, most := 0, 0
	for round := range testmode.Pick(12, 300) {
		p := roles.Start(t, "write", dir, fmt.Sprint(seed), fmt.Sprint(done))
		lines := random.IntN(60)
		if round%4 == 0 {
			lines = 0 // while it still opens the folder
		}
		var text strings.Builder
		for range lines {
			line, err := p.Out.ReadString('\n')
			if err != nil {
				t.Fatalf("round %d: the process ends: %s", round, text.String())
			}
			text.WriteString(line)
		}
		if lines == 0 {
			<-time.After(time.Duration(random.IntN(30)) * time.Millisecond)
		}
		p.Signal(os.Kill)
		rest, _ := io.ReadAll(p.Out)
		p.Kill()
		text.Write(rest)
		asked := done
		for line := range strings.Lines(text.String()) {
			fmt.Sscanf(line, "begin %d\n", &asked)
			fmt.Sscanf(line, "durable %d\n", &done)
		}
		most = max(most, done)
		done = found(t, seed, dir, done, asked)
	}
	if most == 0 {
		t.Error("nothing was written: that proves nothing")
	}
	t.Logf("%d writes", done)
}

// found returns how many writes of the script the folder has: done or asked.
func found(t *testing.T, seed uint64, dir string, done, asked int) int {
	t.Helper()
	s := reopen(t, dir, options{careless: true})
	defer s.mustClose(t)
	state, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	d := difference(state, newScript(seed).skip(done))
	if d == "" {
		return done
	}
	if difference(state, newScript(seed).skip(asked)) == "" {
		return asked
	}
	t.Fatalf("neither the %d writes that were durable nor the %d that were asked for are there: %s", done, asked, d)
	return 0
}
