package script

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// packed are the bytes of a reply, as a script writes them.
func packed(r *quorum.Reply) []byte {
	var p packer
	p.array(8)
	p.count("", uint64(r.Outcome))
	p.number("", int64(r.Now))
	p.count("", r.Epoch)
	p.number("", int64(r.Until))
	p.claims(r.Claims)
	p.array(len(r.Listed))
	for _, s := range r.Listed {
		p.array(8)
		p.text("", s.ID, 1000)
		p.count("", s.Epoch)
		p.number("", int64(s.TTL))
		p.number("", int64(s.Until))
		p.label(s.Label)
		p.claims(s.Claims)
	}
	p.bool(r.More)
	p.text("", r.Text, 1<<16)
	return p.b
}

func packedMessage(m *quorum.Message) []byte {
	var p packer
	p.array(5)
	p.text("", m.To, 1000)
	p.text("", m.Session, 1000)
	p.count("", m.Epoch)
	p.number("", int64(m.Now))
	p.claim(&m.Claim)
	return p.b
}

func (p *packer) claims(all []quorum.ClaimState) {
	p.array(len(all))
	for i := range all {
		p.claim(&all[i])
	}
}

func (p *packer) claim(c *quorum.ClaimState) {
	p.array(17)
	p.count("", c.ID)
	p.count("", uint64(c.State))
	p.count("", uint64(c.Reason))
	p.text("", c.Text, 1<<16)
	p.count("", c.Revision)
	p.count("", c.Vote)
	p.count("", c.Counter)
	p.number("", int64(c.Unsure))
	p.number("", int64(c.Since))
	p.bool(c.Lapsed)
	p.number("", int64(c.LapseEnd))
	if c.Ask == nil {
		p.array(0)
	} else {
		p.array(1)
		p.array(7)
		p.text("", c.Ask.By, 1000)
		p.count("", uint64(c.Ask.Reason))
		p.number("", int64(c.Ask.End))
		p.bool(c.Ask.Acked)
		p.label(c.Ask.Label)
	}
	p.bool(c.Asking)
	p.number("", int64(c.AskEnd))
	p.count("", uint64(c.Position))
	p.array(len(c.Blockers))
	for _, b := range c.Blockers {
		p.blocker(&b)
	}
	if c.Want == nil {
		p.array(0)
	} else {
		p.array(1)
		p.want(c.Want)
	}
}

func (p *packer) blocker(b *quorum.Blocker) {
	p.array(13)
	p.text("", b.Ref.Session, 1000)
	p.count("", b.Ref.ID)
	p.text("", b.Path, 1000)
	p.bool(b.Waiting)
	p.count("", b.Vote)
	p.number("", int64(b.Priority))
	p.count("", b.Ticket)
	p.number("", int64(b.Since))
	p.number("", int64(b.Until))
	p.number("", int64(b.Announced))
	p.label(b.Label)
}

var label = lockkeeper.Label{As: "ann", Note: "swap the disk", Link: "https://ci/1"}

func wholeClaim() quorum.ClaimState {
	return quorum.ClaimState{
		ID: 7, State: lockkeeper.Held, Revision: 2, Vote: maxExact - 1, Counter: maxExact, Unsure: 5, Since: 6,
		Lapsed: true, LapseEnd: 300, Asking: true, AskEnd: 70_000, Position: 200, Text: strings.Repeat("é", 100),
		Ask: &quorum.Ask{By: "s.2", Reason: lockkeeper.Stolen, End: 1 << 40, Acked: true, Label: label},
		Blockers: []quorum.Blocker{{
			Ref: lockkeeper.Ref{Session: "t", ID: 1 << 33}, Path: "a/b", Waiting: true, Vote: 3, Priority: -1_000_000,
			Ticket: 1 << 50, Since: 1, Until: 2, Announced: 3, Label: label,
		}},
		Want: &quorum.WantRecord{
			Revision: 2, Paths: []string{"a/b", "c"}, Priority: -5, Ticket: 1 << 51, Try: true, Steal: lockkeeper.Take,
			After: 1, AfterTTL: 2, Expected: 3, MaxHold: 4, Grace: 5,
			Inside: lockkeeper.Ref{Session: "o", ID: 4}, Label: label,
		},
	}
}

func wholeReply() quorum.Reply {
	return quorum.Reply{
		Outcome: quorum.Done, Now: 1 << 50, Epoch: 9, Until: 1<<50 + 1, Claims: []quorum.ClaimState{wholeClaim()},
		Listed: []quorum.SessionState{{
			ID: "s", Epoch: 3, TTL: 30_000_000, Until: 1 << 51, Label: label,
			Claims: []quorum.ClaimState{wholeClaim(), {ID: 1, State: lockkeeper.Ended, Reason: lockkeeper.Expired}},
		}},
		More: true, Text: "full",
	}
}

