// Command release builds what people install: archives for Linux, macOS and Windows, packages for
// Debian and Red Hat, a Homebrew formula, and the checksums of all of them.
//
//	go run . -out ../../dist                 the commit that is checked out
//	go run . -out DIR -targets linux/amd64   for one system alone
//
// The version is the tag of the commit. A commit without a tag gets a version below the next
// release: 0.0.0-dev.TIME.gCOMMIT, and .dirty behind it if files differ from the commit. All files
// have the time of the commit, so two runs on one commit with one version of Go make the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	out := flag.String("out", "", "`DIR` for the files: it must be empty, or not exist")
	only := flag.String("targets", "", "comma-separated `LIST` of OS/ARCH (default: all)")
	flag.Parse()
	if err := run(*out, *only, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, only string, rest []string) error {
	if out == "" || len(rest) > 0 {
		return errors.New("name one directory for the files: -out DIR")
	}
	wanted, err := parseTargets(only)
	if err != nil {
		return err
	}
	r, err := newRelease(out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	return r.make(wanted)
}

// release is one version of lk, and where its files are made.
type release struct {
	source  string    // the checkout
	out     string    // what people download
	work    string    // everything else: binaries, pages
	version string    // semantic version, without the v of the tag
	commit  string    // in full
	date    time.Time // of the commit, in UTC
}

// newRelease reads the version from git. It makes the directory out if there is none, and refuses
// one with files.
func newRelease(out string) (*release, error) {
	top, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r := &release{source: top}
	if r.version, r.date, err = describe(top); err != nil {
		return nil, err
	}
	if r.commit, err = git(top, "rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	switch entries, err := os.ReadDir(r.out); {
	case err != nil:
		return nil, err
	case len(entries) > 0:
		return nil, fmt.Errorf("%s is not empty: remove it, or name another directory", r.out)
	}
	r.work, err = os.MkdirTemp("", "lockkeeper-release")
	return r, err
}

// make builds everything for the wanted targets.
func (r *release) make(wanted []target) error {
	if err := r.document(); err != nil {
		return err
	}
	if err := r.linkTexts(); err != nil {
		return err
	}
	for i, t := range wanted {
		// With an empty build cache each takes minutes.
		fmt.Fprintf(os.Stderr, "release: building for %s, %d of %d\n", t, i+1, len(wanted))
		if err := r.compile(t); err != nil {
			return err
		}
		if err := r.archive(t); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.packages(t); err != nil {
				return err
			}
		}
	}
	if err := r.formula(); err != nil {
		return err
	}
	if err := r.checksums(); err != nil {
		return err
	}
	files, err := os.ReadDir(r.out)
	for _, f := range files {
		fmt.Println(filepath.Join(r.out, f.Name()))
	}
	return err
}

// describe returns the version of the commit that is checked out, and the commit's time.
func describe(top string) (version string, date time.Time, err error) {
	commit, err := git(top, "log", "-1", "--format=%ct %h")
	if err != nil {
		return "", date, err
	}
	seconds, short, _ := strings.Cut(commit, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", date, fmt.Errorf("git log: the time of the commit is %q: %w", seconds, err)
	}
	date = time.Unix(unix, 0).UTC()
	// A hash of digits alone may begin with 0, which no number in a semantic version does: the g makes it text.
	version = fmt.Sprintf("0.0.0-dev.%s.g%s", date.Format("20060102150405"), short)
	switch changed, err := git(top, "status", "--porcelain", "--untracked-files=no"); {
	case err != nil:
		return "", date, err
	case changed != "":
		return version + ".dirty", date, nil
	}
	if tag, err := git(top, "describe", "--tags", "--exact-match", "--match", "v[0-9]*"); err == nil {
		version = strings.TrimPrefix(tag, "v")
	}
	return version, date, nil
}

// git returns what a git command prints, without its newline.
func git(folder string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = folder
	printed, err := cmd.Output()
	if err != nil {
		if failed := new(exec.ExitError); errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(failed.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(printed)), nil
}
