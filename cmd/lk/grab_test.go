package main

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// TestGrabbedAs: the hint appears only for a hold that lk grab made for the name of the run.
func TestGrabbedAs(t *testing.T) {
	grabbed := grab.Name{As: "me", Paths: []lockkeeper.Path{"db"}}.Ref()
	for _, c := range []struct {
		as  string
		ref lockkeeper.Ref
		say bool
	}{
		{"me", grabbed, true},
		{"you", grabbed, false},
		{"me", lockkeeper.Ref{Session: "3KX7VQ", ID: 1}, false},
	} {
		by := lockkeeper.Blocker{Ref: c.ref, Why: lockkeeper.HeldBy, Label: lockkeeper.Label{As: c.as}}
		if text := grabbedAs("me", []lockkeeper.Blocker{by}); (text != "") != c.say {
			t.Errorf("held by %s under %s: %q", c.as, c.ref, text)
		}
	}
}
