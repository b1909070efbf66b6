package disklock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func(args []string) error{
		"open":  playOpen,
		"work":  playWork,
		"claim": playClaim,
		"held":  playHeld,
	})
	os.Exit(m.Run())
}

// playOpen opens the directory and has it until its input ends.
func playOpen(args []string) error {
	e, err := Open(context.Background(), args[0])
	if err != nil {
		return err
	}
	fmt.Println("open")
	io.Copy(io.Discard, os.Stdin)
	return e.Close()
}

// TestTwoProcessesCannotOpenOneDirectory: a directory is opened by one process only; who else tries is told
// by which, and the directory is free when that is killed.
func TestTwoProcessesCannotOpenOneDirectory(t *testing.T) {
	dir := t.TempDir()
	p := roles.Start(t, "open", dir)
	p.Read("open")
	_, err := Open(t.Context(), dir)
	if want := fmt.Sprint("process ", p.Cmd.Process.Pid); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("the second one: %v, want ErrUnavailable that names %s", err, want)
	}
	p.Kill()
	e := openHere(t, dir, options{})
	if _, err := Open(t.Context(), dir); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a second one in this process: %v, want ErrUnavailable", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := openHere(t, dir, options{}).Close(); err != nil {
		t.Error(err)
	}
}

// playClaim opens the directory, and for each line of its input claims a path of that
// name and says what came of it.
func playClaim(args []string) error {
	e, err := open(context.Background(), args[0], options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	lease, err := takeOver(e, lockkeeper.Session{ID: args[1], TTL: time.Hour})
	if err != nil {
		return err
	}
	fmt.Println("open")
	id := uint64(0)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		id++
		w := lockkeeper.Want{ID: id,
			Targets: []lockkeeper.Target{{Path: lockkeeper.Path(in.Text()), Mode: lockkeeper.ModeExclusive}}}
		st, err := e.Claim(ctx, lease.Key, w)
		if err != nil {
			fmt.Println("refused", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(st.State, st.Fence)
	}
	return nil
}
