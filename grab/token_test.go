package grab_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/grab"
)

// TestConfirmMakesNothing: Confirm keeps the hold of its token alive. If that hold has ended, and
// the name has no claim, another hold or a waiting claim, each Confirm returns an ErrLost, and
// neither makes nor renews a claim.
func TestConfirmMakesNothing(t *testing.T) {
	inMemory(t, func(w *world) {
		confirm := func(token grab.Token) (grab.Answer, error) {
			return w.process().Confirm(w.ctx(), w.request("me", "db"), token)
		}
		over := func(token grab.Token, words string) {
			w.Helper()
			for range 2 {
				_, err := confirm(token)
				if !errors.Is(err, lockkeeper.ErrLost) || !strings.Contains(err.Error(), words) {
					w.Fatalf("got %v, want ErrLost with %q", err, words)
				}
			}
		}
		first := w.ok("me", "db").Token
		w.pass(grab.DefaultTTL * 9 / 10)
		if a, err := confirm(first); err != nil || a.Token != first || a.TTL != grab.DefaultTTL {
			w.Fatalf("%+v, %v; want the hold refreshed", a, err)
		}
		w.pass(grab.DefaultTTL)
		over(first, "lock lost")
		if n := w.listed(); n != 0 {
			w.Errorf("it made %d claims", n)
		}

		w.ok("you", "db")
		over(first, "lock lost")
		if n := w.listed(); n != 1 {
			w.Errorf("%d claims, want that of you alone", n)
		}
		w.wait(1, "me", "db")
		w.pass(grab.DefaultTTL * 9 / 10)
		w.renews("you", "db")
		over(first, "now waits")
		w.pass(grab.DefaultTTL / 10)
		w.expired("me", "db") // asking for the hold did not keep the place

		w.released(1, "you", "db")
		second := w.ok("me", "db").Token
		over(first, "another hold, with fence "+second.String())
		w.pass(grab.DefaultTTL)
		w.expired("me", "db") // nor the other hold
		third := w.ok("me", "db").Token
		w.revoke("me", "db")
		over(third, "revoked): stuck")
		w.released(0, "me", "db")
	})
}

// TestConfirmOfAnotherMode: a Confirm with another mode than that of the hold is refused.
func TestConfirmOfAnotherMode(t *testing.T) {
	onEachEngine(t, func(w *world) {
		token := w.ok("me", "db").Token
		r := w.request("me", "db")
		r.Targets[0].Mode = lockkeeper.ModeShared
		if _, err := w.process().Confirm(w.ctx(), r, token); !errors.Is(err, lockkeeper.ErrInvalid) {
			w.Errorf("got %v, want ErrInvalid", err)
		}
		if a, err := w.process().Confirm(w.ctx(), w.request("me", "db"), token); err != nil || a.State != lockkeeper.Held {
			w.Errorf("%s, %v; want it held", a.State, err)
		}
	})
}

// TestConfirmOfAnEarlierLife: if the fences start again with the engine, a fence of an earlier
// epoch identifies no hold of this one, even with the same number.
func TestConfirmOfAnEarlierLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []grab.Token
		request := grab.Request{As: "me", Targets: []lockkeeper.Target{exclusive("db")}}
		for range 2 {
			e := memlock.New()
			a, err := grab.New(e).Grab(t.Context(), request)
			if err != nil || a.Fence != 1 {
				t.Fatalf("fence %d, %v; want 1", a.Fence, err)
			}
			tokens = append(tokens, a.Token)
			defer e.Close()
			_, err = grab.New(e).Confirm(t.Context(), request, tokens[0])
			if lost := len(tokens) == 2; errors.Is(err, lockkeeper.EngineRestarted) != lost || !lost && err != nil {
				t.Errorf("in life %d: %v", len(tokens), err)
			}
			_, err = grab.New(e).Confirm(t.Context(), request, grab.Token{Fence: 1})
			if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), a.Token.String()) {
				t.Errorf("of half a token: %v", err)
			}
		}
	})
}

// TestTokenText: ParseToken accepts exactly what String prints.
func TestTokenText(t *testing.T) {
	for _, token := range []grab.Token{{Fence: 1}, {Fence: 1<<64 - 1}, {Fence: 17, Epoch: "k3x9q2ab"}} {
		if read, err := grab.ParseToken(token.String()); err != nil || read != token {
			t.Errorf("%s is read as %v, %v", token, read, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "01", "+1", "1-", "-x", "1 ", "x", "18446744073709551616",
		"1-" + strings.Repeat("x", 65)} {
		if _, err := grab.ParseToken(text); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", text, err)
		}
	}
}

// TestTryLeavesNoPlace: a Try that is not granted at once names the blockers, and leaves no claim.
func TestTryLeavesNoPlace(t *testing.T) {
	onEachEngine(t, func(w *world) {
		try := func(as string) grab.Answer {
			r := w.request(as, "db")
			r.Try = true
			return w.grabs(r)
		}
		if a := try("holder"); a.State != lockkeeper.Held {
			w.Fatalf("%s, want it held", a.State)
		}
		for range 2 {
			a := try("you")
			if a.State != lockkeeper.Ended || a.Lost != nil || len(a.Blockers) != 1 || a.Blockers[0].As != "holder" {
				w.Fatalf("%+v, want that holder has it", a)
			}
		}
		if n := w.listed(); n != 1 {
			w.Errorf("%d claims, want that of holder alone", n)
		}
		w.wait(1, "me", "db")
		r := w.request("me", "db")
		r.Try, r.Priority = true, 5
		if a := w.grabs(r); a.State != lockkeeper.Waiting || a.Position != 1 {
			w.Fatalf("%s, want its place", a.State)
		}
		w.released(1, "holder", "db")
		if a := try("me"); a.State != lockkeeper.Held {
			w.Errorf("%s, want it held", a.State)
		}
	})
}

// TestConfirmByManyAtOnce: if processes of one name confirm its hold at the same time, none of them
// reports a loss.
func TestConfirmByManyAtOnce(t *testing.T) {
	onEachEngine(t, func(w *world) {
		token := w.ok("me", "db").Token
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 5 {
					if a, err := w.process().Confirm(w.ctx(), w.request("me", "db"), token); err != nil || a.Token != token {
						w.Errorf("%s, %v; want it held", a.Token, err)
					}
				}
			})
		}
		all.Wait()
		w.released(1, "me", "db")
		for range 4 {
			all.Go(func() {
				if _, err := w.process().Confirm(w.ctx(), w.request("me", "db"), token); !errors.Is(err, lockkeeper.ErrLost) {
					w.Errorf("got %v, want ErrLost", err)
				}
			})
		}
		all.Wait()
		if n := w.listed(); n != 0 {
			w.Errorf("%d claims are left", n)
		}
	})
}
