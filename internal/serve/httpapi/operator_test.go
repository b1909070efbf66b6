package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// TestLists: what is, by path, session and state, and no more than was asked for.
func TestLists(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		a := w.holds(`{"path":"db/a","as":"a"}`)
		w.holds(`{"targets":[{"path":"db/b"},{"path":"site","mode":"shared"}],"as":"b"}`)
		w.want(w.ask("POST", "/v1/claims?poll=0", `{"path":"db","wait":"1h","as":"c"}`), 202, "")
		w.want(w.ask("PUT", "/v1/freezes/cold/place", `{"for":"1h","as":"ops","note":"winter"}`), 200, "")
		for query, want := range map[string]string{
			"":                          "a held, b held, c waiting, ops frozen",
			"?path=db":                  "a held, b held, c waiting",
			"?path=db/a/deep":           "a held, c waiting",
			"?path=site":                "b held",
			"?state=waiting":            "c waiting",
			"?state=frozen":             "ops frozen",
			"?limit=2":                  "a held, b held, more",
			"?session=" + a.Ref.Session: "a held",
			"?path=nowhere":             "",
		} {
			got := w.want(w.ask("GET", "/v1/claims"+query, ""), 200, "")
			if text := listed(t, got); text != want {
				t.Errorf("%q: %s, want %s", query, text, want)
			}
		}
		if text := listed(t, w.ask("GET", "/v1/freezes", "")); text != "ops frozen" {
			t.Errorf("freezes: %s", text)
		}
		if text := listed(t, w.ask("GET", "/v1/why?path=site", "")); text != "b held" {
			t.Errorf("why site: %s", text)
		}
		if text := listed(t, w.ask("GET", "/v1/why", "")); text != "a held, b held, c waiting" {
			t.Errorf("why: %s", text)
		}
		for _, bad := range []string{"/v1/claims?limit=0", "/v1/claims?limit=10001", "/v1/claims?state=ended",
			"/v1/claims?path=..", "/v1/claims?who=me", "/v1/claims?limit=1&limit=2", "/v1/why?path=/"} {
			w.want(w.ask("GET", bad, ""), 400, "invalid")
		}
	})
}

func listed(t *testing.T, a answer) string {
	t.Helper()
	var l claimList
	if err := json.Unmarshal([]byte(a.text), &l); err != nil {
		t.Fatalf("%v: %s", err, a.text)
	}
	texts := []string{}
	for _, st := range l.Claims {
		texts = append(texts, fmt.Sprint(st.As, " ", st.State))
	}
	if l.More {
		texts = append(texts, "more")
	}
	return strings.Join(texts, ", ")
}

