package script

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// refused executes r, which must be refused, and returns what the refusal means.
func (g *target) refused(now quorum.Micros, r quorum.Request) error {
	g.t.Helper()
	reply, err := g.evaluate(now, r)
	if err == nil {
		g.t.Fatalf("%+v was answered: %+v", r, reply)
	}
	meaning := Refusal(err)
	if meaning == nil {
		g.t.Fatalf("an error without meaning: %v", err)
	}
	return meaning
}

// dump returns every key of the set with its bytes.
func (g *target) dump() map[string]string {
	g.t.Helper()
	all := map[string]string{}
	for _, key := range g.commands.do("KEYS", g.set.Data+"*").([]any) {
		all[key.(string)] = g.commands.do("DUMP", key).(string)
	}
	return all
}

// state returns the data as text: not as DUMP, for the order in a hash may differ.
func (g *target) state() string {
	g.t.Helper()
	var lines []string
	for key := range g.dump() {
		var value any
		switch g.commands.do("TYPE", key) {
		case "string":
			value = g.commands.do("GET", key)
		case "list":
			value = g.commands.do("LRANGE", key, 0, -1)
		case "zset":
			value = g.commands.do("ZRANGE", key, 0, -1, "WITHSCORES")
		case "hash":
			fields := map[any]any{} // which prints sorted
			all := g.commands.do("HGETALL", key).([]any)
			for i := 0; i < len(all); i += 2 {
				fields[all[i]] = all[i+1]
			}
			value = fields
		}
		lines = append(lines, fmt.Sprintf("%q: %q", key, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func attachRequest(session string) quorum.Request {
	return quorum.Request{
		Kind: quorum.Attach, Session: session,
		Attach: quorum.AttachRequest{NewEpoch: 1, Nonce: "n", TTL: 9_000_000, To: "party"},
	}
}

func claimRequest(session string, id uint64, paths ...string) quorum.Request {
	return quorum.Request{
		Kind: quorum.Claim, Session: session, Epoch: 1, ID: id,
		Want: quorum.WantRecord{Paths: paths, Priority: int(id), Ticket: id, Steal: lockkeeper.Take, After: 5_000_000},
	}
}

// contended returns a target where a.1 holds x and y, b.2 waits for x and asks, and b.3 is over.
func contended(t *testing.T) *target {
	t.Helper()
	g := newTarget(t, testdb.SharedRedis(t))
	over := claimRequest("b", 3, "z")
	over.Kind, over.Reason = quorum.End, lockkeeper.Released
	for _, r := range []quorum.Request{
		attachRequest("a"), attachRequest("b"), claimRequest("a", 1, "x", "y"), claimRequest("b", 2, "x"),
		claimRequest("b", 3, "z"), over,
	} {
		if reply, err := g.evaluate(origin, r); err != nil || reply.Outcome != quorum.Done {
			t.Fatalf("%+v: %+v, %v", r, reply, err)
		}
	}
	return g
}

func TestOtherMarkerIsRefused(t *testing.T) {
	g := contended(t)
	before := g.state()
	for _, kind := range []quorum.Kind{quorum.Attach, quorum.Claim, quorum.End, quorum.List} {
		r := claimRequest("a", 4, "free")
		r.Kind, r.Reason, r.Limit = kind, lockkeeper.Released, 1
		g.commands.do("HSET", g.set.SetKey, "marker", "id:1.2.1")
		var other *OtherSetError
		if err := g.refused(origin, r); !errors.As(err, &other) || other.Marker != "id:1.2.1" {
			t.Errorf("kind %d under another marker: %v", kind, err)
		}
		g.commands.do("DEL", g.set.SetKey)
		if err := g.refused(origin, r); !errors.Is(err, ErrGone) {
			t.Errorf("kind %d without a marker: %v", kind, err)
		}
		g.commands.do("SET", g.set.SetKey, "text")
		if err := g.refused(origin, r); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), g.set.SetKey) {
			t.Errorf("kind %d with a marker of another type: %v", kind, err)
		}
		g.commands.do("DEL", g.set.SetKey)
	}
	if g.state() != before {
		t.Error("a refused request changed data")
	}
}

// Anybody may write into a shared Redis. A key of another type is an error that names it, and a
// request that meets it changes nothing.
func TestKeyOfAnotherTypeIsRefused(t *testing.T) {
	g := contended(t)
	free := claimRequest("a", 9, "free")
	end := claimRequest("a", 1, "x", "y")
	end.Kind, end.Reason = quorum.End, lockkeeper.Released
	leave := end
	leave.Kind = quorum.Leave
	list := quorum.Request{Kind: quorum.List, Limit: 10}
	for _, c := range []struct {
		key      string
		requests []quorum.Request
	}{
		{"floor", []quorum.Request{free, end, leave, list, attachRequest("new")}},
		{"last", []quorum.Request{free, end, leave, list, attachRequest("new")}},
		{"until", []quorum.Request{end, leave, list, attachRequest("new")}},
		{"names", []quorum.Request{leave, list, attachRequest("new")}},
		{"s:a", []quorum.Request{free, end, leave, list, claimRequest("b", 4, "y")}},
		{"s:b", []quorum.Request{end, leave, list, claimRequest("b", 4, "free")}},
		{"s:new", []quorum.Request{attachRequest("new")}},
		{"p:x", []quorum.Request{end, leave, list, claimRequest("a", 4, "x"), claimRequest("b", 4, "x")}},
		{"p:free", []quorum.Request{free}},
		{"q:x", []quorum.Request{end, leave, list, claimRequest("a", 4, "x")}},
		{"q:y", []quorum.Request{claimRequest("a", 4, "y")}},
	} {
		for _, foreign := range [][]any{{"RPUSH", "one", "two"}, {"SET", "garbage"}, {"HSET", "field", "value"}} {
			key := g.set.Data + c.key
			was := g.commands.do("DUMP", key)
			g.commands.do("DEL", key)
			g.commands.do(slices.Insert(slices.Clone(foreign), 1, any(key))...)
			before := g.state()
			for _, r := range c.requests {
				if err := g.refused(origin+1, r); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), key) {
					t.Errorf("kind %d, %v at %s: %v", r.Kind, foreign, key, err)
				}
				if g.state() != before {
					t.Fatalf("kind %d, %v at %s: a refused request changed data", r.Kind, foreign, key)
				}
			}
			g.commands.do("DEL", key)
			if was != nil {
				g.commands.do("RESTORE", key, 0, was)
			}
		}
	}
}

