package grab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDocumentNamesTests: every test that docs/grab.md names exists.
func TestDocumentNamesTests(t *testing.T) {
	text, err := os.ReadFile("../docs/grab.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests []byte
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, source...)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllSubmatch(text, -1) {
		if !regexp.MustCompile(`func ` + string(name[1]) + `\(`).Match(tests) {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, name := range regexp.MustCompile("`([a-z_]+\\.txtar)`").FindAllSubmatch(text, -1) {
		if _, err := os.Stat("../cmd/lk/testdata/" + string(name[1])); err != nil {
			t.Error(err)
		}
	}
}
