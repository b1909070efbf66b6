package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// target is an operating system and an architecture, as Go names them.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// targets are all that a release has.
var targets = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// parseTargets reads a comma-separated list; an empty one names all targets.
func parseTargets(list string) ([]target, error) {
	if list == "" {
		return targets, nil
	}
	var wanted []target
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("no target %q: there are %v", name, targets)
		}
		wanted = append(wanted, targets[i])
	}
	return wanted, nil
}

// binary is where the program of a target is built.
func (r *release) binary(t target) string {
	name := "lk"
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.work, t.os+"-"+t.arch, name)
}

// compile builds the program of a target. It depends on no C library.
func (r *release) compile(t target) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X main.stamp=v"+r.version, "-o", r.binary(t), "./cmd/lk")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w\n%s", t, err, said)
	}
	return nil
}

// shells are the shells with completions, and the file names that their users expect.
var shells = []struct{ shell, file string }{
	{"bash", "lk.bash"},
	{"zsh", "_lk"},
	{"fish", "lk.fish"},
	{"powershell", "lk.ps1"},
}

func (r *release) manFolder() string        { return filepath.Join(r.work, "man") }
func (r *release) completionFolder() string { return filepath.Join(r.work, "completions") }

// document has the program of this machine write its manual pages and completions.
func (r *release) document() error {
	host := target{runtime.GOOS, runtime.GOARCH}
	if err := r.compile(host); err != nil {
		return err
	}
	lk := func(args ...string) ([]byte, error) {
		cmd := exec.Command(r.binary(host), args...)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.date.Unix(), 10))
		text, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("lk %s: %w", strings.Join(args, " "), err)
		}
		return text, nil
	}
	if _, err := lk("man", r.manFolder()); err != nil {
		return err
	}
	if err := os.Mkdir(r.completionFolder(), 0o755); err != nil {
		return err
	}
	for _, s := range shells {
		script, err := lk("completion", s.shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.completionFolder(), s.file), script, 0o644); err != nil {
			return err
		}
	}
	return nil
}