// TestStats: the counts are those of package report, which lk stats prints too.
func TestStats(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"db/a","as":"a"}`)
		w.want(w.ask("POST", "/v1/claims?poll=0", `{"path":"db","wait":"1h","as":"c"}`), 202, "")
		w.pass(time.Second)
		var all []lockkeeper.Status
		for st := range w.engine.List(w.Context(), lockkeeper.Query{}) {
			all = append(all, st)
		}
		want, err := json.Marshal(listing.StatsOf(all))
		if got := w.ask("GET", "/v1/stats", ""); err != nil || strings.TrimSpace(got.text) != string(want) {
			t.Errorf("%s\nwant\n%s (%v)", got.text, want, err)
		}
		if got := w.ask("GET", "/v1/stats?path=nowhere", ""); !strings.Contains(got.text, `"held":0,"waiting":0`) {
			t.Errorf("of nothing: %s", got.text)
		}
	})
}

// TestRevoke: a revoke asks the holder, which learns of it by its renewal; with force it ends the
// claim.
func TestRevoke(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		held := w.holds(`{"path":"db"}`)
		at := held.header.Get("Location")
		asked := w.want(w.ask("POST", at+"/revoke", `{"as":"ops","note":"disk"}`), 200, "")
		if asked.State != lockkeeper.Held || asked.Asked == nil || asked.Asked.Note != "disk" {
			t.Errorf("asked: %s", asked.text)
		}
		w.pass(10 * time.Second)
		if a := w.want(w.ask("POST", at+"/renew", ""), 200, ""); a.Asked == nil || a.Asked.Left != 20*time.Second ||
			a.Asked.As != "ops" {
			t.Errorf("the holder is told: %s", a.text)
		}
		w.want(w.ask("POST", at+"/revoke", `{"force":true}`), 200, "")
		if a := w.want(w.ask("POST", at+"/renew", ""), 410, "lost"); !strings.Contains(a.text, `"reason":"revoked"`) {
			t.Errorf("the holder is told: %s", a.text)
		}
		w.want(w.ask("DELETE", at, ""), 410, "lost")
		w.want(w.ask("POST", "/v1/claims/nobody.1/revoke", `{}`), 404, "unknown-claim")
		w.want(w.ask("POST", "/v1/claims/nobody/revoke", `{}`), 400, "invalid")
	})
}

// TestPollReturnsOnRequestToYield: a poll with the current change returns when the holder is asked
// to yield.
func TestPollReturnsOnRequestToYield(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		held := w.holds(`{"path":"db"}`)
		at := held.header.Get("Location")
		told := make(chan answer, 1)
		go func() { told <- w.ask("POST", fmt.Sprintf("%s/renew?poll=1m&change=%d", at, held.Change), "") }()
		w.pass(17 * time.Second)
		w.want(w.ask("POST", at+"/revoke", `{}`), 200, "")
		w.pass(0)
		select {
		case a := <-told:
			// From when it was asked, 17 s ago; the ask is for 30 s from now.
			if a.Asked == nil || a.Asked.Left != 47*time.Second || a.ttl != 47*time.Second {
				t.Errorf("told %s", a.text)
			}
		default:
			t.Error("not told")
		}
	})
}

// TestFreeze: a freeze prevents grants until it is thawed.
func TestFreeze(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		if a := w.want(w.ask("PUT", "/v1/freezes/db", `{"for":60,"as":"ops"}`), 200, ""); a.State != lockkeeper.Freezing ||
			a.Left != time.Minute {
			t.Errorf("%s", a.text)
		}
		w.want(w.ask("POST", "/v1/claims", `{"path":"db/x"}`), 409, "not-acquired")
		w.want(w.ask("DELETE", "/v1/freezes/db", ""), 204, "")
		w.want(w.ask("DELETE", "/v1/freezes/db", ""), 404, "not-frozen")
		w.holds(`{"path":"db/x"}`)
		w.want(w.ask("PUT", "/v1/freezes/db", `{}`), 400, "invalid")
		w.want(w.ask("PUT", "/v1/freezes/db", `{"for":"soon"}`), 400, "invalid")
		w.want(w.ask("PUT", "/v1/freezes/..", `{"for":"1h"}`), 400, "invalid")
	})
}

// TestFreezeOfEverythingNeedsAll: no path that is empty by mistake stops everybody.
func TestFreezeOfEverythingNeedsAll(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		for _, url := range []string{"/v1/freezes", "/v1/freezes/", "/v1/freezes//", "/v1/freezes/%2F"} {
			a := w.want(w.ask("PUT", url, `{"for":"1h"}`), 400, "invalid")
			if a.Detail != `no path: PUT /v1/freezes/PATH freezes a path, and {"all":true} at /v1/freezes everything` {
				t.Errorf("%s: %s", url, a.text)
			}
		}
		w.want(w.ask("PUT", "/v1/freezes/db", `{"all":true,"for":"1h"}`), 400, "invalid")
		a := w.want(w.ask("PUT", "/v1/freezes", `{"all":true,"for":"1h","as":"ops"}`), 200, "")
		if len(a.Grants) != 1 || a.Grants[0].Path != lockkeeper.Root {
			t.Errorf("frozen: %s", a.text)
		}
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`), 409, "not-acquired")
		if a := w.want(w.ask("DELETE", "/v1/freezes", ""), 400, "invalid"); !strings.Contains(a.Detail, "?all=true") {
			t.Errorf("DELETE: %s", a.text)
		}
		w.want(w.ask("DELETE", "/v1/freezes?all=yes", ""), 400, "invalid")
		w.want(w.ask("DELETE", "/v1/freezes?all=true", ""), 204, "")
		w.want(w.ask("DELETE", "/v1/freezes?all=true", ""), 404, "not-frozen")
		w.holds(`{"path":"db"}`)
	})
}

// TestDrain: no new claims, and the same question again changes nothing.
func TestDrain(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.want(w.ask("POST", "/v1/drain", ""), 501, "unsupported")
		calls := 0
		w.apis[0].options.Drain = func(string) { calls++ }
		if a := w.want(w.ask("POST", "/v1/drain", `{"unless_version":"v1"}`), 200, ""); calls != 0 ||
			!strings.Contains(a.text, `"began":false,"same_version":true`) {
			t.Errorf("%d calls, %s", calls, a.text)
		}
		for _, began := range []string{"true", "false"} {
			a := w.want(w.ask("POST", "/v1/drain", `{"reason":"new kernel","unless_version":"v2"}`), 202, "")
			if calls != 1 || !strings.Contains(a.text, `"draining":"new kernel","began":`+began+`,"same_version":false`) {
				t.Errorf("%d calls, %s", calls, a.text)
			}
		}
		if a := w.want(w.ask("GET", "/v1/server", ""), 200, ""); !strings.Contains(a.text, `"draining":"new kernel"`) ||
			!strings.Contains(a.text, `"engine":"mem"`) {
			t.Errorf("server: %s", a.text)
		}
	})
}
