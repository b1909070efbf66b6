package membership

import (
	"regexp"
	"slices"
	"testing"
)

// A user who has the stated rights can run all scripts, and has no right that none needs.
func TestCommandsOfScriptsAreStated(t *testing.T) {
	var used []string
	for _, s := range []*Script{
		announce, observe, tag, relabel, commit, merge, ends, putOut, sweep, raiseFloor, forget, {Source: RunID},
	} {
		for _, call := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllStringSubmatch(s.Source, -1) {
			used = append(used, call[1])
		}
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, Commands()) {
		t.Errorf("the scripts use %v, and %v is stated", used, Commands())
	}
}
