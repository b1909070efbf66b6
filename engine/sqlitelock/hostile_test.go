//go:build unix

package sqlitelock

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func init() { parts["work"] = playWork }

// playWork locks and releases once, and tells how that went.
func playWork(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := Open(ctx, args[0])
	if err == nil {
		c := lockkeeper.New(e)
		err = c.Do(ctx, "db", func(context.Context) error { return nil })
		c.Close()
	}
	if err != nil {
		fmt.Println("refused:", err)
		return nil
	}
	fmt.Println("worked")
	return nil
}

const (
	anna = 50001
	ben  = 50002
)

// works is how playWork went for that user.
func works(t *testing.T, uid uint32, program, path string) string {
	t.Helper()
	cmd := exec.Command(program, path)
	cmd.Env = []string{roles.Variable + "=work"}
	cmd.Stderr = os.Stderr
	as(cmd, uid)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// private makes a directory for one user.
func private(t *testing.T, path string, uid int) string {
	t.Helper()
	return directory(t, path, uid, uid, 0o700)
}

func directory(t *testing.T, path string, uid, gid int, mode fs.FileMode) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// fill puts a file of that user at a path.
func fill(t *testing.T, path string, uid int, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	return path
}

// treasure fills a directory with what somebody would miss, by all kinds of names.
func treasure(t *testing.T, path string, uid int) {
	t.Helper()
	for _, name := range []string{"notes.txt", ".netrc", "train-session-1.csv", strings.Repeat("a", 26), "sub/"} {
		if at, is := strings.CutSuffix(name, "/"); is {
			private(t, filepath.Join(path, at), uid)
			continue
		}
		fill(t, filepath.Join(path, name), uid, "text of "+name)
	}
}

// image is the content of a directory: for each name the kind, the owner and the content.
func image(t *testing.T, path string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			bytes, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			text = string(bytes)
		}
		s := info.Sys().(*syscall.Stat_t)
		all[at] = fmt.Sprintf("%s %d:%d %q", info.Mode(), s.Uid, s.Gid, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unchanged makes sure that a directory is as it was.
func unchanged(t *testing.T, path string, before map[string]string) {
	t.Helper()
	after := image(t, path)
	for _, at := range slices.Sorted(maps.Keys(before)) {
		if after[at] != before[at] {
			t.Errorf("%s was %s, and is %q", at, before[at], after[at])
		}
	}
	for _, at := range slices.Sorted(maps.Keys(after)) {
		if _, was := before[at]; !was {
			t.Errorf("%s is new: %s", at, after[at])
		}
	}
}

func mustRefuse(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, word := range append(words, "refused: ") {
		if !strings.Contains(got, word) {
			t.Errorf("got %q, want it refused, with %q", got, word)
		}
	}
}

// Foreign entries in the folder of session files stay there and are reported.
func TestForeignFilesAmongSessionFilesStay(t *testing.T) {
	path := file(t)
	folder := path + "-sessions"
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	treasure(t, folder, os.Getuid())
	outside := fill(t, filepath.Join(t.TempDir(), "outside"), os.Getuid(), "")
	if err := os.Symlink(outside, filepath.Join(folder, strings.Repeat("b", 26))); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(outside, filepath.Join(folder, strings.Repeat("c", 26))); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(folder, strings.Repeat("d", 26)), os.Getuid(), "") // this one may be left over
	before := image(t, folder)
	e := openReal(t, path)
	attach(t, e, "a", time.Minute, nil)
	expect(t, examined(t, e)["session files"], lockkeeper.Doubtful, "and 4 more")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	openReal(t, path).Close()
	after := image(t, folder)
	for at, was := range before {
		if left := strings.HasSuffix(at, "dddd"); after[at] != was && !left {
			t.Errorf("%s was %s, and is %q", at, was, after[at])
		} else if left && after[at] != "" {
			t.Error("a session file that was left over is still there")
		}
	}
}

// A user puts a link to a directory of root in the place of the session files: neither root nor
// that user changes anything there.
func TestRootFollowsNoLinkToItsOwnDirectory(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	home := private(t, filepath.Join(folder, "home"), anna)
	precious := directory(t, filepath.Join(folder, "precious"), 0, 0, 0o755)
	treasure(t, precious, 0)
	path := filepath.Join(home, "locks.db")
	if got := works(t, anna, program, path); got != "worked" {
		t.Fatal(got)
	}
	before := image(t, precious)
	if err := os.RemoveAll(path + "-sessions"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, path+"-sessions"); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []uint32{anna, 0} {
		mustRefuse(t, works(t, uid, program, path), path+"-sessions", "a symbolic link", "move it away")
	}
	unchanged(t, precious, before)
}

// A member of a group puts a link to another user's directory, or a directory of a user outside the
// group, in the place of the session files: that has no effect.
func TestGroupFollowsNoLinkOfAMember(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	home := private(t, filepath.Join(folder, "ben"), ben)
	treasure(t, home, ben)
	shared := directory(t, filepath.Join(folder, "locks"), 0, team, 0o770|fs.ModeSetgid)
	path := filepath.Join(shared, "locks.db")
	for _, uid := range []uint32{anna, ben} {
		if got := works(t, uid, program, path); got != "worked" {
			t.Fatal(got)
		}
	}
	before := image(t, home)
	if err := os.Rename(path+"-sessions", path+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, path+"-sessions"); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, works(t, ben, program, path), path+"-sessions", "a symbolic link")
	unchanged(t, home, before)
	if err := os.Remove(path + "-sessions"); err != nil {
		t.Fatal(err)
	}
	directory(t, path+"-sessions", nobody, nobody, 0o777)
	mustRefuse(t, works(t, ben, program, path), path+"-sessions", "belongs to another user", "uid 65534")
	if err := os.Remove(path + "-sessions"); err != nil {
		t.Fatal(err)
	}
	directory(t, path+"-sessions", ben, team, 0o770|fs.ModeSetgid)
	if got := works(t, anna, program, path); got != "worked" {
		t.Errorf("a directory of the group: %s", got)
	}
}

