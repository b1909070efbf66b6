package disklock

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// texts are such as people and programs send.
var texts = []string{"", "db", "a b", `say "hi"`, `back\slash`, "tab\tand\nline", "grüße", "日本", "\u2028",
	"</script>", strings.Repeat("x", 500)}

func pick(random *rand.Rand) string { return texts[random.IntN(len(texts))] }

// randomCommand has in it only what its op looks at.
func randomCommand(random *rand.Rand) table.Command {
	duration := func() time.Duration {
		return []time.Duration{0, 1, time.Second, lockkeeper.MaxDuration, lockkeeper.Forever}[random.IntN(5)]
	}
	label := lockkeeper.Label{As: pick(random), Note: pick(random), Link: pick(random)}
	c := table.Command{At: duration(), Op: table.Op(random.IntN(int(table.Restart) + 1))}
	key := lockkeeper.Key{
		Session:    pick(random),
		Epoch:      random.Uint64(),
		LowestOpen: random.Uint64N(3),
		Acked:      random.Uint64N(3),
	}
	switch c.Op {
	case table.Attach:
		c.Session = lockkeeper.Session{
			ID:      pick(random),
			TTL:     duration(),
			Epoch:   random.Uint64N(3),
			Outlive: random.IntN(2) == 0,
			Label:   label,
		}
		for range random.IntN(4) {
			c.Session.Named = append(c.Session.Named, random.Uint64())
		}
		for range random.IntN(3) {
			c.Session.Lapsed = append(c.Session.Lapsed, randomLapse(random))
		}
	case table.Renew, table.Gone:
		c.Key = key
	case table.Pass:
		if random.IntN(2) == 0 {
			c.Key = key
		}
	case table.Claim:
		c.Key = key
		c.Want = randomWant(random, duration, label)
	case table.End:
		c.Key = key
		c.Ending.Kind = lockkeeper.EndingKind(1 + random.IntN(5))
		switch c.Ending.Kind {
		case lockkeeper.Release:
			c.Ending.ID = random.Uint64()
		case lockkeeper.Revoke:
			c.Ending.Ref, c.Ending.Force, c.Ending.Label = lockkeeper.Ref{Session: pick(random),
				ID: random.Uint64()}, random.IntN(2) == 0, label
		case lockkeeper.Thaw:
			c.Ending.Path = lockkeeper.Path(pick(random))
		case lockkeeper.Lapsed:
			c.Ending.Lapse = randomLapse(random)
		}
	}
	return c
}

func randomWant(random *rand.Rand, duration func() time.Duration, label lockkeeper.Label) lockkeeper.Want {
	w := lockkeeper.Want{
		ID:       random.Uint64(),
		Revision: uint64(random.IntN(3)),
		Inside:   lockkeeper.Ref{Session: pick(random), ID: random.Uint64N(3)},
		Priority: random.IntN(9) - 4, Wait: duration(), WriterPolicy: lockkeeper.WriterPolicy(random.IntN(2)), Quiet: duration(),
		Steal:    lockkeeper.Steal(random.IntN(3)),
		After:    duration(),
		MaxHold:  duration(),
		Grace:    duration(),
		Expected: duration(),
		Freeze:   duration(),
		Label:    label,
	}
	for range 1 + random.IntN(4) {
		w.Targets = append(w.Targets, lockkeeper.Target{
			Path:  lockkeeper.Path(pick(random)),
			Mode:  lockkeeper.Mode(1 + random.IntN(3)),
			Units: random.IntN(3),
			Limit: random.IntN(1 << 30),
		})
	}
	return w
}

func randomLapse(random *rand.Rand) lockkeeper.Lapse {
	return lockkeeper.Lapse{
		ID:     random.Uint64(),
		Reason: lockkeeper.Reason(random.IntN(10)),
		EndsAt: time.Duration(random.IntN(3)),
	}
}

// What is written is read again, by encoding/json.
func TestEntryRoundTrip(t *testing.T) {
	random := testmode.Rand(t)
	for range 5000 {
		commands := []table.Command{randomCommand(random), randomCommand(random)}
		text := appendCommand(append(appendCommand([]byte{'['}, &commands[0]), ','), &commands[1])
		text = append(text, ']')
		read, err := decodeCommands(text)
		if err != nil || !reflect.DeepEqual(read, commands) {
			t.Fatalf("%s\nis read as %+v (%v)\nit was %+v", text, read, err, commands)
		}
	}
}

