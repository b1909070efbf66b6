package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each verb has 2 to 6 examples, each under a line that says its purpose. All verbs and flags in
// them exist.
func TestEveryVerbHasExamples(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	root := a.newRoot("")
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			look(sub)
		}
		if c.IsAdditionalHelpTopicCommand() || c.Name() == "guard" { // lk run's own, not for people
			return
		}
		if n := strings.Count(c.Example, "  # "); n < 2 || n > 6 {
			t.Errorf("%s has %d examples with a line of comment, want 2 to 6", c.CommandPath(), n)
		}
		for line := range strings.Lines(c.Example) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "# ") {
				continue
			}
			for _, wrong := range unknownIn(root, line) {
				t.Errorf("%s: the example %q has %s, which does not exist", c.CommandPath(), line, wrong)
			}
		}
	}
	look(root)
}

// unknownIn lists the verbs and flags of lk in a line of a shell that lk does not have.
func unknownIn(root *cobra.Command, line string) (wrong []string) {
	words := strings.Fields(line)
	for i, word := range words {
		if word != "lk" && !strings.HasSuffix(word, "(lk") || i+1 == len(words) {
			continue
		}
		verb, unknown := subjectOfHelp(root, words[i+1:i+2])
		if unknown != "" {
			wrong = append(wrong, unknown)
			continue
		}
		verb, _ = subjectOfHelp(verb, words[i+2:])
		for _, arg := range words[i+2:] {
			if arg == "--" || strings.ContainsAny(arg, "|>") {
				break
			}
			name, long := strings.CutPrefix(arg, "--")
			name, _, _ = strings.Cut(name, "=")
			if long && name != "help" && verb.Flag(name) == nil {
				wrong = append(wrong, arg)
			}
		}
	}
	return wrong
}

// The test above must find what is wrong.
func TestUnknownIn(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	for line, want := range map[string][]string{
		"lk run --try db -- lk ls --nosuch":        {"--nosuch"},
		"lk ls --json | jq --raw":                  nil,
		"source <(lk completion bash)":             nil,
		"lk rnu x":                                 {"rnu"},
		"lk cluster token ls --json --data x --no": {"--no"},
		"x=1 lk ls --engine=sqlite:x --all --json": {"--all"},
	} {
		if got := unknownIn(a.newRoot(""), line); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// The help of each system says what lk can't do on it, and only there.
func TestSystemNote(t *testing.T) {
	for system, want := range map[string]string{
		"linux":   "",
		"darwin":  "keeps the lock for at most the TTL",
		"windows": "does not work here",
	} {
		if got := systemNote(system); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", system, got, want)
		}
	}
}

// In manual pages, indented lines stay as they are, and nothing of a text is a command of roff.
func TestTextInRoff(t *testing.T) {
	const text = "Codes:\n  2  bad\n  3  good\nEnd.\n\n.x and C:\\y\n\n  more\n"
	const want = "Codes:\n.EX\n  2  bad\n  3  good\n.EE\nEnd.\n.PP\n\\&.x and C:\\ey\n.PP\n.EX\n  more\n.EE\n"
	if got := roffText(text); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A verb that is made alone is the same as among all verbs.
func TestVerbAloneIsAsAmongAll(t *testing.T) {
	help := func(name, alone string) string {
		var text strings.Builder
		a := quietApp()
		root := a.newRoot(alone)
		root.SetOut(&text)
		root.SetErr(&text)
		root.SetArgs([]string{name, "--help"})
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return text.String()
	}
	a := quietApp()
	for _, v := range a.verbs() {
		a.args = []string{v.name}
		if alone := a.verbAlone(); alone != v.name && v.name != "man" {
			t.Errorf("%s is made with all verbs", v.name)
		}
		if got, want := help(v.name, v.name), help(v.name, ""); got != want {
			t.Errorf("alone:\n%s\namong all verbs:\n%s", got, want)
		}
	}
	for _, words := range [][]string{
		nil, {"help"}, {"--help"}, {"no-verb"}, {"completion", "bash"}, {"--engine", "mem:", "ls"},
	} {
		if a.args = words; a.verbAlone() != "" {
			t.Errorf("%q has the verb %s alone", words, a.verbAlone())
		}
	}
}
