package enginetest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCasesAreWhereTheDocumentSays: if a row of docs/cases.md names a file of this package, the file
// has the cases and flaws of the row; and every case is in some row.
func TestCasesAreWhereTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile("../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`\b[TF][0-9]\.[0-9]+(?: ?[a-z]\b)?`)
	bare := func(id string) string { return strings.ReplaceAll(id, " ", "") }
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		for _, found := range id.FindAllString(line, -1) {
			listed[bare(found)] = true
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		file := regexp.MustCompile("`enginetest/([a-z_]+\\.go)`").FindStringSubmatch(line)
		if file == nil || regexp.MustCompile(`tested with|with T`).MatchString(line) {
			continue
		}
		source, err := os.ReadFile(file[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range id.FindAllString(cells[1], -1) {
			if !regexp.MustCompile(`"[^"]*\b` + regexp.QuoteMeta(bare(found)) + `\b`).Match(source) {
				t.Errorf("%s is not in %s", found, file[1])
			}
		}
	}
	for _, c := range checks() {
		for _, found := range regexp.MustCompile(`\b[TF][0-9]\.[0-9]+[a-z]?\b`).FindAllString(c.name, -1) {
			if !listed[bare(found)] {
				t.Errorf("docs/cases.md does not list %s, which is tested as %q", found, c.name)
			}
		}
	}
}