// A process that wakes a session writes only into a session file, not through a link or into a file
// with a second name; a pipe does not block it.
func TestWakeupReachesOnlySessionFiles(t *testing.T) {
	path := file(t)
	text := fill(t, filepath.Join(filepath.Dir(path), "text"), os.Getuid(), "root:x:0:0")
	empty := fill(t, filepath.Join(filepath.Dir(path), "empty"), os.Getuid(), "")
	for name, plant := range map[string]func(at string) error{
		"link":      func(at string) error { return os.Symlink(text, at) },
		"hard link": func(at string) error { return os.Link(text, at) },
		"of empty":  func(at string) error { return os.Link(empty, at) },
		"pipe":      func(at string) error { return syscall.Mkfifo(at, 0o660) },
		"directory": func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := openReal(t, path), openReal(t, path)
			ka, kb := attach(t, a, "a", time.Minute, nil), attach(t, b, "b", time.Minute, nil)
			claim(t, a, ka, exclusive(1, "db"))
			claim(t, b, kb, exclusive(1, "db"))
			waits := b.SessionFile("b").Name()
			if err := os.Rename(waits, filepath.Join(t.TempDir(), "old")); err != nil {
				t.Fatal(err)
			}
			if err := plant(waits); err != nil {
				t.Fatal(err)
			}
			for _, e := range []*Engine{a, openReal(t, path)} {
				if err := e.End(bounded(t), ka, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
					t.Fatal(err)
				}
			}
			for at, want := range map[string]string{text: "root:x:0:0", empty: ""} {
				if got, err := os.ReadFile(at); err != nil || string(got) != want {
					t.Errorf("%s is %q, want %q (%v)", at, got, want, err)
				}
			}
			expect(t, examined(t, a)["session files"], lockkeeper.Doubtful, filepath.Base(waits))
			if err := b.End(bounded(t), kb, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(waits); err != nil {
				t.Errorf("what stood in its place was removed (%v)", err)
			}
			_ = os.RemoveAll(waits)
		})
	}
}

