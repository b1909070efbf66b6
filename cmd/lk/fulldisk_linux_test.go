package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
)

// TestLookingAtAServerWithAFullDisk: read-only verbs show the last safe state and its age. The doctor
// names the disk. The server logs the full disk once, and its end once.
func TestLookingAtAServerWithAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	s := startServer(t, t.TempDir(), "--data", filepath.Join(disk, "locks"))
	e, err := lockkeeper.Open(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ann := lockkeeper.Label{As: "ann"}
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Hour, Label: ann}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := lockkeeper.Want{
		ID: 1, Label: ann, Targets: []lockkeeper.Target{{Path: "site/eu", Mode: lockkeeper.ModeExclusive}},
	}
	if _, err := e.Claim(t.Context(), lease.Key, want); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	if err := e.End(t.Context(), lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, s.log, "the disk is full")
	for _, verb := range []string{"ls", "why", "stats"} {
		out, said, err := runAt(s.url, verb)
		if err != nil || !strings.Contains(out, "site/eu") && verb != "why" || strings.Count(said, "\n") > 2 ||
			!strings.Contains(said, "lk: as of ") || !strings.Contains(said, "the disk is full") {
			t.Errorf("lk %s: %v\n%s%s", verb, err, out, said)
		}
	}
	out, said, err := runAt(s.url, "doctor")
	code := new(exec.ExitError)
	if !errors.As(err, &code) || code.ExitCode() != exitFailure || !strings.Contains(out, "the disk is full") ||
		strings.Contains(out, "deadline") || strings.Contains(out, "see that it runs") {
		t.Errorf("lk doctor: %v\n%s%s", err, out, said)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	awaitText(t, s.log, "recovered")
	if out, said, err := runAt(s.url, "ls"); err != nil || out != "" || strings.Contains(said, "as of") {
		t.Errorf("with room again, lk ls: %v\n%s%s", err, out, said)
	}
	s.stop(t)
	log, err := os.ReadFile(s.log)
	if err != nil || strings.Count(string(log), "the disk is full") != 1 || strings.Count(string(log), "recovered") != 1 {
		t.Errorf("the log says it more than once (%v):\n%s", err, log)
	}
}

// fillDisk leaves no room on the disk of the file.
func fillDisk(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
}

// awaitText waits until the file contains the text.
func awaitText(t *testing.T, file, text string) {
	t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not in the log (%v):\n%s", text, err, content)
		}
	}
}

// runAt runs lk with an engine.
func runAt(url string, args ...string) (out, said string, err error) {
	var stdout, stderr strings.Builder
	cmd := exec.Command("lk", args...)
	cmd.Env = append(os.Environ(), engineVariable+"="+url)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}
