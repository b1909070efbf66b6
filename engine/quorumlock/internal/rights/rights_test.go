package rights

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

func newDecider(t *testing.T, p *access.Policy) *Decider {
	t.Helper()
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return New(text)
}

func policy() *access.Policy {
	highest := 5
	return &access.Policy{
		Rules: []access.Rule{
			{Who: []string{"ci"}, May: []access.Verb{access.Look, access.Lock}, Paths: []string{"free"}},
			{Who: []string{"ops"}, May: []access.Verb{access.Look, access.Revoke, access.Freeze}, Paths: []string{"free"}},
			{Who: []string{"blind"}, May: []access.Verb{access.Revoke}, Paths: []string{"other"}},
		},
		Quotas: []access.Quota{{
			Who: []string{"ci"}, Claims: 3, Waiting: 1, Sessions: 2, Paths: 4, SessionClaims: 3,
			LongestTTL: duration.Span(time.Hour), HighestPriority: &highest,
		}},
	}
}

// A server is a table, and a decider before it.
type server struct {
	*testing.T
	*Decider
	table *table.Table
}

func (s *server) step(c table.Command) (table.Reply, error) {
	s.Helper()
	c.At = s.table.Now() + time.Millisecond
	reply, err := s.table.Step(&c)
	s.Applied(s.table, &c)
	return reply, err
}

func attach(id string) table.Command {
	return table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: id, TTL: time.Minute}}
}

func claim(k lockkeeper.Key, id uint64, paths ...lockkeeper.Path) table.Command {
	w := lockkeeper.Want{ID: id}
	for _, p := range paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: p, Mode: lockkeeper.ModeExclusive})
	}
	return table.Command{Op: table.Claim, Key: k, Want: w}
}

func end(k lockkeeper.Key, e lockkeeper.Ending) table.Command {
	return table.Command{Op: table.End, Key: k, Ending: e}
}

// A lower longest TTL takes nothing away: a session that has more is attached again.
func TestLowerTTLTakesNoSessionAway(t *testing.T) {
	s := &server{t, newDecider(t, policy()), table.New()}
	c := attach("ci:a") // of a time with another quota
	c.Session.TTL = 2 * time.Hour
	if _, err := s.step(c); err != nil {
		t.Fatal(err)
	}
	for ttl, permitted := range map[time.Duration]bool{
		2 * time.Hour: true, time.Hour + 1: true, 2*time.Hour + 1: false, 0: false,
	} {
		c.Session.TTL = ttl
		err := s.Permit(s.table, replica.Caller{Name: "ci"}, &c)
		if permitted != (err == nil) || err != nil && !errors.Is(err, lockkeeper.Quota) {
			t.Errorf("TTL %s: %v", ttl, err)
		}
		if err == nil {
			s.Dropped(&c)
		}
	}
}

