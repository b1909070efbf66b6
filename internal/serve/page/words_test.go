package page_test

import (
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestWordsOfWaits: the page says no more of a wait than the engine stated.
func TestWordsOfWaits(t *testing.T) {
	testmode.NeedLong(t, "a browser starts in seconds")
	c, w := startChromium(t), newTown(t, nil)
	w.login(c, "ops")
	const eight = `blockers: Array(8).fill({ why: "behind", as: "ann" })`
	const two = `blockers: Array(2).fill({ why: "behind", as: "ann" })`
	for status, want := range map[string]string{
		"{ position: 9, " + eight + " }":                            "9th in line · behind ann and at least 7 more",
		"{ position: 3, " + two + " }":                              "3rd in line · behind ann and 1 more",
		`{ position: 1, blockers: [{ why: "frozen", as: "ops" }] }`: "frozen by ops",
		`{ position: 1, waits: ["frozen"] }`:                        "frozen",
	} {
		got := c.eval(`import("/page/words.js").then(({ waitText }) => waitText(` + status + `))`)
		if got != want {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
	order := c.eval(`import("/page/timeline.js").then(({ byGrant }) => [
		{ as: "d", waits: 3 }, { as: "c", waits: 2, seen: 9 }, { as: "b", held: 8, waits: 1 }, { as: "a", held: 5, waits: 4 },
		].sort(byGrant).map((r) => r.as).join(""))`)
	if order != "abcd" {
		t.Errorf("the timeline has the order %v, want that of the grants, and then of the waits", order)
	}
	until := c.eval(`import("/page/words.js").then(({ blockerText }) =>
		/^frozen by ops until \d\d:\d\d:\d\d/.test(blockerText({ why: "frozen", as: "ops", endsAt: Date.now() / 1000 })))`)
	if until != true {
		t.Error("the page does not say until when a path is frozen")
	}
}
