package interleave_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

var (
	inside = flag.String("inside", "", "the folder of the overlay that this test was built with; set by the test itself")
	only   = flag.String("program", "", "a regular expression: programs to explore")
	replay = flag.String("schedule", "", "a schedule to replay, of the one program that is chosen")
	most   = flag.Int("most", 0, "how many executions of a program to begin at most; 0: 1 million, 20 million with -long")
)

// executions returns how many executions of a program to begin at most.
func executions() int { return cmp.Or(*most, testmode.Pick(1_000_000, 20_000_000)) }

// TestEverySchedule builds itself with the overlay and runs all programs in there.
func TestEverySchedule(t *testing.T) {
	binary, dir := build(t, knobs)
	out, err := explore(t, binary, dir, *only, *replay)
	t.Log("\n" + out)
	if err != nil {
		t.Error(err)
	}
}

func build(t *testing.T, patches []patch) (binary, dir string) {
	t.Helper()
	binary, dir, err := compile(t, patches)
	if err != nil {
		t.Fatal(err)
	}
	return binary, dir
}

// compile builds this test with the files of package semaphore rewritten and patched.
func compile(t *testing.T, patches []patch) (binary, dir string, err error) {
	dir = t.TempDir()
	folder, err := filepath.Abs("../..")
	if err != nil {
		return "", "", err
	}
	list, err := overlay(folder, dir, patches)
	if err != nil {
		return "", "", err
	}
	binary = filepath.Join(dir, "interleave.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o",
		binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "",
			fmt.Errorf("package semaphore does not build with this package in place of %v; add what is missing\n%s",
				slices.Sorted(maps.Keys(shimmed)), out)
	}
	return binary, dir, nil
}

// explore runs the binary of build.
func explore(t *testing.T, binary, dir, programs, schedule string) (string, error) {
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestInside$", "-test.v", "-inside", dir,
		"-program", programs, "-schedule", schedule, "-most", strconv.Itoa(executions()),
		fmt.Sprintf("-long=%t", testmode.Long()))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// TestInside explores the programs. It works only as built by TestEverySchedule.
func TestInside(t *testing.T) {
	if *inside == "" {
		t.Skip("TestEverySchedule builds and runs it")
	}
	interleave.Source = source
	chosen := regexp.MustCompile(*only)
	all := programs
	if testmode.Long() {
		all = append(all, large...)
	}
	for _, p := range all {
		if !chosen.MatchString(p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			if *replay == "" {
				p.explore(t)
				return
			}
			failure, err := interleave.Replay(p.explorable(), *replay)
			if err != nil {
				t.Fatal(err)
			}
			t.Errorf("wrong: %s\n%s", failure.What, failure.Story)
		})
	}
}

func (p program) explore(t *testing.T) {
	begun := time.Now()
	r := interleave.Explore(p.explorable(), executions())
	t.Logf("%d states, %d executions, %d of them to the end, up to %d operations, %d passes, %s",
		r.States, r.Executions, r.Finished, r.Operations, r.Passes, time.Since(begun).Round(time.Millisecond))
	switch {
	case r.Failure != nil:
		t.Errorf("wrong: %s\nreplay: -program '^%s$' -schedule %s\n%s", r.Failure.What, p.name, r.Failure.Schedule,
			r.Failure.Story)
	case r.Partial:
		t.Errorf("more than %d executions: choose a smaller program, or a larger -most", executions())
	case r.States == 0:
		t.Errorf("there was no choice: does package semaphore use the shim?")
	}
}

// source returns a line of package semaphore.
func source(file string, line int) string {
	text, err := os.ReadFile(filepath.Join(*inside, filepath.Base(file)+originals))
	if err != nil {
		return ""
	}
	lines := strings.Split(string(text), "\n")
	if line > len(lines) {
		return ""
	}
	return lines[line-1]
}
