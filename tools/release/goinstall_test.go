package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

const (
	modulePath  = "github.com/lockkeeper/lockkeeper"
	testVersion = "v0.1.0-test"
)

// writeProxy makes a module proxy in a folder, with the commit that is checked out as the one
// version.
func writeProxy(t *testing.T, r *release, folder string) {
	t.Helper()
	versions := filepath.Join(folder, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("list", []byte(testVersion+"\n"))
	info, err := json.Marshal(map[string]any{"Version": testVersion, "Time": r.date})
	if err != nil {
		t.Fatal(err)
	}
	write(testVersion+".info", info)
	mod, err := os.ReadFile(filepath.Join(r.source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(testVersion+".mod", mod)
	packed, err := os.Create(filepath.Join(versions, testVersion+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	err = modzip.CreateFromVCS(packed, module.Version{Path: modulePath, Version: testVersion}, r.source, "HEAD", "")
	if err != nil {
		t.Fatal(err)
	}
}

// "go install" makes an lk that knows its version without our flags. It begins with empty caches; the
// module comes from a proxy in a folder, and our dependencies from what this machine has downloaded, or
// else from its proxy.
func TestGoInstall(t *testing.T) {
	r := theRelease(t)
	folder := t.TempDir()
	writeProxy(t, r, filepath.Join(folder, "proxy"))
	downloaded, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules, proxy, _ := strings.Cut(strings.TrimSpace(string(downloaded)), "\n")
	env := append(os.Environ(),
		"HOME="+folder,
		"GOBIN="+filepath.Join(folder, "bin"),
		"GOCACHE="+filepath.Join(folder, "cache"),
		"GOMODCACHE="+filepath.Join(folder, "modules"),
		"GOPROXY=file://"+filepath.Join(folder, "proxy")+",file://"+filepath.Join(modules, "cache", "download")+","+proxy,
		"GOSUMDB=off",         // our version has no sum there
		"GOFLAGS=-modcacherw", // so that the folder can be removed
		"GOTOOLCHAIN=local",   // that of the tests
		"LOCKKEEPER_URL=sqlite:"+filepath.Join(folder, "locks.db"),
	)
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = folder, env
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said)
		}
		return string(said)
	}
	began := time.Now()
	run("go", "install", modulePath+"/cmd/lk@"+testVersion)
	lk := filepath.Join(folder, "bin", "lk")
	if said := run(lk, "run", "demo/hello", "--", "echo", "the lock is mine"); said != "the lock is mine\n" {
		t.Errorf("the first lock: %q", said)
	}
	t.Logf("time from go install with empty caches to the first lock: %s", time.Since(began).Round(time.Second))
	if said := run(lk, "version"); !strings.HasPrefix(said, "lk "+testVersion+" (go1.") {
		t.Errorf("lk version: %q, want %s", said, testVersion)
	}
	// The latest version is this one, too. Everything is built already.
	run("go", "install", modulePath+"/cmd/lk@latest")
}
