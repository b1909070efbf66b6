package storage

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A call is a system call that changes the folder, or a line of the process.
type call struct {
	name string // create, write, truncate, sync, rename, remove or say
	path string // base name of the file; "" for the folder
	to   string // of a rename
	at   int64  // of a write, or the length of a truncate
	data []byte
}

// A simFile is a file on a disk that loses what is not synced.
type simFile struct {
	synced  []byte
	pending []call // since then
}

// A simDisk is a folder on such a disk. Changes of names become durable in their order.
type simDisk struct {
	names   map[string]*simFile
	synced  map[string]*simFile
	pending []call // changes of names since then
	made    []*simFile
}

func newSimDisk() *simDisk {
	return &simDisk{names: make(map[string]*simFile), synced: make(map[string]*simFile)}
}

// change changes names as c says. made is the file of a create.
func change(names map[string]*simFile, c call, made *simFile) {
	switch c.name {
	case "create":
		names[c.path] = made
	case "rename":
		names[c.to] = names[c.path]
		delete(names, c.path)
	case "remove":
		delete(names, c.path)
	}
}

func (d *simDisk) do(c call) {
	switch c.name {
	case "create":
		if d.names[c.path] != nil {
			return
		}
		d.change(c)
	case "rename", "remove":
		d.change(c)
	case "write", "truncate":
		f := d.names[c.path]
		f.pending = append(f.pending, c)
	case "sync":
		if c.path == "" {
			d.synced, d.pending, d.made = maps.Clone(d.names), nil, nil
			return
		}
		f := d.names[c.path]
		f.synced, f.pending = f.content(func(int) bool { return true }, nil), nil
	}
}

func (d *simDisk) change(c call) {
	made := new(simFile)
	change(d.names, c, made)
	d.pending, d.made = append(d.pending, c), append(d.made, made)
}

// content returns the synced content with those pending calls that kept names. If random is not nil,
// a kept write may be torn.
func (f *simFile) content(kept func(i int) bool, random *rand.Rand) []byte {
	b := bytes.Clone(f.synced)
	grow := func(size int64) {
		if n := size - int64(len(b)); n > 0 {
			b = append(b, make([]byte, n)...)
		}
	}
	for i, c := range f.pending {
		switch {
		case !kept(i):
		case c.name == "truncate":
			grow(c.at)
			b = b[:c.at]
		default:
			data := c.data
			if random != nil && random.IntN(8) == 0 {
				data = data[:random.IntN(len(data)/sector+1)*sector]
			}
			grow(c.at + int64(len(data)))
			copy(b[c.at:], data)
		}
	}
	return b
}

// killed returns what the disk has when the process dies now.
func (d *simDisk) killed() files {
	all := make(files)
	for name, f := range d.names {
		all[name] = f.content(func(int) bool { return true }, nil)
	}
	return all
}

// powerless returns what the disk has when the power is lost now: the first changes of names since the
// folder was synced, and any writes of each file since that was synced.
func (d *simDisk) powerless(random *rand.Rand) files {
	names := maps.Clone(d.synced)
	for i := range random.IntN(len(d.pending) + 1) {
		change(names, d.pending[i], d.made[i])
	}
	all := make(files)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		keeps := []float64{0, 0.5, 0.9, 1}[random.IntN(4)]
		all[name] = names[name].content(func(int) bool { return random.Float64() < keeps }, random)
	}
	return all
}

// traced are the system calls that may change files.
const traced = "open,openat,write,pwrite64,writev,pwritev,ftruncate,fallocate,fsync,fdatasync,rename,renameat," +
	"renameat2,unlink,unlinkat,link,linkat,symlinkat"

