package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func quietApp() *app { return &app{stdout: io.Discard, stderr: io.Discard} }

// deployed reads a file of deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The commands of the unit and of the image exist, and so do their flags.
func TestDeployedCommands(t *testing.T) {
	var commands [][]string
	for line := range strings.Lines(deployed(t, "lockkeeper.service")) {
		if start, found := strings.CutPrefix(line, "ExecStart="); found {
			commands = append(commands, strings.Fields(start))
		}
	}
	for _, found := range regexp.MustCompile(`(?m)CMD (\[.*\])$`).FindAllStringSubmatch(deployed(t, "Dockerfile"), -1) {
		var words []string
		if err := json.Unmarshal([]byte(found[1]), &words); err != nil {
			t.Fatal(err)
		}
		if words[0] != "/lk" {
			words = append([]string{"/lk"}, words...)
		}
		commands = append(commands, words)
	}
	if len(commands) != 3 {
		t.Fatalf("deploy starts %d commands, want the unit's, the image's and its health check: %q", len(commands), commands)
	}
	root := quietApp().newRoot()
	for _, words := range commands {
		verb, rest, err := root.Find(words[1:])
		if err != nil || verb == root {
			t.Errorf("%q: %v", words, err)
			continue
		}
		if err := verb.ParseFlags(rest); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The example configuration is valid, as it is and with all lines uncommented.
func TestDeployedConfig(t *testing.T) {
	example := deployed(t, "lockkeeper.yaml")
	all := regexp.MustCompile(`(?m)^#([a-z_]+:|  )`).ReplaceAllString(example, "$1")
	for kind, text := range map[string]string{"as it is": example, "uncommented": all} {
		path := filepath.Join(t.TempDir(), "lockkeeper.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readConfig(path)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		a := quietApp()
		o := &serveOptions{config: path}
		o.applyConfig(a, a.newServe())
		if len(a.bad.list) > 0 {
			t.Errorf("%s: %s", kind, a.bad.Error())
		}
		if uncommented := kind == "uncommented"; uncommented != (len(c.Rules) == 3 && len(c.Quotas) == 1 &&
			len(c.Settings) == 14) {
			t.Errorf("%s: %d rules, %d quotas, %d settings", kind, len(c.Rules), len(c.Quotas), len(c.Settings))
		}
	}
}
