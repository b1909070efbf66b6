package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/disklock"
)

// asWritten is where docs/http.md has its server.
const asWritten = "http://127.0.0.1:7421"

// documented are the blocks of a kind in docs/http.md.
func documentedBlocks(t *testing.T, kind string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, block := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/http.md has no block of %s", kind)
	}
	return blocks
}

// bash runs a script, with curl as quiet as its answers are, and ends what it leaves.
func (v *village) bash(dir, script string) string {
	v.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		v.Skip("curl is not installed")
	}
	if err := os.WriteFile(filepath.Join(dir, ".curlrc"), []byte("silent\nshow-error\n"), 0o600); err != nil {
		v.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(v.Context(), time.Minute)
	defer cancel()
	out, err := os.CreateTemp(dir, "out")
	if err != nil {
		v.Fatal(err)
	}
	defer out.Close()
	c := exec.CommandContext(ctx, "bash")
	c.Dir, c.Env = dir, append(os.Environ(), "CURL_HOME="+dir, "no_proxy=*", "L="+v.url+"/v1")
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(strings.ReplaceAll(script, asWritten, v.url)), out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		v.Fatal(err)
	}
	defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	if err := c.Wait(); err != nil {
		v.Error(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		v.Fatal(err)
	}
	return string(text)
}

// onDisk is a server as "lk serve" begins one: fences rise for good.
func onDisk(t *testing.T) *village {
	t.Helper()
	e, err := disklock.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return villageOf(t, e)
}

// TestHTTPDocument: every session in docs/http.md, from top to bottom, has the answers
// that are there.
func TestHTTPDocument(t *testing.T) {
	v := onDisk(t)
	var script bytes.Buffer
	var commands, expected []string
	for line := range strings.Lines(strings.Join(documentedBlocks(t, "console"), "")) {
		command, ok := strings.CutPrefix(line, "$ ")
		if ok {
			commands, expected = append(commands, command), append(expected, "")
			fmt.Fprintf(&script, "%secho; echo '=====' %d\n", command, len(commands))
		} else {
			expected[len(expected)-1] += line
		}
	}
	out := v.bash(t.TempDir(), script.String())
	for i, command := range commands {
		said, rest, ok := strings.Cut(out, fmt.Sprintf("\n===== %d\n", i+1))
		if out = rest; !ok {
			t.Fatalf("the shell came to its end before: %s\n%s", command, said)
		}
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(expected[i])), `\.\.\.`, "(?s:.*)")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(said)) {
			t.Errorf("$ %sdocs/http.md has\n%sbut it says\n%s", command, expected[i], said)
		}
	}
}