// trace runs the process that makes a node and writes a script, and returns its calls.
func trace(t *testing.T, seed uint64, writes int) (calls []call) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("there is no strace to record system calls: make tools installs it")
	}
	if err != nil {
		t.Skip("there is no strace to record system calls: make tools installs it")
	}
	dir := filepath.Join(t.TempDir(), "node")
	record := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command(strace, "-f", "-qq", "-y", "-xx", "-s", "10000000", "-o", record, "-e",
		"trace="+traced, os.Args[0], dir, fmt.Sprint(seed), fmt.Sprint(writes))
	cmd.Env = append(os.Environ(), roles.Variable+"=trace")
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("ptrace")) || bytes.Contains(out, []byte("PTRACE")) {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 100<<20)
	begun := make(map[string]string) // calls of each thread that another one interrupted
	for lines.Scan() {
		thread, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		text = strings.TrimSpace(text)
		if head, unfinished := strings.CutSuffix(text, "<unfinished ...>"); unfinished {
			begun[thread] = strings.TrimSpace(head)
			continue
		}
		if strings.HasPrefix(text, "<... ") {
			_, tail, _ := strings.Cut(text, "resumed>")
			text = begun[thread] + tail
		}
		if c, ok := parseCall(t, text, dir); ok {
			calls = append(calls, c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls
}

var (
	callForm  = regexp.MustCompile(`(?s)^(\w+)\((.*)\)\s+= (-?\d+)(<[^>]*>)?`)
	fileOfArg = regexp.MustCompile(`^\d+<(.*)>$`)
)

func unquote(s string) []byte {
	s = strings.Trim(s, `"`)
	b := make([]byte, 0, len(s)/4)
	for len(s) >= 4 && s[:2] == `\x` {
		n, _ := strconv.ParseUint(s[2:4], 16, 8)
		b, s = append(b, byte(n)), s[4:]
	}
	return append(b, s...)
}

// nameIn returns the base name of a file in dir that an argument names; "" for dir.
func nameIn(dir, arg string) (base string, within bool) {
	if fd := fileOfArg.FindStringSubmatch(arg); fd != nil {
		arg = fd[1]
	}
	path := string(unquote(arg))
	if path == dir {
		return "", true
	}
	base, within = strings.CutPrefix(path, dir+"/")
	return base, within && base != "lock" && !strings.HasSuffix(base, "-shm")
}

// parseCall reads a line of strace. It returns no call for one that failed or concerns no file of dir.
func parseCall(t *testing.T, text, dir string) (c call, ok bool) {
	t.Helper()
	m := callForm.FindStringSubmatch(text)
	if m == nil || strings.HasPrefix(m[3], "-") {
		return c, false
	}
	args := strings.Split(m[2], ", ")
	name := func(arg string) (string, bool) { return nameIn(dir, arg) }
	number := func(arg string) int64 {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			t.Fatalf("%.200s: %v", text, err)
		}
		return n
	}
	switch m[1] {
	case "open", "openat":
		file := args[cmp.Compare(len(m[1]), len("open"))]
		if !strings.Contains(m[2], "O_CREAT") {
			return c, false
		}
		c.name = "create"
		c.path, ok = name(file)
	case "pwrite64":
		c.name, c.data = "write", unquote(args[1])
		c.path, ok = name(args[0])
		c.at = number(args[3])
		c.data = c.data[:min(int64(len(c.data)), number(m[3]))]
	case "write":
		if strings.HasPrefix(args[0], "1<") {
			return call{name: "say", path: string(unquote(args[1]))}, true
		}
		if _, ours := name(args[0]); ours {
			t.Fatalf("a write without a position: %.200s", text)
		}
	case "ftruncate":
		c.name, c.at = "truncate", number(args[1])
		c.path, ok = name(args[0])
	case "fsync", "fdatasync":
		c.name = "sync"
		c.path, ok = name(args[0])
	case "rename", "renameat", "renameat2":
		var paths []string
		for _, arg := range args {
			if strings.HasPrefix(arg, `"`) {
				paths = append(paths, arg)
			}
		}
		c.name = "rename"
		c.path, ok = name(paths[0])
		c.to, _ = name(paths[1])
	case "unlink", "unlinkat":
		c.name = "remove"
		c.path, ok = name(args[cmp.Compare(len(m[1]), len("unlink"))])
	default:
		for _, arg := range args {
			if _, ours := name(arg); ours {
				t.Fatalf("the test does not know %.200s", text)
			}
		}
	}
	return c, ok
}

// The process dies, or the power is lost, between any two system calls from the creation of a node
// on. With the power, any writes are lost that were not synced, or torn. Every confirmed write is
// there, and of one that was not all or nothing; before the creation has ended, there is no node or
// a whole one.
func TestCrashBetweenAnySystemCalls(t *testing.T) {
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	const writes = 40
	calls := trace(t, seed, writes)
	states := []replica.State{newScript(seed).state}
	for n := range writes {
		states = append(states, newScript(seed).skip(n+1))
	}
	dir := t.TempDir()
	disk := newSimDisk()
	done, asked := -1, 0
	perCall := testmode.Pick(0.5, 20)
	none, tried := 0, 0
	for n, c := range calls {
		if c.name == "say" {
			fmt.Sscanf(c.path, "begin %d", &asked)
			fmt.Sscanf(c.path, "durable %d", &done)
			continue
		}
		disk.do(c)
		for chances := perCall; chances > 0 && random.Float64() < chances; chances-- {
			power := random.IntN(3) > 0
			f := disk.killed()
			if power {
				f = otherBoot(t, disk.powerless(random))
			}
			what := fmt.Sprintf("seed %d, call %d of %d (%s %s), power lost: %v", seed, n, len(calls), c.name, c.path, power)
			content, err := f.recovered(t, dir)
			tried++
			switch {
			case err == nil:
				d := difference(content.state, states[max(done, 0)])
				if d != "" && difference(content.state, states[asked]) != "" {
					t.Errorf("%s: neither the %d writes that were durable nor the %d that were asked for: %s", what, done, asked, d)
				}
			case done < 0 && (errors.Is(err, ErrNoNode) || errors.Is(err, ErrLost)):
				none++
			default:
				t.Errorf("%s: refused: %v", what, err)
			}
		}
	}
	t.Logf("%d images of %d calls, %d without a node", tried, len(calls), none)
	if done != writes || none == 0 {
		t.Errorf("%d writes of %d, %d images without a node: that proves nothing", done, writes, none)
	}
}

// otherBoot makes the mark one of another boot.
func otherBoot(t *testing.T, f files) files {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mark")
	if err := os.WriteFile(path, f["mark"], 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := dbfolder.ReadMark(path)
	if err != nil || m == nil || m.Waiver {
		return f
	}
	m.Boot = "another run"
	return f.with("mark", []byte(m.String()))
}
