package lockkeeper

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// reflected returns the JSON of a status by encoding/json alone.
func reflected(s Status) ([]byte, error) {
	return marshalVisible(statusJSON{plainStatus(s), seconds(s.Age), finite(s.Left), seconds(s.ETA)})
}

// A status written by hand has the same bytes as one written by encoding/json.
func TestStatusIsWrittenAsByReflection(t *testing.T) {
	r := testmode.Rand(t)
	for range testmode.Pick(20_000, 1_000_000) {
		s := randomStatus(r)
		want, wantErr := reflected(s)
		got, err := json.Marshal(s)
		direct, directErr := s.MarshalJSON()
		if (err == nil) != (wantErr == nil) || (directErr == nil) != (wantErr == nil) {
			t.Fatalf("%+v: errors %v and %v, want %v", s, err, directErr, wantErr)
		}
		if wantErr == nil && (string(got) != string(want) || string(direct) != string(want)) {
			t.Fatalf("written %s\n and     %s\nwant     %s", got, direct, want)
		}
	}
}

func randomStatus(r *rand.Rand) Status {
	texts := []string{"", "", "a", "db/x", "ci 17", "<a&b>", "quo\"te", "back\\slash", "tab\t", "\x7f", "é", "\u202e",
		"\u2028", "\xff", "😀", "\U000e0041"}
	text := func() string { return texts[r.IntN(len(texts))] }
	numbers := []uint64{0, 0, 1, 7, 1 << 40, 1<<64 - 1}
	number := func() uint64 { return numbers[r.IntN(len(numbers))] }
	lengths := []time.Duration{0, 0, 1, -1, time.Second, -time.Second, 83200 * time.Millisecond, -1500 * time.Millisecond,
		-time.Millisecond, Forever, Forever - 1, -Forever, -Forever - 1, 30 * time.Second, time.Duration(r.Int64())}
	length := func() time.Duration { return lengths[r.IntN(len(lengths))] }
	yes := func() bool { return r.IntN(4) == 0 }
	ref := func() Ref {
		if yes() {
			return Ref{}
		}
		return Ref{text(), number()}
	}
	label := func() Label { return Label{text(), text(), text()} }
	s := Status{Ref: ref(), Change: number(), Revision: number(), State: State(r.IntN(6)), Text: text(), Label: label(),
		Fence: number(), Unconfirmed: yes(), Converting: yes(), Lapsed: yes(), Age: length(), Left: length(), ETA: length(),
		Ticket: number(), Position: int(number()), Priority: int(number())}
	if yes() {
		s.Inside = ref()
	}
	if yes() {
		s.Reason = Reason(r.IntN(30))
	}
	if !yes() {
		s.Grants = []Grant{}
		for range r.IntN(3) {
			s.Grants = append(s.Grants, Grant{Target{Path(text()), Mode(r.IntN(5)), int(number()), int(number())},
				int(number()), int(number())})
		}
	}
	if yes() {
		s.Asked = &Asked{By: ref(), Label: label(), Reason: Reason(r.IntN(30)), Left: length()}
	}
	if yes() {
		s.Waits = []WaitReason{WaitReason(r.IntN(12)), WaitReason(r.IntN(12))}
		s.Blockers = []Blocker{{Ref: ref(), Path: Path(text()), Age: length(), Left: length(), Label: label()}}
	}
	return s
}

// A status of a held claim is written without reflection: its bytes are all that is allocated, and
// the text of its claim.
func TestWrittenStatusAllocatesItsBytes(t *testing.T) {
	s := Status{
		Ref: Ref{"http-30s-abcdefgh", 1}, Change: 1_234_567, State: Held, Label: Label{As: "ci-17"}, Fence: 77,
		Grants: []Grant{{Target: Target{Path: "db/orders", Mode: ModeExclusive}}}, Left: Forever, Ticket: 7, Age: 1500,
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.MarshalJSON() }); n > 3 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkStatusJSON(b *testing.B) {
	s := Status{
		Ref: Ref{"http-30s-abcdefgh", 1}, Change: 1_234_567, State: Held, Label: Label{As: "ci-17"}, Fence: 77,
		Grants: []Grant{{Target: Target{Path: "db/orders", Mode: ModeExclusive}}}, Left: Forever, Ticket: 7, Age: 1500,
	}
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.MarshalJSON()
		}
	})
	b.Run("reflected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = reflected(s)
		}
	})
}
