package lockkeeper

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// A name with invisible characters can look like another name: paths, names and ids refuse them;
// notes keep them, and every output escapes them.
func TestHiddenCharactersDontPassForAnotherName(t *testing.T) {
	for _, hidden := range []string{"\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u2028", "\u2029",
		"\U000e0041"} {
		name := "de" + hidden + "ploy"
		if _, err := ParsePath("db/" + name); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "invisible character U+") {
			t.Errorf("path %q: %v", name, err)
		}
		if p, err := PathOf("db", name); err != nil || strings.Contains(string(p), hidden) {
			t.Errorf("PathOf %q: %q, %v", name, p, err)
		}
		session := Session{ID: name, TTL: MinTTL, Label: Label{As: name}}
		if err := session.Check(false); err == nil || strings.Count(err.Error(), "invisible character") != 2 {
			t.Errorf("session %q: %v", name, err)
		}
		session = Session{ID: "s", TTL: MinTTL, Label: Label{Note: name, Link: name}}
		if err := session.Check(false); err != nil {
			t.Errorf("note %q: %v", name, err)
		}
		status := Status{
			State: Waiting, Text: name, Label: session.Label, Asked: &Asked{Label: session.Label, Reason: Stolen},
			Blockers: []Blocker{{Why: HeldBy, Mode: ModeShared, Label: session.Label}},
		}
		text, err := json.Marshal(status)
		var back Status
		if err != nil || strings.Contains(string(text), hidden) || json.Unmarshal(text, &back) != nil || back.Note != name ||
			back.Blockers[0].Note != name {
			t.Errorf("JSON of %q: %s, %v, read as %+v", name, text, err, back)
		}
		if shown := status.Blockers[0].String(); strings.Contains(shown, hidden) || !strings.Contains(shown, `\u`) {
			t.Errorf("shown: %q", shown)
		}
	}
	if shown := Visible("übung \u202eliv\u200be\u0301 \U000e0041 日本"); shown != "übung \\u202eliv\\u200be\u0301 "+
		"\\udb40\\udc41 日本" {
		t.Errorf("shown %s", shown)
	}
}
