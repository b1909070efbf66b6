package join

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// The refusals of each step that do not need an interleaving.
func TestStepsOfOthersAreRefused(t *testing.T) {
	const id = 7
	claim := &Claim{Key: joinerKey(0), Name: "a", ID: id}
	member := Node{Name: "a", ID: id, Key: joinerKey(0), Address: netip.MustParseAddrPort("10.0.0.1:1")}
	otherKey := func(r *request) { r.key = joinerKey(1) }
	joins := func(also func(r *request)) func(r *request) {
		return func(r *request) {
			r.Step = stepJoin
			also(r)
		}
	}
	otherName := func(r *request) { r.Node.Name = "b" }
	same := func(r *request) {}
	for _, c := range []struct {
		about    string
		claim    *Claim
		member   *Node
		expelled bool
		change   func(r *request)
		want     Code // "" is a grant
	}{
		{"a begin", claim, nil, false, same, ""},
		{"a repeated begin", claim, &member, false, same, ""},
		{"a begin of an expelled id", claim, nil, true, same, Expelled},
		{"a begin of an expelled member", claim, &member, true, same, Expelled},
		{"a begin without a join", nil, nil, false, same, TokenUsed},
		{"a begin under another id", claim, nil, false, func(r *request) { r.Node.ID++ }, TokenUsed},
		{"a begin with another key", claim, nil, false, otherKey, TokenUsed},
		{"a begin with another key, of a member", claim, &member, false, otherKey, TokenUsed},
		{"a begin under another name", claim, nil, false, otherName, TokenUsed},
		{"a begin with another secret", claim, nil, false, func(r *request) { r.Secret = secrets[1] }, TokenUnknown},
		{"a repeated join", claim, nil, false, joins(same), ""},
		{"a join of a member", claim, &member, false, joins(same), Joined},
		{"a join with an expelled id", claim, nil, true, joins(same), Expelled},
		{"a join under another name", claim, nil, false, joins(otherName), TokenUsed},
		{"a join with another key", claim, nil, false, joins(otherKey), TokenUsed},
		{"a join of a taken name", nil, &member, false, joins(otherKey), NameTaken},
		{"a join of an expelled name", nil, &member, true, joins(otherKey), ""},
		{"a join with the key of a member", nil, &member, false, joins(otherName), KeyTaken},
	} {
		m := newMemory()
		set := func(key string, value any) {
			setting, err := Setting{Key: key}.with(value)
			if err == nil {
				err = m.Put(t.Context(), setting)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		token := tokenRecord(0)
		token.Ends, token.Claim = time.Hour, c.claim
		set(token.key(), token)
		if c.member != nil {
			set(nodePrefix+c.member.Name, c.member)
		}
		if c.expelled {
			set(voters.ExpelledKey(id), "gone")
		}
		r := &request{Step: stepBegin, Secret: secrets[0], key: joinerKey(0), Node: Node{Name: "a", ID: id}}
		c.change(r)
		v, _ := m.Read(t.Context())
		change, granted, err := decide(v, r, func() uint64 { return 8 })
		refusal, refused := errors.AsType[*Refusal](err)
		switch {
		case c.want == "" && (err != nil || change == nil && granted != id):
			t.Errorf("%s: change %v, id %d, %v; want a grant", c.about, change, granted, err)
		case c.want != "" && (!refused || refusal.Code != c.want || refusal.Detail == ""):
			t.Errorf("%s: change %v, id %d, %v; want the refusal %q", c.about, change, granted, err, c.want)
		}
	}
}