func TestRights(t *testing.T) {
	s := &server{t, newDecider(t, policy()), table.New()}
	held, _ := s.step(attach("ci:a"))
	if _, err := s.step(claim(held.Lease.Key, 1, "free/x")); err != nil {
		t.Fatal(err)
	}
	own, ops := lockkeeper.Key{Session: "ci:a", Epoch: 1}, lockkeeper.Key{Session: "ops:"}
	with := func(c table.Command, change func(*table.Command)) table.Command {
		change(&c)
		return c
	}
	revoke := lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "ci:a", ID: 1}}
	thaw := func(p lockkeeper.Path) lockkeeper.Ending { return lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: p} }
	for name, c := range map[string]struct {
		by      string
		command table.Command
		is      error  // nil: it is permitted
		says    string // in the error
	}{
		"nobody":                 {"", attach("ci:b"), lockkeeper.ErrDenied, "does not authenticate its clients"},
		"nobody, an open name":   {"", attach("b"), lockkeeper.ErrDenied, "does not authenticate"},
		"the time":               {"", table.Command{Op: table.Renew}, nil, ""},
		"a stranger":             {"eve", attach("eve:b"), lockkeeper.ErrDenied, "no rule allows it anything"},
		"no name at all":         {"ci:a", attach("ci:a"), lockkeeper.ErrDenied, "only letters"},
		"another's session":      {"ops", attach("ci:a"), lockkeeper.ErrDenied, `session "ci:a" is not one of ops`},
		"a name that begins so":  {"ci", attach("ci2:a"), lockkeeper.ErrDenied, "not one of ci"},
		"another's renewal":      {"ops", table.Command{Op: table.Renew, Key: own}, lockkeeper.ErrDenied, "not one of ops"},
		"another's claim":        {"ops", claim(own, 2, "free"), lockkeeper.ErrDenied, "not one of ops"},
		"another's end":          {"ops", end(own, lockkeeper.Ending{ID: 1}), lockkeeper.ErrDenied, "not one of ops"},
		"own session":            {"ci", attach("ci:b"), nil, ""},
		"own renewal":            {"ci", table.Command{Op: table.Renew, Key: own}, nil, ""},
		"own end":                {"ci", end(own, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}), nil, ""},
		"a path below":           {"ci", claim(own, 2, "free/y"), nil, ""},
		"a path beside":          {"ci", claim(own, 2, "free/y", "freedom"), lockkeeper.ErrDenied, "may not lock freedom"},
		"a path above":           {"ci", claim(own, 2, lockkeeper.Root), lockkeeper.ErrDenied, "may not lock everything"},
		"a lock without a right": {"ops", claim(ops, 2, "free/y"), lockkeeper.ErrDenied, "no rule allows it to lock"},
		"a long TTL": {"ci", with(attach("ci:b"), func(c *table.Command) { c.Session.TTL = 2 * time.Hour }), lockkeeper.Quota,
			"longer than 1h"},
		"a session without end": {"ci", with(attach("ci:b"), func(c *table.Command) { c.Session.TTL = 0 }), lockkeeper.Quota,
			"without end"},
		"a high priority": {"ci", with(claim(own, 2, "free/y"), func(c *table.Command) { c.Want.Priority = 6 }),
			lockkeeper.Quota, "priority 6"},
		"inside another's": {"ci", with(claim(own, 2, "free/y"), func(c *table.Command) {
			c.Want.Inside = lockkeeper.Ref{Session: "ops:x", ID: 1}
		}), lockkeeper.ErrDenied, "which is another's"},
		"a freeze": {"ops", with(claim(ops, 2, "free"), func(c *table.Command) { c.Want.Freeze = time.Minute }), nil, ""},
		"a freeze without a right": {"ci", with(claim(own, 2, "free"), func(c *table.Command) {
			c.Want.Freeze = time.Minute
		}), lockkeeper.ErrDenied, "may not freeze free"},
		"a thaw":                  {"ops", end(ops, thaw("free")), nil, ""},
		"a thaw beside":           {"ops", end(ops, thaw("other")), lockkeeper.ErrDenied, "may not freeze other"},
		"a revocation":            {"ops", end(ops, revoke), nil, ""},
		"a revocation, unallowed": {"ci", end(own, revoke), lockkeeper.ErrDenied, "ci may not revoke a.1"},
		"a revocation, unseen": {"blind", end(lockkeeper.Key{Session: "blind:"}, revoke), lockkeeper.ErrNotHeld,
			"no claim ci:a.1"},
		"a command of no caller": {"ci", table.Command{Op: table.Restart}, lockkeeper.ErrDenied, "may not do that"},
	} {
		err := s.Permit(s.table, replica.Caller{Name: c.by}, &c.command)
		if c.is == nil && err == nil {
			s.Dropped(&c.command)
			continue
		}
		if c.is == nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.is, c.says)
		}
	}
}

func TestPolicyThatCannotBeReadDeniesEverything(t *testing.T) {
	later := `{"form":1,"rules":[{"who":["ci"],"may":["lock"],"paths":["*"]}],"later":true}`
	s := &server{t, New([]byte(later)), table.New()}
	c := attach("ci:a")
	if err := s.Permit(s.table, replica.Caller{Name: "ci"}, &c); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Error(err)
	}
}

func TestQuotasCountWhatIsOnItsWay(t *testing.T) {
	s := &server{t, newDecider(t, policy()), table.New()}
	ci := replica.Caller{Name: "ci"}
	permit := func(c table.Command, want bool) {
		t.Helper()
		err := s.Permit(s.table, ci, &c)
		if want != (err == nil) || err != nil && !errors.Is(err, lockkeeper.Quota) {
			t.Fatalf("permitted: %v, want %v", err, want)
		}
	}
	a, b := attach("ci:a"), attach("ci:b")
	permit(a, true)
	permit(b, true)
	permit(attach("ci:c"), false)
	permit(a, true) // a repeated call
	s.Dropped(&a)
	permit(attach("ci:c"), false)
	s.Dropped(&b)
	permit(attach("ci:c"), true)
	lost := attach("ci:c")
	s.Dropped(&lost)
	reply, _ := s.step(a)
	k := reply.Lease.Key
	one, two, three := claim(k, 1, "free/1"), claim(k, 2, "free/2"), claim(k, 3, "free/3")
	permit(one, true)
	permit(two, true)
	permit(three, true)
	permit(claim(k, 4, "free/4"), false)
	permit(one, true)
	for _, c := range []table.Command{one, two, three, one} {
		if _, err := s.step(c); err != nil {
			t.Fatal(err)
		}
	}
	permit(one, true) // the table has it
	permit(claim(k, 4, "free/4"), false)
	if _, err := s.step(end(k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 2})); err != nil {
		t.Fatal(err)
	}
	permit(claim(k, 4, "free/4", "free/5", "free/6"), false) // five paths
	waits := claim(k, 4, "free/4")
	waits.Want.Wait = time.Minute
	permit(waits, true)
}

