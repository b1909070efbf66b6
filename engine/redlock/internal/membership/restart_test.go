package membership

import "testing"

// A durable server restarts while it is not a member yet: at the first use, before it is told the
// time out, and during that time. It keeps its record, and becomes a member.
func TestDurableServerThatRestartsOnItsWayBecomesAMember(t *testing.T) {
	names := []string{"a:1", "b:1", "c:1"}
	tagged := func(i int) Record {
		return Record{
			Answered: true, RunID: "1", Recorded: "1", Durable: true, Servers: 3, Index: i, Names: names,
			Generation: NewGeneration(1, uint32(i)), Now: 100,
		}
	}
	first := func(seen []Record) Step {
		t.Helper()
		for _, s := range Decide(names, seen, Vector{}).Steps {
			if s.Server == 2 {
				return s
			}
		}
		t.Fatalf("no step for server 2")
		return Step{}
	}
	for _, at := range []string{"the first use", "a first use that stopped", "the barrier", "its time out"} {
		seen := []Record{tagged(0), tagged(1), tagged(2)}
		v := newVector([]Generation{seen[0].Generation, seen[1].Generation, seen[2].Generation})
		want := Commit
		if at != "the first use" {
			seen[0].Vector, seen[1].Vector = v, v
		}
		switch at {
		case "the barrier":
			want = PutOut
		case "its time out":
			want, seen[2].Out = Join, 50
		}
		if want != Commit {
			seen[2].Generation = NewGeneration(2, 7)
			seen[0].Vector, seen[1].Vector = v.with(2, seen[2].Generation), v.with(2, seen[2].Generation)
		}
		seen[2].RunID = "2"
		if got := first(seen); got.Kind != Relabel {
			t.Errorf("%s: step %d for a server that restarted, want Relabel: its script refuses others", at, got.Kind)
		}
		seen[2].Recorded = "2"
		if got := first(seen); got.Kind != want {
			t.Errorf("%s: step %d after the Relabel, want %d", at, got.Kind, want)
		}
	}
}
