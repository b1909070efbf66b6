package page

import (
	"regexp"
	"strings"
	"testing"
)

// TestFilesReferToFiles: the page loads what is embedded, and nothing else.
func TestFilesReferToFiles(t *testing.T) {
	used := map[string]bool{Index: true}
	references := regexp.MustCompile(`(?:(?:src|href)="([^"]*)"|from "([^"]*)";|url\(([^)]*)\))`)
	for name, f := range files() {
		for _, found := range references.FindAllStringSubmatch(string(f.Text), -1) {
			to := found[1] + found[2] + found[3]
			bare, ok := strings.CutPrefix(to, "/page/")
			if !ok {
				bare, ok = strings.CutPrefix(to, "./")
			}
			if _, there := files()[bare]; ok && there {
				used[bare] = true
			} else if !strings.HasPrefix(to, "/v1/") {
				t.Errorf("%s refers to %s, which is no file of the page", name, to)
			}
		}
	}
	for name, f := range files() {
		if !used[name] {
			t.Errorf("nothing uses %s", name)
		}
		if f.Type == "application/octet-stream" {
			t.Errorf("%s has no type", name)
		}
	}
}

// TestScriptsParseNoText: no script makes HTML or code of text, so that no name can become either.
// The browser's trusted types forbid it too.
func TestScriptsParseNoText(t *testing.T) {
	for name, f := range files() {
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
			"new Function", "DOMParser", "createContextualFragment", "javascript:", "srcdoc", "setHTML"} {
			if strings.Contains(string(f.Text), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
	index := string(files()[Index].Text)
	if regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:[^>]*)>[^<]`).MatchString(index) {
		t.Error("the page has an inline script or style, which its policy forbids")
	}
}

// TestScriptsAreReadable: the house rules of Go files hold for scripts: at most 500 lines of at most
// 120 columns, and a comment at the beginning that says what the file is about.
func TestScriptsAreReadable(t *testing.T) {
	for name, f := range files() {
		lines := strings.Split(string(f.Text), "\n")
		if len(lines) > 500 {
			t.Errorf("%s has %d lines", name, len(lines))
		}
		for i, line := range lines {
			if len([]rune(line)) > 120 {
				t.Errorf("%s:%d has %d columns", name, i+1, len([]rune(line)))
			}
		}
		if strings.HasSuffix(name, ".js") && !strings.HasPrefix(lines[0], "// ") {
			t.Errorf("%s does not say what it is about", name)
		}
	}
}
