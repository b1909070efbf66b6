package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
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
	commandsExist(t, commands)
}

// commandsExist checks that lk has the commands, and their flags.
func commandsExist(t *testing.T, commands [][]string) {
	t.Helper()
	for _, words := range commands {
		root := quietApp().newRoot("")
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

// composed is a part of a Compose file.
type composed struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
		Volumes     []string
	}
	Volumes map[string]any
}

// pods is a part of a Kubernetes object that makes pods.
type pods struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
					Env  []struct{ Name string }
				}
			}
		}
	}
}

// The clusters for Compose and for Kubernetes are valid YAML. Each runs commands that exist, with the
// variables that it sets.
func TestDeployedClusters(t *testing.T) {
	var compose composed
	if err := yaml.Unmarshal([]byte(deployed(t, "compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for name, s := range compose.Services {
		commands = append(commands, append([]string{"/lk"}, s.Command...))
		if _, found := compose.Volumes[name]; !found || s.Volumes[0] != name+":/data" {
			t.Errorf("compose.yaml: %s has the volumes %q, want one of its own", name, s.Volumes)
		}
		joins := slices.Contains(s.Command, "--join=")
		if token := s.Environment[quorumlock.TokenVariable]; joins != (token != "") {
			t.Errorf("compose.yaml: %s joins: %t, by the token %q", name, joins, token)
		}
	}
	for object := yaml.NewDecoder(strings.NewReader(deployed(t, "kubernetes.yaml"))); ; {
		var p pods
		if err := object.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Spec.Template.Spec.Containers {
			commands = append(commands, append([]string{"/lk"}, c.Args...))
			for _, used := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
				if !slices.ContainsFunc(c.Env, func(e struct{ Name string }) bool { return e.Name == used[1] }) {
					t.Errorf("kubernetes.yaml: %s uses %s, which it does not set", p.Kind, used[1])
				}
			}
		}
	}
	if len(commands) != 5 {
		t.Fatalf("%d commands, want those of three services, a Job and a StatefulSet: %q", len(commands), commands)
	}
	commandsExist(t, commands)
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