func TestReplyAndMessageKeepEveryField(t *testing.T) {
	want := wholeReply()
	got, err := Decode(quorum.List, packed(&want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v (%v)\nwant %+v", got, err, want)
	}
	message := quorum.Message{To: "party", Session: "s", Epoch: 4, Now: 1 << 50, Claim: wholeClaim()}
	if got, err := DecodeMessage(packedMessage(&message)); err != nil || !reflect.DeepEqual(got, message) {
		t.Errorf("got %+v (%v)\nwant %+v", got, err, message)
	}
}

func TestDamagedReplyIsRefused(t *testing.T) {
	for name, damage := range map[string]func(*quorum.Reply){
		"an outcome that does not exist": func(r *quorum.Reply) { r.Outcome = 99 },
		"a vote of a waiting claim":      func(r *quorum.Reply) { r.Claims[0].State = lockkeeper.Waiting },
		"a hold without a vote":          func(r *quorum.Reply) { r.Claims[0].Vote = 0 },
		"a vote above the counter":       func(r *quorum.Reply) { r.Claims[0].Counter = 1 },
		"an end without a reason":        func(r *quorum.Reply) { r.Listed[0].Claims[1].Reason = 0 },
		"a reason that does not exist":   func(r *quorum.Reply) { r.Claims[0].Ask.Reason = 200 },
		"a negative time":                func(r *quorum.Reply) { r.Until = -1 },
		"a long session":                 func(r *quorum.Reply) { r.Listed[0].ID = strings.Repeat("s", 200) },
		"too many blockers": func(r *quorum.Reply) {
			r.Claims[0].Blockers = make([]quorum.Blocker, lockkeeper.MaxBlockers+1)
		},
	} {
		r := wholeReply()
		damage(&r)
		if got, err := Decode(quorum.List, packed(&r)); err == nil {
			t.Errorf("%s was taken: %+v", name, got)
		}
	}
	whole := wholeReply()
	text := packed(&whole)
	for n := range text {
		if _, err := Decode(quorum.List, text[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were taken", n, len(text))
		}
	}
	for _, reply := range []any{nil, int64(1), []any{"x"}, string(text) + "x"} {
		if _, err := Decode(quorum.List, reply); err == nil {
			t.Errorf("%.20v was taken", reply)
		}
	}
	if _, err := Decode(quorum.Claim, text); err == nil {
		t.Error("a list was taken as the answer to a claim")
	}
}

func TestRequestBeyondLimitsIsRefused(t *testing.T) {
	good := quorum.Request{
		Kind: quorum.Claim, Session: "s", Epoch: 1, ID: 1, Want: quorum.WantRecord{Paths: []string{"a", "b"}},
	}
	if _, err := Encode(Set{}, good); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(*quorum.Request){
		"kind":      func(r *quorum.Request) { r.Kind = quorum.List + 1 },
		"session":   func(r *quorum.Request) { r.Session = "" },
		"long name": func(r *quorum.Request) { r.Session = strings.Repeat("s", lockkeeper.MaxSessionID+1) },
		"epoch":     func(r *quorum.Request) { r.Epoch = maxExact + 1 },
		"ticket":    func(r *quorum.Request) { r.Want.Ticket = maxExact + 1 },
		"no path":   func(r *quorum.Request) { r.Want.Paths = nil },
		"order":     func(r *quorum.Request) { r.Want.Paths = []string{"b", "a"} },
		"twice":     func(r *quorum.Request) { r.Want.Paths = []string{"a", "a"} },
		"path":      func(r *quorum.Request) { r.Want.Paths = []string{strings.Repeat("p", lockkeeper.MaxPathBytes+1)} },
		"priority":  func(r *quorum.Request) { r.Want.Priority = lockkeeper.MaxPriority + 1 },
		"reason":    func(r *quorum.Request) { r.Kind = quorum.End },
		"favour":    func(r *quorum.Request) { r.Kind, r.Favour = quorum.Return, "s" },
	} {
		r := good
		damage(&r)
		if _, err := Encode(Set{}, r); err == nil {
			t.Errorf("%s: %+v was taken", name, r)
		}
	}
}

// A value that Decode takes is written again as the same value, so nothing is lost or guessed.
func FuzzDecode(f *testing.F) {
	whole := wholeReply()
	f.Add(packed(&whole))
	f.Add(packed(&quorum.Reply{Outcome: quorum.NoSession}))
	f.Add([]byte{0x98, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Decode(quorum.List, text)
		if err != nil {
			return
		}
		again, err := Decode(quorum.List, packed(&r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v turns into %+v (%v)", r, again, err)
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(packedMessage(&quorum.Message{To: "party", Session: "s", Epoch: 4, Now: 1 << 50, Claim: wholeClaim()}))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := DecodeMessage(text)
		if err != nil {
			return
		}
		again, err := DecodeMessage(packedMessage(&m))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v turns into %+v (%v)", m, again, err)
		}
	})
}
