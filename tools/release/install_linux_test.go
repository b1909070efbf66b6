package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience bounds each command of these tests. Most take seconds, on a busy machine minutes.
const patience = 15 * time.Minute

// asRoot returns a command that runs as root, by sudo if this is another user.
func asRoot(ctx context.Context, args ...string) *exec.Cmd {
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n", "--preserve-env=PATH"}, args...)
	}
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// throwaway runs one of the scripts as root on a throwaway copy of this machine's files. It returns
// the files that the script left behind, and logs its lines about times.
func throwaway(t *testing.T, script string, args ...string) (left []string) {
	t.Helper()
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	scripts, err := filepath.Abs("scripts")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"unshare", "--mount", "--propagation", "private", filepath.Join(scripts, "throwaway"), folder,
		filepath.Join(scripts, script)}
	said, err := asRoot(ctx, append(command, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said)
	}
	for _, line := range regexp.MustCompile(`(?m)^time .*$`).FindAllString(string(said), -1) {
		t.Log(line)
	}
	_, changed, found := strings.Cut(string(said), "\nCHANGED\n")
	if !found {
		t.Fatalf("%s does not list what it changed:\n%s", script, said)
	}
	return strings.Fields(changed)
}

// ours are files that a removed package must not leave.
var ours = regexp.MustCompile(`/(lk|lk-[\w-]+|lk\.\w+|_lk)$|lockkeeper`)

// The package of Debian does what the README says on a machine, serves, is for the members of its
// group, keeps locks across an upgrade, is not removed while locks are in use, and leaves nothing.
func TestDebianPackage(t *testing.T) {
	r := theRelease(t)
	session := filepath.Join(t.TempDir(), "lk.test")
	build := exec.Command("go", "test", "-c", "-o", session, "./cmd/lk")
	build.Dir = r.source
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	readme := "cd " + filepath.Join(r.source, "cmd", "lk") + " && LK_INSTALLED=/usr/bin " + session +
		" -test.v -test.run '^TestReadmeSessions$' | tee /tmp/session && grep -q '^--- PASS: TestReadmeSessions' /tmp/session"
	left := throwaway(t, "debian", r.made(t, "*.deb"), "bash", "-c", readme)
	for _, name := range left {
		known := strings.HasPrefix(name, "/tmp/") || strings.HasPrefix(name, "/var/log/") ||
			strings.HasPrefix(name, r.source+"/") || name == "/var/lib/systemd/deb-systemd-helper-enabled"
		if ours.MatchString(name) && !known {
			t.Errorf("%s is left after the purge", name)
		}
	}
	if len(left) == 0 {
		t.Error("the purge left no file at all, not even the log of dpkg: this test looks in the wrong place")
	}
}

// The package of Red Hat installs, runs and is removed by rpm; its locks stay.
func TestRedHatPackage(t *testing.T) {
	r := theRelease(t)
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Fatal("there is no rpm: tools/install packages installs it")
	}
	for _, name := range throwaway(t, "redhat", r.made(t, "*.rpm")) {
		known := strings.HasPrefix(name, "/tmp/") || strings.HasPrefix(name, "/var/lib/lockkeeper-local/")
		if ours.MatchString(name) && !known {
			t.Errorf("%s is left after the removal", name)
		}
	}
}

// An archive becomes a first lock by two commands.
func TestArchiveToFirstLock(t *testing.T) {
	r := theRelease(t)
	folder := t.TempDir()
	began := time.Now()
	cmd := exec.Command("sh", "-ec", `
		tar -xzf "$1" --strip-components=1
		./lk run demo/hello -- echo the lock is mine`, "sh", r.made(t, archiveName(target{"linux", runtime.GOARCH})))
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "LOCKKEEPER_URL=sqlite:"+filepath.Join(folder, "locks.db"))
	said, err := cmd.CombinedOutput()
	if err != nil || string(said) != "the lock is mine\n" {
		t.Fatalf("%s: %v", said, err)
	}
	t.Logf("time from an archive to the first lock: %d ms", time.Since(began).Milliseconds())
}