// A file that another user has put where SQLite keeps its log is refused at once, and stays as it
// is.
func TestPlantedLogIsRefused(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	tmp := directory(t, filepath.Join(folder, "tmp"), 0, 0, 0o777|fs.ModeSticky)
	secret := fill(t, filepath.Join(folder, "secret"), 0, "a file that must not change")
	words := map[string]string{"link": "is a symbolic link", "pipe": "is a pipe", "stranger": "uid 50002"}
	for name, plant := range map[string]func(at string) error{
		"link":     func(at string) error { return os.Symlink(secret, at) },
		"pipe":     func(at string) error { return syscall.Mkfifo(at, 0o666) },
		"stranger": func(at string) error { return os.WriteFile(at, nil, 0o666) },
	} {
		for _, beside := range []string{"-wal", "-shm", "-journal"} {
			path := filepath.Join(tmp, strings.ReplaceAll(name+beside, " ", "")+".db")
			fill(t, path, anna, "")
			if err := plant(path + beside); err != nil {
				t.Fatal(err)
			}
			if err := os.Lchown(path+beside, ben, ben); err != nil {
				t.Fatal(err)
			}
			for _, uid := range []uint32{anna, 0} {
				mustRefuse(t, works(t, uid, program, path), path+beside, words[name])
			}
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "a file that must not change" {
		t.Errorf("the file is %q (%v)", text, err)
	}
}

// Open does not follow a link that another user has put in the place of the file, unless it leads
// to a file of that user.
func TestLinkOfAStrangerIsRefused(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	shared := directory(t, filepath.Join(folder, "locks"), 0, team, 0o770|fs.ModeSetgid)
	home := private(t, filepath.Join(folder, "ben"), ben)
	empty := fill(t, filepath.Join(home, "empty"), ben, "")
	path := filepath.Join(shared, "locks.db")
	if err := os.Symlink(empty, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(path, anna, team); err != nil {
		t.Fatal(err)
	}
	before := image(t, home)
	mustRefuse(t, works(t, ben, program, path), "a symbolic link of another user (uid 50001)")
	unchanged(t, home, before)
	if got := works(t, ben, program, empty); got != "worked" {
		t.Errorf("by its own name: %s", got)
	}
	// Nor does a second name of an empty file make it one for locks.
	second := filepath.Join(home, "second")
	if err := os.Link(fill(t, filepath.Join(home, "mark"), ben, ""), second); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, works(t, ben, program, second), "has 2 names")
	// Root follows no link of another user to a file of root.
	etc := directory(t, filepath.Join(folder, "etc"), 0, 0, 0o755)
	if err := os.Symlink(etc, filepath.Join(home, "here")); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(filepath.Join(home, "here"), ben, ben); err != nil {
		t.Fatal(err)
	}
	through := filepath.Join(home, "here", "locks.db")
	mustRefuse(t, works(t, 0, program, through), "a symbolic link of another user (uid 50002)")
	unchanged(t, etc, map[string]string{etc: image(t, etc)[etc]})
	if names, err := os.ReadDir(etc); err != nil || len(names) > 0 {
		t.Errorf("root has made %v (%v)", names, err)
	}
}

// In a user's directory root creates files of that user, and uses no file of root there.
func TestRootMakesAUsersFile(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	home := private(t, filepath.Join(folder, "home"), anna)
	path := filepath.Join(home, "locks.db")
	for _, uid := range []uint32{0, anna} {
		if got := works(t, uid, program, path); got != "worked" {
			t.Errorf("uid %d: %s", uid, got)
		}
	}
	for at, what := range image(t, home) {
		if !strings.Contains(what, " 50001:50001 ") {
			t.Errorf("%s is %s, want it to be the user's", at, what)
		}
	}
	roots := fill(t, filepath.Join(home, "roots.db"), 0, "")
	mustRefuse(t, works(t, 0, program, roots), "is root's, in a directory of another user", "chown 50001 "+roots)
	if got := image(t, home)[roots]; !strings.HasSuffix(got, `0:0 ""`) {
		t.Errorf("root's file is %s", got)
	}
}

// Root that can't act as the owner of a file, as in a container without that capability, opens
// nothing, and the error says what to do.
func TestRootThatCantActAsTheOwnerIsRefused(t *testing.T) {
	needsRoot(t)
	if runtime.GOOS != "linux" {
		t.Skip("capabilities are Linux's")
	}
	folder, program := public(t)
	home := private(t, filepath.Join(folder, "home"), anna)
	path := filepath.Join(home, "locks.db")
	if got := works(t, anna, program, path); got != "worked" {
		t.Fatal(got)
	}
	before := image(t, home)
	cmd := exec.Command("setpriv", "--bounding-set=-setuid,-setgid", program, path)
	cmd.Env = []string{roles.Variable + "=work", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mustRefuse(t, string(out), "write sudo -u '#50001' lk …")
	unchanged(t, home, before)
}

// Whatever the umask, nobody but the owner, or the group of a directory that is made for one, can
// open any of the files: a user who may only read the log's index could stop all work.
func TestModesWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o277} {
		for _, group := range []bool{false, true} {
			t.Run(fmt.Sprintf("%03o %v", umask, group), func(t *testing.T) {
				folder := t.TempDir()
				want, enter := fs.FileMode(0o600), fs.FileMode(0o700)
				if group {
					want, enter = 0o660, 0o770
					if err := os.Chmod(folder, enter|fs.ModeSetgid); err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(folder, "locks.db")
				old := syscall.Umask(umask)
				defer syscall.Umask(old)
				e := openReal(t, path)
				claim(t, e, attach(t, e, "a", time.Minute, nil), exclusive(1, "db"))
				modes := map[string]fs.FileMode{
					path: want, path + "-wal": want, path + "-shm": want, path + "-sessions": enter, e.SessionFile("a").Name(): want,
				}
				for at, mode := range modes {
					if info, err := os.Stat(at); err != nil || info.Mode().Perm() != mode {
						t.Errorf("%s: %v (%v), want %s", at, info.Mode(), err, mode)
					}
				}
			})
		}
	}
}

// A user who may not write the file can't take SQLite's locks on the log's index, and so
// neither holds up nor ends the work of others.
func TestReaderCantHoldUpWriters(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	home := directory(t, filepath.Join(folder, "home"), anna, anna, 0o755)
	path := filepath.Join(home, "locks.db")
	cmd := exec.Command(program, path)
	cmd.Env = []string{roles.Variable + "=share"} // by the umask that most people have
	as(cmd, anna)
	holder := roles.StartCommand(t, cmd)
	holder.Read("opened")
	fmt.Fprintln(holder.In, "lock")
	holder.Read("held")
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v (%v), want four", files, err)
	}
	sessions, err := filepath.Glob(path + "-sessions/*")
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%v (%v), want one", sessions, err)
	}
	const tries = `for f; do if cat "$f" >/dev/null 2>&1 || ls "$f/" >/dev/null 2>&1; then echo "$f"; fi; done`
	reader := exec.Command("/bin/sh", append([]string{"-c", tries, "sh"}, append(files, sessions...)...)...)
	as(reader, nobody)
	if out, err := reader.Output(); err != nil || len(out) > 0 {
		t.Errorf("a stranger may read %s (%v)", out, err)
	}
}
