package wire

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// The answer to a claim arrives complete, whichever fields of the want the engine changed.
func TestAnswersCross(t *testing.T) {
	r := testmode.Rand(t)
	brief := 0
	for range 2000 {
		var want lockkeeper.Want
		var status lockkeeper.Status
		fill(r, reflect.ValueOf(&want).Elem(), true)
		fill(r, reflect.ValueOf(&status).Elem(), true)
		status.Ref.Session = "k3v9"
		repeat(r, &status, &want)
		before := status
		before.Grants = slices.Clone(status.Grants)
		m := NewAnswer(&status, "k3v9", &want)
		if m.GetAsAsked() {
			brief++
		}
		fast := marshal(nil, m, m.SizeVT())
		again := new(Status)
		if err := again.UnmarshalVT(fast); err != nil {
			t.Fatal(err)
		}
		if read := again.readAnswer("k3v9", &want); !reflect.DeepEqual(read, before) {
			t.Fatalf("crossed as\n%+v, want\n%+v", read, before)
		}
	}
	if brief < 100 {
		t.Errorf("%d of 2000 answers are brief", brief)
	}
}

// repeat makes a status repeat all fields of a want but at most one.
func repeat(r *rand.Rand, s *lockkeeper.Status, w *lockkeeper.Want) {
	s.Label, s.Inside, s.Revision, s.Priority = w.Label, w.Inside, w.Revision, w.Priority
	grants := make([]lockkeeper.Grant, len(w.Targets))
	for i, t := range w.Targets {
		grants[i].Target = t
		if r.IntN(2) == 0 {
			grants[i].InUse, grants[i].Slot = r.IntN(3), r.IntN(3)
		}
	}
	if s.Grants = grants; len(grants) == 0 {
		s.Grants = nil
	}
	switch r.IntN(12) {
	case 0:
		s.Label.Note += "!"
	case 1:
		s.Inside.ID++
	case 2:
		s.Revision++
	case 3:
		s.Priority++
	case 4:
		s.Grants = nil
	case 5:
		if len(s.Grants) > 0 {
			s.Grants[r.IntN(len(s.Grants))].Units++
		}
	}
}

// A server that says as_asked, whatever its grants are, yields no more than the targets.
func TestAnswerHasTheTargetsAlone(t *testing.T) {
	want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}}
	m := &Status{Id: 1, AsAsked: true, Grants: []*Grant{{Path: "b", Slot: 2}, {Path: "c"}, nil}}
	got := m.readAnswer("k3v9", &want).Grants
	if len(got) != 1 || got[0].Target != want.Targets[0] || got[0].Slot != 2 {
		t.Errorf("grants are %+v", got)
	}
}