// Bytes of a record that changed lead to an error that changes nothing, or to a reply in the form of
// a reply: never to a script that stops half-way.
func TestChangedBytesNeverStopScriptHalfWay(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(3, 200)) {
		random := rand.New(rand.NewPCG(seed, 0))
		g := contended(t)
		whole := g.dump()
		for range 150 {
			g.damage(random, whole)
			before := g.state()
			r := claimRequest([]string{"a", "b", "c"}[random.IntN(3)], uint64(1+random.IntN(4)), "x")
			r.Kind = quorum.Kind(1 + random.IntN(int(quorum.List)))
			r.Reason, r.Limit, r.Vote, r.Fence = lockkeeper.Released, 10, 1, 1
			r.Attach, r.Restore = quorum.AttachRequest{NewEpoch: 2, TTL: 1}, quorum.RestoreRequest{TTL: 1}
			_, err := g.evaluate(origin+quorum.Micros(random.IntN(10_000_000)), r)
			if err == nil {
				continue
			}
			if strings.Contains(err.Error(), "the reply of the Redis server") {
				continue // Decode found it
			}
			if !errors.Is(Refusal(err), ErrDamaged) {
				t.Errorf("kind %d: %v\n%s", r.Kind, err, testmode.Replay(t, seed))
			}
			if g.state() != before {
				t.Errorf("kind %d: a refused request changed data: %v\n%s", r.Kind, err, testmode.Replay(t, seed))
			}
		}
	}
}

// damage restores all keys, and then changes a byte of a value in one of them.
func (g *target) damage(random *rand.Rand, whole map[string]string) {
	for key := range g.dump() {
		g.commands.do("DEL", key)
	}
	keys := slices.Sorted(maps.Keys(whole))
	for _, key := range keys {
		g.commands.do("RESTORE", key, 0, whole[key])
	}
	key := keys[random.IntN(len(keys))]
	change := func(v any) string {
		b := []byte(fmt.Sprint(v))
		switch i := random.IntN(len(b) + 1); {
		case i == len(b):
			b = append(b, byte(random.IntN(256)))
		case random.IntN(3) == 0:
			b = b[:i]
		default:
			b[i] = byte(random.IntN(256))
		}
		return string(b)
	}
	switch g.commands.do("TYPE", key) {
	case "string":
		g.commands.do("SET", key, change(g.commands.do("GET", key)))
	case "hash":
		all := g.commands.do("HGETALL", key).([]any)
		i := random.IntN(len(all)/2) * 2
		if random.IntN(4) == 0 {
			g.commands.do("HDEL", key, all[i])
			g.commands.do("HSET", key, change(all[i]), all[i+1])
		} else {
			g.commands.do("HSET", key, all[i], change(all[i+1]))
		}
	case "zset":
		all := g.commands.do("ZRANGE", key, 0, -1).([]any)
		m := all[random.IntN(len(all))]
		score := g.commands.do("ZSCORE", key, m)
		g.commands.do("ZREM", key, m)
		if random.IntN(2) == 0 {
			g.commands.do("ZADD", key, score, change(m))
		} else {
			g.commands.do("ZADD", key, []string{"inf", "-1.5", "nan", "0"}[random.IntN(2)], m)
		}
	}
}
