//go:build unix

package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func init() {
	parts["try"] = playTry
	parts["share"] = playShare
}

// playTry opens a file, and prints the result.
func playTry(args []string) error {
	e, err := Open(context.Background(), args[0])
	switch {
	case err == nil:
		fmt.Println("opened")
		return e.Close()
	case errors.Is(err, lockkeeper.ErrUnavailable):
		fmt.Println("unavailable", err)
	case errors.Is(err, lockkeeper.ErrInvalid):
		fmt.Println("invalid", err)
	default:
		fmt.Println("neither", err)
	}
	return nil
}

// public is a folder that everybody may enter, with a copy of this program in
// it: the places where it is built are not for everybody.
func public(t *testing.T) (folder, program string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "sqlitelock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(folder, "program")
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return folder, program
}

const (
	nobody = 65534
	team   = 54321 // a group of which two users are
)

// as makes a command act as another user: root may do anything, and would test
// nothing. Who is not root acts as himself.
func as(cmd *exec.Cmd, uid uint32) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{team}}}
	}
}

// tried is how it went for a user with few rights.
func tried(t *testing.T, program, path string) string {
	t.Helper()
	return triedAs(t, nobody, program, path)
}

func triedAs(t *testing.T, uid uint32, program, path string) string {
	t.Helper()
	cmd := exec.Command(program, path)
	cmd.Env = []string{roles.Variable + "=try"}
	cmd.Stderr = os.Stderr
	as(cmd, uid)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// The error of a user without rights says what to do, and never looks as if a lock were taken.
func TestNoAccess(t *testing.T) {
	folder, program := public(t)
	made := func(name string, fileMode, folderMode os.FileMode) string {
		t.Helper()
		sub := filepath.Join(folder, name)
		if err := os.Mkdir(sub, 0o777); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(sub, "locks.db")
		if fileMode != 0 {
			openReal(t, path).Close()
			if err := os.Chmod(path, fileMode&0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(sub, folderMode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(sub, 0o777) }) // so that it can be removed
		return path
	}
	root := os.Geteuid() == 0
	for _, c := range []struct {
		name, path string
		words      []string
	}{
		{"read-only file", made("a", 0o444, 0o777), []string{"unavailable", "may not read and write it", "-r--r--r--",
			"name another file"}},
		{"file without permission", made("b", 0o100000, 0o777),
			[]string{"unavailable", "may not read and write it", "permission denied"}},
		{"read-only directory", made("c", 0o666, 0o555),
			[]string{"unavailable", "may not make files in its directory", "dr-xr-xr-x"}},
		{"no file yet in a read-only directory", made("d", 0, 0o555),
			[]string{"unavailable", "may not make files in its directory"}},
		{"directory that can't be entered", made("e", 0o666, 0o600), []string{"unavailable", "locks.db"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tried(t, program, c.path)
			for _, word := range c.words {
				if !strings.Contains(got, word) {
					t.Errorf("%q does not say %q", got, word)
				}
			}
			if root && !strings.Contains(got, "uid 65534") {
				t.Errorf("%q does not say who", got)
			}
		})
	}
}

// needsRoot skips a test that acts as other users, which only root can. In CI
// nothing is left out: there it fails.
func needsRoot(t *testing.T) {
	t.Helper()
	ci := os.Getenv("CI")
	switch {
	case os.Geteuid() == 0:
	case ci != "" && ci != "false":
		t.Fatal("only root can act as other users: run CI as root")
	default:
		t.Skip("only root can act as other users")
	}
}

// Another user who may only read a file leaves nothing beside it: SQLite's log would belong to that
// user, and lock the owner out.
func TestStrangerLeavesNothing(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	everybodys := filepath.Join(folder, "tmp")
	if err := os.Mkdir(everybodys, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(everybodys, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	const owner, stranger = 50001, 50002
	for _, mode := range []os.FileMode{0o644, 0o444} {
		path := filepath.Join(everybodys, fmt.Sprintf("%o.db", mode))
		if got := triedAs(t, owner, program, path); got != "opened" {
			t.Fatal(got)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := triedAs(t, stranger, program, path); !strings.HasPrefix(got, "unavailable") ||
			!strings.Contains(got, "uid 50002") {
			t.Errorf("the stranger: %s", got)
		}
		for _, beside := range []string{"-wal", "-shm", "-journal", "-sessions"} {
			if _, err := os.Lstat(path + beside); err == nil {
				t.Errorf("he left %s", path+beside)
			}
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := triedAs(t, owner, program, path); got != "opened" {
			t.Errorf("the owner after that: %s", got)
		}
	}
}

// What root makes beside a user's file belongs to the user, who can go on while root
// uses it, after root was killed, and after root has closed it.
func TestRootUsesAUsersFile(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	home := filepath.Join(folder, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	const user = 50001
	if err := os.Chown(home, user, user); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "locks.db")
	if got := triedAs(t, user, program, path); got != "opened" {
		t.Fatal(got)
	}
	share := func(uid uint32) *roles.Process {
		cmd := exec.Command(program, path)
		cmd.Env = []string{roles.Variable + "=share"}
		as(cmd, uid)
		return roles.StartCommand(t, cmd)
	}
	root := share(0)
	root.Read("opened")
	fmt.Fprintln(root.In, "lock")
	root.Read("held")
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := filepath.Glob(path + "-sessions/*")
	if err != nil || len(files) != 4 || len(sessions) != 1 {
		t.Fatalf("files %v and %v (%v), want the file, its log, the log's index and a session's file in its folder", files,
			sessions, err)
	}
	for _, name := range append(files, sessions...) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != user || s.Gid != user {
			t.Errorf("%s belongs to %d, %d, want the user", name, s.Uid, s.Gid)
		}
	}
	anna := share(user)
	anna.Read("opened")
	fmt.Fprintln(anna.In, "lock")
	fmt.Fprintln(root.In, "die")
	anna.Read("held")
	fmt.Fprintln(anna.In, "release")
	anna.Read("released")
	root = share(0)
	root.Read("opened")
	root.In.Close() // which locks and releases twice
	root.Wait()
	fmt.Fprintln(anna.In, "lock")
	anna.Read("held")
}

// Links are followed once, for all: two names of one file lead to one lock. One
// that leads nowhere is no new file.
func TestSymbolicLinks(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "real", "locks.db"), filepath.Join(folder, "link.db")
	if err := os.Symlink("real/locks.db", link); err != nil {
		t.Fatal(err)
	}
	refused(t, link, lockkeeper.ErrInvalid, "symbolic link to real/locks.db", "remove the link")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, link, lockkeeper.ErrInvalid, "symbolic link")
	a := openReal(t, path)
	claim(t, a, attach(t, a, "a", time.Hour, nil), exclusive(1, "db"))
	b := openReal(t, link)
	w := exclusive(1, "db")
	w.Wait = 0
	if st := claim(t, b, attach(t, b, "b", time.Hour, nil), w); st.State != lockkeeper.Ended {
		t.Errorf("by another name of the file: %s, want that it is taken", st.State)
	}
	if a.folder.path != b.folder.path {
		t.Errorf("session files are in %s and in %s", a.folder.path, b.folder.path)
	}
	fifo := filepath.Join(folder, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// Reading it, to see that it is untouched, would wait for a writer.
	if _, err := Open(bounded(t), fifo); !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), "a pipe") {
		t.Errorf("got %v, want ErrInvalid and what it is", err)
	}
}

// The mode of a file that somebody has made himself is his own choice.
func TestOwnChoiceOfMode(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"new.db": 0o660, "made.db": 0o600} {
		path := filepath.Join(folder, name)
		if name == "made.db" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		openReal(t, path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %s, want %s (%v)", name, info.Mode(), want, err)
		}
	}
}

// playShare locks and releases a path for each line that it reads.
func playShare(args []string) error {
	syscall.Umask(0o022) // as most people have it
	c, _, err := client(args[0])
	if err != nil {
		return err
	}
	fmt.Println("opened")
	for range 2 {
		var line string
		fmt.Scanln(&line)
		hold, err := c.Lock(context.Background(), "db")
		if err != nil {
			return err
		}
		fmt.Println("held", hold.Fence())
		fmt.Scanln(&line)
		if line == "die" {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if err := hold.Release(context.Background()); err != nil {
			return err
		}
		fmt.Println("released")
	}
	return c.Close()
}

// Two users share a file in a directory with setgid. Whichever user creates the file, both can use
// it, wake each other, and notice at once when the other's process is dead.
func TestTwoUsers(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	shared := filepath.Join(folder, "locks")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(shared, 0, team); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(shared, "locks.db")
	user := func(uid uint32) *roles.Process {
		cmd := exec.Command(program, path)
		cmd.Env = []string{roles.Variable + "=share"}
		as(cmd, uid)
		return roles.StartCommand(t, cmd)
	}
	anna := user(50001)
	anna.Read("opened")
	ben := user(50002)
	ben.Read("opened")
	fmt.Fprintln(anna.In, "lock")
	anna.Read("held")
	fmt.Fprintln(ben.In, "lock")
	fmt.Fprintln(anna.In, "release")
	anna.Read("released")
	ben.Read("held")
	fmt.Fprintln(anna.In, "lock")
	fmt.Fprintln(ben.In, "die")
	held := make(chan string)
	go func() { line, _ := anna.Out.ReadString('\n'); held <- line }()
	select {
	case line := <-held:
		if !strings.HasPrefix(line, "held") {
			t.Fatalf("got %q, want that it is held", line)
		}
	case <-time.After(lockkeeper.DefaultTTL / 2):
		t.Fatal("not granted though the other user's process is dead")
	}
	all := []string{path, path + "-wal", path + "-shm", path + "-sessions"}
	files, err := os.ReadDir(path + "-sessions")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, filepath.Join(path+"-sessions", f.Name()))
	}
	for _, name := range all {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s := info.Sys().(*syscall.Stat_t); s.Gid != team || info.Mode()&0o060 != 0o060 || info.Mode()&0o007 != 0 {
			t.Errorf("%s has mode %s and group %d, want that the group and nobody else may use it", name, info.Mode(), s.Gid)
		}
	}
}
