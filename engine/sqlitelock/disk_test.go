package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// sqliteError is an error of SQLite with that code, which nobody else can make.
func sqliteError(code int) error {
	e := &sqlite.Error{}
	fields := reflect.ValueOf(e).Elem()
	*(*string)(unsafe.Pointer(fields.FieldByName("msg").UnsafeAddr())) = sqlite.ErrorCodeString[code]
	*(*int)(unsafe.Pointer(fields.FieldByName("code").UnsafeAddr())) = code
	return e
}

var diskErrors = []struct {
	code  int
	words string
}{
	{sqlite3.SQLITE_FULL, "the disk is full"},
	{sqlite3.SQLITE_IOERR | 3<<8, "could not read or write"}, // when writing
	{sqlite3.SQLITE_FULL, "the disk is full"},
	{sqlite3.SQLITE_IOERR | 4<<8, "could not read or write"}, // when syncing
	{sqlite3.SQLITE_READONLY, "can't be opened for writing"},
}

// An epoch is drawn for each attach that was tried, so it may have one more.
var epochs = regexp.MustCompile(`(open|closed) \d+|^(\d+ \d+) \d+`)

// Whichever statement fails, before it is done or after: the error says that the outcome is
// unknown, and why. A repetition of the call has the same result as without the failure, and every
// answered call is in the file.
func TestDiskFailsAtEveryStatement(t *testing.T) {
	var after []string
	path := file(t)
	var moments atomic.Int64
	counting := registerFaults(func(bool, string) error { moments.Add(1); return nil })
	e, err := openHere(path, options{careless: true, driver: counting})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, step := range script(e) {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		after = append(after, epochs.ReplaceAllString(rowsOf(path), "$1$2"))
	}
	began := time.Now()
	const bound = 20 * time.Second
	for i, moment := range everyMoment(int(moments.Load())) {
		if time.Since(began) > bound {
			t.Logf("failed at %d of %d moments in %s", i, moments.Load(), bound)
			break
		}
		failure := diskErrors[i%len(diskErrors)]
		failsAt(t, moment, failure.code, failure.words, after)
	}
}

// failsAt lives the script with a failure at one moment.
func failsAt(t *testing.T, moment, code int, words string, after []string) {
	t.Helper()
	var moments atomic.Int64
	driver := registerFaults(func(bool, string) error {
		if moments.Add(1) == int64(moment) {
			return sqliteError(code)
		}
		return nil
	})
	path := file(t)
	repeated := func(what string, do func() error) {
		err := do()
		if err != nil {
			if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), words) {
				t.Fatalf("moment %d, %s: got %v, want ErrUnavailable and %q", moment, what, err, words)
			}
			if err = do(); errors.Is(err, lockkeeper.ErrNotHeld) || errors.Is(err, lockkeeper.ErrSession) {
				err = nil // it was done: thaws and departures are not remembered
			}
		}
		if err != nil {
			t.Fatalf("moment %d, %s repeated: %v", moment, what, err)
		}
	}
	var e *Engine
	repeated("open", func() (err error) {
		e, err = openHere(path, options{careless: true, driver: driver})
		return err
	})
	defer e.Close()
	for i, step := range script(e) {
		repeated(fmt.Sprint("step ", i), step)
		if rows := epochs.ReplaceAllString(rowsOf(path), "$1$2"); rows != after[i] {
			t.Fatalf("moment %d, after step %d: the rows say\n%s\nwant\n%s", moment, i, rows, after[i])
		}
	}
}

// While nothing can be written, holders know that they lost their holds before another session is
// granted them; then everything goes on.
func TestHolderKnowsWhenDiskFails(t *testing.T) {
	path := file(t)
	var failing atomic.Bool
	driver := registerFaults(func(before bool, statement string) error {
		if failing.Load() && statement == "COMMIT" {
			return sqliteError(sqlite3.SQLITE_FULL)
		}
		return nil
	})
	e, err := openHere(path, options{driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	c := lockkeeper.New(e, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	defer c.Close()
	hold, err := c.Lock(bounded(t), "db")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := testClient(t, path)
	_, granted := waitFor(t, other, "db")
	failing.Store(true)
	var next *lockkeeper.Hold
	select {
	case next = <-granted:
	case <-bounded(t).Done():
		t.Fatal("nobody got it")
	}
	select {
	case <-hold.Done():
	default:
		t.Error("somebody else has it, and the holder does not know")
	}
	if err := hold.Err(); !errors.Is(err, lockkeeper.ErrLost) || !errors.Is(err, lockkeeper.Unreachable) {
		t.Errorf("the holder was told %v, want that the engine can't be reached", err)
	}
	failing.Store(false)
	if err := next.Release(bounded(t)); err != nil {
		t.Error(err)
	}
	again, err := c.Lock(bounded(t), "db")
	if err != nil {
		t.Fatalf("after there is room again: %v", err)
	}
	if again.Fence() <= next.Fence() {
		t.Errorf("fence %d after %d", again.Fence(), next.Fence())
	}
}

// cramped uses a file until there is no room, and again when there is. All grants must be in the
// file, and nothing else.
func cramped(e *Engine, cramp func() (relax func() error, err error)) (granted int, err error) {
	ctx := context.Background()
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: "a", TTL: time.Hour}, nil)
	if err != nil {
		return granted, err
	}
	relax, err := cramp()
	if err != nil {
		return granted, err
	}
	note := strings.Repeat("n", lockkeeper.MaxNoteBytes)
	var failed error
	for failed == nil && granted < 20_000 {
		w := exclusive(uint64(granted+1), lockkeeper.Path(fmt.Sprint("p", granted)))
		w.Note = note
		var st lockkeeper.Status
		if st, failed = e.Claim(ctx, lease.Key, w); failed == nil && st.State == lockkeeper.Held {
			granted++
		}
	}
	if !errors.Is(failed, lockkeeper.ErrUnavailable) || !strings.Contains(failed.Error(), "disk") ||
		errors.Is(failed, lockkeeper.ErrNotAcquired) {
		return granted, fmt.Errorf("after %d grants: %v, want ErrUnavailable because of the disk", granted, failed)
	}
	if err := relax(); err != nil {
		return granted, err
	}
	if _, err := e.Renew(ctx, lease.Key); err != nil {
		return granted, fmt.Errorf("with room again: %w", err)
	}
	held := 0
	for st, err := range e.List(ctx, lockkeeper.Query{}) {
		if err != nil {
			return granted, err
		}
		if st.State == lockkeeper.Held {
			held++
		}
	}
	if held != granted {
		return granted, fmt.Errorf("%d were granted, %d are held", granted, held)
	}
	if _, err := e.Claim(ctx, lease.Key, exclusive(uint64(granted+1), "another")); err != nil {
		return granted, err
	}
	return granted, e.Close()
}

// A limit on the size of files is met as a full disk is, by an error of the system.
func TestFileSizeLimit(t *testing.T) {
	p := roles.Start(t, "cramped", file(t))
	t.Logf("failed after %s grants", p.Read("cramped"))
	p.Wait()
}

// fillDisk fills the disk of a folder but for a bit, and returns what makes room again.
func fillDisk(folder string) (func() error, error) {
	name := filepath.Join(folder, "filler")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	written := int64(0)
	for block := make([]byte, 4096); err == nil; written += int64(len(block)) {
		_, err = f.Write(block)
	}
	if err := f.Truncate(max(0, written-200<<10)); err != nil {
		return nil, err
	}
	return func() error { return os.Remove(name) }, nil
}
