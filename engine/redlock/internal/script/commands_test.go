package script

import (
	"regexp"
	"slices"
	"testing"
)

// A user who has the stated rights can run all scripts, and has no right that none needs.
func TestCommandsOfScriptsAreStated(t *testing.T) {
	var used []string
	for _, s := range Scripts() {
		for _, call := range regexp.MustCompile(`(?:redis\.p?call|read|write)\('(\w+)'`).FindAllStringSubmatch(s.Text, -1) {
			used = append(used, call[1])
		}
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, Commands()) {
		t.Errorf("the scripts use %v, and %v is stated", used, Commands())
	}
}