// A snapshot's records are read as they were.
func TestRecordRoundTrip(t *testing.T) {
	random := testmode.Rand(t)
	for range 1000 {
		w := randomCommand(random)
		for w.Op != table.Claim || w.Want.Inside.Session == "" && w.Want.Inside.ID != 0 {
			w = randomCommand(random)
		}
		r := table.ClaimRecord{Ref: lockkeeper.Ref{Session: "s.1", ID: 7}, Want: w.Want,
			State: lockkeeper.State(1 + random.IntN(3)), Bound: lockkeeper.Forever,
			StatedEnd: lockkeeper.Forever,
			Change:    random.Uint64(),
			Reason:    lockkeeper.Reason(random.IntN(3)),
			Text:      pick(random),
			Asks:      []table.AskRecord{{End: 5}},
			Operator:  &table.OperatorRecord{Label: w.Want.Label, End: 9}, Grants: []lockkeeper.Grant{{
				Target: w.Want.Targets[0],
				InUse:  3,
				Slot:   1,
			}}}
		r.Lapse = &table.LapseRecord{End: 8, Reason: lockkeeper.Stolen, Text: pick(random)}
		text, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		var snap table.Snapshot
		if err := addRecord(&snap, kindClaim, string(text)); err != nil || !reflect.DeepEqual(snap.Claims[0], r) {
			t.Fatalf("%s\nis read as %+v (%v)\nit was %+v", text, snap.Claims, err, r)
		}
	}
}

func TestEntryRefuses(t *testing.T) {
	for _, text := range []string{
		"", "[", "{}", `[{"op":"dance"}]`, `[{"op":"claim"}]`, `[{"op":"attach"}]`, `[{"op":"end","end":{"kind":"all"}}]`,
		`[{"op":"end","end":{"kind":""}}]`,
		`[{"op":"pass","new":1}]`, `[{"op":"pass"}] [`,
		`[{"op":"claim","want":{"id":1,"targets":[{"path":"x","mode":"much"}]}}]`,
	} {
		if read, err := decodeCommands([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v, want an error", text, read)
		}
	}
}

// FuzzText: any text is a JSON string, and the same again if it is UTF-8.
func FuzzText(f *testing.F) {
	for _, s := range texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var read string
		if err := json.Unmarshal(appendText(nil, s), &read); err != nil || read != strings.ToValidUTF8(s, "\uFFFD") &&
			read != string([]rune(s)) {
			t.Errorf("%q is read as %q (%v)", s, read, err)
		}
	})
}

// FuzzEntry: what can be read is written as what is read again.
func FuzzEntry(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		c := randomCommand(random)
		f.Add(append(appendCommand([]byte{'['}, &c), ']'))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := decodeCommands(text)
		if err != nil {
			return
		}
		for _, c := range read {
			if c.Op == table.End && !reflect.DeepEqual(c.Ending, only(c.Ending)) ||
				c.Want.Targets != nil && len(c.Want.Targets) == 0 ||
				c.Session.Named != nil && len(c.Session.Named) == 0 || c.Op == table.Claim && c.Want.Targets == nil {
				continue // we don't write such
			}
			again, err := decodeCommands(append(appendCommand([]byte{'['}, &c), ']'))
			if err != nil || !reflect.DeepEqual(again[0], c) {
				t.Errorf("%+v is read as %+v (%v)", c, again, err)
			}
		}
	})
}

// only is e with what its kind looks at.
func only(e lockkeeper.Ending) lockkeeper.Ending {
	switch e.Kind {
	case lockkeeper.Release:
		return lockkeeper.Ending{Kind: e.Kind, ID: e.ID}
	case lockkeeper.Revoke:
		return lockkeeper.Ending{Kind: e.Kind, Ref: e.Ref, Force: e.Force, Label: e.Label}
	case lockkeeper.Thaw:
		return lockkeeper.Ending{Kind: e.Kind, Path: e.Path}
	}
	return lockkeeper.Ending{Kind: e.Kind}
}