// What a decider counts is what the table has, whatever happens, and no quota is ever exceeded.
func TestUsageIsThatOfTheTable(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(10, 1000)) {
		random := rand.New(rand.NewPCG(seed, 7))
		p := policy()
		p.Quotas[0] = access.Quota{Who: []string{"*"}, Claims: 6, Waiting: 2, Sessions: 3, Paths: 9}
		everything := []access.Verb{access.Lock, access.Revoke, access.Look}
		p.Rules = []access.Rule{{Who: []string{"*"}, May: everything, Paths: []string{"*"}}}
		s := &server{t, newDecider(t, p), table.New()}
		keys := make(map[string]lockkeeper.Key)
		var coming []table.Command
		refused := 0
		for range 2000 {
			if len(coming) > 0 && random.IntN(3) == 0 {
				c := coming[0]
				coming = coming[1:]
				c.At = s.table.Now() + time.Duration(random.Int64N(int64(time.Second)))
				reply, _ := s.table.Step(&c)
				s.Applied(s.table, &c)
				if k := reply.Lease.Key; k.Session != "" {
					keys[k.Session] = k
				}
			} else if c, by := randomCommand(random, keys); s.Permit(s.table, replica.Caller{Name: by}, &c) != nil {
				refused++
			} else if random.IntN(10) == 0 {
				s.Dropped(&c)
			} else {
				coming = append(coming, c)
				if random.IntN(10) == 0 && s.Permit(s.table, replica.Caller{Name: by}, &c) == nil {
					coming = append(coming, c) // a copy
				}
			}
			if err := compare(&s.usage, s.table, len(coming) == 0); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if refused == 0 {
			t.Errorf("seed %d: nothing was refused", seed)
		}
	}
}

func randomCommand(random *rand.Rand, keys map[string]lockkeeper.Key) (c table.Command, by string) {
	by = []string{"ci", "ci2"}[random.IntN(2)]
	session := fmt.Sprintf("%s:%d", by, random.IntN(5))
	k := keys[session]
	if k.Session == "" || random.IntN(6) == 0 {
		c = attach(session)
		c.Session.TTL = time.Duration(1+random.IntN(20)) * time.Second
		return c, by
	}
	switch random.IntN(6) {
	case 0:
		return table.Command{Op: table.Renew, Key: k}, by
	case 1:
		return end(k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: uint64(1 + random.IntN(8))}), by
	case 2:
		if random.IntN(4) == 0 {
			return end(k, lockkeeper.Ending{Kind: lockkeeper.Leave}), by
		}
		other := lockkeeper.Ref{Session: fmt.Sprintf("ci:%d", random.IntN(5)), ID: uint64(1 + random.IntN(8))}
		return end(k, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: other, Force: true}), by
	}
	paths := []lockkeeper.Path{"a", "b/c", "d", "e", "f"}[:1+random.IntN(3)]
	if random.IntN(2) == 0 {
		paths = []lockkeeper.Path{lockkeeper.Path(fmt.Sprint("p", random.IntN(20)))}
	}
	c = claim(k, uint64(1+random.IntN(8)), paths...)
	if random.IntN(2) == 0 {
		c.Want.Wait = time.Duration(1+random.IntN(20)) * time.Second
	}
	return c, by
}

// compare compares what a decider has counted with the table.
func compare(u *usage, t *table.Table, settled bool) error {
	fresh := usage{}
	fresh.read(t)
	for _, name := range []string{"ci", "ci2"} {
		want := fresh.named(name)
		if want.claims > 6 || want.waiting > 2 || want.paths > 9 || t.Sessions() > 6 {
			return fmt.Errorf("%s has %+v, %d sessions in all: more than its quota", name, want.count, t.Sessions())
		}
		if u.of == nil {
			continue
		}
		got := u.named(name)
		u.prune(got, t)
		if settled && (got.count != want.count || got.coming != 0 || len(got.sessions) != len(want.sessions)) {
			return fmt.Errorf("%s has %+v, counted are %+v, %d of %d sessions and %d on their way", name, want.count, got.count,
				len(got.sessions), len(want.sessions), got.coming)
		}
		if got.claims < want.claims || got.paths < want.paths {
			return fmt.Errorf("%s has %+v, counted are only %+v", name, want.count, got.count)
		}
	}
	return nil
}
