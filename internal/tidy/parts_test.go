package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// most minutes of one part of make long.
const mostPartMinutes = 45

// The parts of make long are the same in tools/long, in the weekly workflow and in docs/tests.md,
// and none takes too long.
func TestPartsOfLongAgree(t *testing.T) {
	minutes := map[string]int{}
	var order []string
	for _, step := range regexp.MustCompile(`(?m)^([a-z]+)\|(\d+)\|`).FindAllStringSubmatch(read(t, "tools/long"), -1) {
		takes, _ := strconv.Atoi(step[2])
		if minutes[step[1]] == 0 {
			order = append(order, step[1])
		}
		minutes[step[1]] += takes
	}
	document, workflow := read(t, "docs/tests.md"), read(t, ".github/workflows/long.yml")
	for part, takes := range minutes { // order does not matter: each by itself
		if takes > mostPartMinutes {
			t.Errorf("tools/long: part %s takes %d minutes, at most %d are allowed: split it", part, takes, mostPartMinutes)
		}
		if row := "| " + part + " | " + strconv.Itoa(takes) + " |"; !strings.Contains(document, row) {
			t.Errorf("docs/tests.md has no row %q: write what the part covers and how long it takes", row)
		}
	}
	if want := "part: [" + strings.Join(order, ", ") + "]"; !strings.Contains(workflow, want) {
		t.Errorf(".github/workflows/long.yml: want the matrix %s", want)
	}
}

// The steps of tools/long name packages that exist. The flag -long follows them: go test takes every
// word behind a flag that it does not know for an argument of the tests, so a package behind it would
// not be tested. A package whose tests do not have the flag refuses it.
func TestLongPackagesHaveTheFlag(t *testing.T) {
	packages := loadTree(t).packages()
	folder := regexp.MustCompile(` \./([\w/]+)`)
	for line := range strings.Lines(read(t, "tools/long")) {
		for _, found := range folder.FindAllStringSubmatch(line, -1) {
			if packages[found[1]] == nil {
				t.Errorf("tools/long: there is no package %s", found[1])
			}
		}
		if !strings.Contains(line, "|$deep ") {
			continue
		}
		if !strings.HasSuffix(line, " -long\n") {
			t.Errorf("tools/long: -long must be the last word of %q", line)
		}
		for _, found := range folder.FindAllStringSubmatch(line, -1) {
			if !slices.ContainsFunc(packages[found[1]], func(f *goFile) bool {
				return importsPackage(f, module+"/internal/testmode")
			}) {
				t.Errorf("tools/long runs %s with -long, and no file of it imports internal/testmode: "+
					"take it out of the step, or use testmode in it", found[1])
			}
		}
	}
}

// The numbers in docs/tests.md are those of the tests.
func TestDocumentedNumbersAreThoseOfTests(t *testing.T) {
	document := read(t, "docs/tests.md")
	pick := regexp.MustCompile(`testmode\.Pick\(([\d_]+), ([\d_]+)\)`)
	for file, what := range map[string]string{
		"table/explore_test.go": "states", "internal/model/compare_test.go": "sequences",
		"internal/model/promises_test.go": "worlds",
	} {
		numbers := pick.FindStringSubmatch(read(t, file))
		if numbers == nil {
			t.Fatalf("%s: no testmode.Pick of two numbers: this test looks in the wrong place", file)
		}
		for _, n := range numbers[1:] {
			if text := grouped(n) + " " + what; !strings.Contains(document, text) {
				t.Errorf("docs/tests.md does not say %q, as %s has it", text, file)
			}
		}
	}
}

// grouped writes a number of Go with commas.
func grouped(n string) string {
	n = strings.ReplaceAll(n, "_", "")
	for i := len(n) - 3; i > 0; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
