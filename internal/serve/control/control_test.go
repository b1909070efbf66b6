package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// serve serves a new folder until the test ends, and returns the folder.
func serve(t *testing.T, verbs map[string]Verb) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "control") // t.TempDir has long names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	serveFolder(t, folder, verbs)
	return folder
}

// serveFolder serves until the test ends or stop is called.
func serveFolder(t *testing.T, folder string, verbs map[string]Verb) (stop func()) {
	t.Helper()
	l, err := Listen(folder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, verbs, nil) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestCallReturnsTheResultOfTheVerb(t *testing.T) {
	folder := serve(t, map[string]Verb{
		"double": func(_ context.Context, arguments json.RawMessage) (any, error) {
			var n int
			err := json.Unmarshal(arguments, &n)
			return 2 * n, err
		},
		"nothing": func(context.Context, json.RawMessage) (any, error) { return nil, nil },
	})
	var got int
	if err := Call(t.Context(), folder, "double", 21, &got); err != nil || got != 42 {
		t.Errorf("%d, %v", got, err)
	}
	if err := Call(t.Context(), folder, "nothing", nil, nil); err != nil {
		t.Error(err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	given := map[string]error{
		"invalid": lockkeeper.Invalid("no such node"),
		"unavailable": fmt.Errorf("asking: %w", &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Cause: errors.New("no leader")}),
		"other": errors.New("the disk is on fire"),
	}
	verbs := make(map[string]Verb)
	for name, err := range given {
		verbs[name] = func(context.Context, json.RawMessage) (any, error) { return nil, err }
	}
	folder := serve(t, verbs)
	for name, want := range map[string]struct {
		sentinel error
		text     string
	}{
		"invalid":     {lockkeeper.ErrInvalid, "no such node"},
		"unavailable": {lockkeeper.ErrUnavailable, "no leader"},
		"other":       {nil, "the disk is on fire"},
		"unknown":     {lockkeeper.ErrInvalid, "use lk of the server's version"},
	} {
		err := Call(t.Context(), folder, name, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want.text) || want.sentinel != nil && !errors.Is(err, want.sentinel) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerbEndsWithItsCaller(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	folder := serve(t, map[string]Verb{"wait": func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-begun
		cancel(errors.New("the operator gave up"))
	}()
	err := Call(ctx, folder, "wait", nil, nil)
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "the operator gave up") {
		t.Errorf("%v", err)
	}
	<-ended
}

func TestVerbEndsWithTheServer(t *testing.T) {
	folder, begun := serve(t, nil), make(chan struct{})
	stop := serveFolder(t, folder, map[string]Verb{"wait": func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	answered := make(chan error, 1)
	go func() { answered <- Call(t.Context(), folder, "wait", nil, nil) }()
	<-begun
	stop()
	if err := <-answered; !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestFolderWithoutServer(t *testing.T) {
	verbs := map[string]Verb{"one": func(context.Context, json.RawMessage) (any, error) { return 1, nil }}
	folder, err := os.MkdirTemp("", "control")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := Call(t.Context(), folder, "one", nil, nil); !errors.Is(err, ErrNoServer) {
		t.Errorf("no socket: %v", err)
	}
	serveFolder(t, folder, verbs)()
	if err := Call(t.Context(), folder, "one", nil, nil); !errors.Is(err, ErrNoServer) {
		t.Errorf("the socket of a process that has ended: %v", err)
	}
	serveFolder(t, folder, verbs)
	if err := Call(t.Context(), folder, "one", nil, nil); err != nil {
		t.Errorf("the socket in its place: %v", err)
	}
}

func TestSocketIsForItsOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode there")
	}
	folder := serve(t, nil)
	info, err := os.Stat(filepath.Join(folder, socketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(folder, makingName)); err == nil {
		t.Errorf("%s is left", makingName)
	}
}

func TestLongFolderIsRefused(t *testing.T) {
	folder := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(folder)
	for _, err := range []error{err, CheckFolder(folder), Call(t.Context(), folder, "x", nil, nil)} {
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "a shorter name") {
			t.Errorf("%v", err)
		}
	}
}

func TestHostileRequestsAreRefused(t *testing.T) {
	folder := serve(t, nil)
	for name, text := range map[string]string{
		"no JSON":      "hello\n",
		"another form": "[1]\n",
		"too long":     strings.Repeat("x", maxRequest) + "\n",
		"cut":          `{"verb`,
	} {
		conn, err := net.Dial("unix", filepath.Join(folder, socketName))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // the server may have closed it
		_ = conn.(*net.UnixConn).CloseWrite()
		var r response
		if err := json.NewDecoder(conn).Decode(&r); err == nil && r.Code != "invalid" {
			t.Errorf("%s: %+v", name, r)
		}
		conn.Close()
	}
	if err := Call(t.Context(), folder, "x", nil, nil); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("the next request: %v", err)
	}
}
