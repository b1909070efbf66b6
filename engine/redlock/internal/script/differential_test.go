package script

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// origin is the first time on the clock of the server.
const origin = 1_700_000_000_000_000

// The scripts and quorum.Server answer random requests alike. The requests collide: few paths,
// sessions and claims, and times around the ends that the replies state.
func TestScriptsAndServerAgree(t *testing.T) {
	redis := testdb.SharedRedis(t)
	for seed := range testmode.Seeds(t, testmode.Pick(60, 20_000)) {
		claims := MaxClaims
		if seed%3 == 0 {
			claims = 2
		}
		g := newLimitedTarget(t, redis, claims)
		w := &world{
			random: rand.New(rand.NewPCG(seed, 0)),
			now:    origin,
			marks:  4,
			epochs: map[string]uint64{},
			votes:  map[string]uint64{},
		}
		switch seed % 4 {
		case 0:
			w.marks = 25
		case 1:
			w.revokes = 25
		}
		server := quorum.NewServer(quorum.Limits{Claims: claims})
		var story strings.Builder
		for range 150 {
			now, r := w.next()
			fmt.Fprintf(&story, "%d %s\n", now-origin, asText(r))
			want, wantMessages := server.Apply(now, r)
			got, gotMessages, err := g.apply(now, r)
			if err != nil {
				t.Fatalf("%s\n%v\n%s", &story, err, testmode.Replay(t, seed))
			}
			sortMessages(wantMessages)
			sortMessages(gotMessages)
			if asText(got) != asText(want) || asText(gotMessages) != asText(wantMessages) {
				t.Fatalf("%s\nscript: %s\n        %s\nserver: %s\n        %s\n%s", &story, asText(got), asText(gotMessages),
					asText(want), asText(wantMessages), testmode.Replay(t, seed))
			}
			w.learn(&r, &want)
		}
		g.commands.do("FLUSHALL")
		g.close()
	}
}

func sortMessages(all []quorum.Message) {
	slices.SortFunc(all, func(a, b quorum.Message) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Claim.ID, b.Claim.ID))
	})
}

// asText writes a value without its empty fields.
func asText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s := string(text)
	for was := ""; was != s; { // until no value has become empty
		was, s = s, strings.ReplaceAll(empty.ReplaceAllString(s, ""), ",}", "}")
	}
	return s
}

var empty = regexp.MustCompile(`"\w+":(0\b|""|null|false|\{\}|\[\]|"none")(,|$)?`)

// A world makes requests. It remembers what the replies state, so that some requests meet it.
type world struct {
	random *rand.Rand
	now    quorum.Micros
	ends   []quorum.Micros // times that a reply stated

	marks   int // percentage of requests with a low-water mark
	revokes int // percentage of requests that revoke, beside the usual ones

	asks   []quorum.AckRecord
	epochs map[string]uint64
	votes  map[string]uint64 // by claim
	wants  map[string]quorum.WantRecord
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

func oneOf[T any](w *world, all ...T) T { return all[w.random.IntN(len(all))] }

// time moves the clock: by little, to just before, at or after a stated end, or back.
func (w *world) time() {
	switch {
	case len(w.ends) > 0 && w.chance(15):
		end := w.ends[max(0, len(w.ends)-1-w.random.IntN(8))] + oneOf[quorum.Micros](w, -1, 0, 1)
		if end > w.now || w.chance(5) {
			w.now = end
		}
	case w.chance(2):
		w.now -= quorum.Micros(w.random.IntN(3_000_000))
	case w.chance(50):
		w.now += quorum.Micros(w.random.IntN(300_000))
	}
}

func (w *world) next() (quorum.Micros, quorum.Request) {
	w.time()
	r := quorum.Request{Session: oneOf(w, "a", "b", "b c", "é"), ID: uint64(1 + w.random.IntN(4))}
	r.Epoch = w.epochs[r.Session]
	if w.chance(5) {
		r.Epoch += uint64(w.random.IntN(3)) - min(1, r.Epoch)
	}
	if w.chance(w.marks) {
		r.LowestOpen = uint64(1 + w.random.IntN(4))
	}
	if w.epochs[r.Session] == 0 {
		r.Kind = quorum.Attach
	} else {
		r.Kind = w.kind()
	}
	vote := w.votes[ref(&r)]
	if w.chance(5) {
		vote++
	}
	switch r.Kind {
	case quorum.Attach:
		r.Attach = w.attach(r.Epoch)
	case quorum.Claim:
		r.Want = w.want()
		if known, ok := w.wants[ref(&r)]; ok && w.chance(60) {
			r.Want = known
			if w.chance(40) {
				r.Want.Revision++
				r.Want.Priority += w.random.IntN(3)
			}
		}
	case quorum.Stamp:
		r.Vote, r.Fence = vote, vote+uint64(w.random.IntN(3))
	case quorum.Return:
		r.Vote = vote
		if w.chance(70) {
			r.Favour = fmt.Sprintf("%s.%d", oneOf(w, "a", "b", "b c"), 1+w.random.IntN(4))
		}
	case quorum.End:
		r.Reason = oneOf(w, lockkeeper.Released, lockkeeper.Cancelled, lockkeeper.TimedOut)
	case quorum.Lapse:
		r.Reason = oneOf(w, lockkeeper.Expired, lockkeeper.Stolen, lockkeeper.Revoked)
	case quorum.Ack:
		for range w.random.IntN(3) {
			if len(w.asks) > 0 {
				r.Acks = append(r.Acks, w.asks[max(0, len(w.asks)-1-w.random.IntN(4))])
			}
		}
	case quorum.Restore:
		r.Restore = w.restore(&r)
	case quorum.Revoke:
		r.Force, r.Label = w.chance(50), w.label()
	case quorum.List:
		r.Session, r.Limit = "", 1+w.random.IntN(4)
		r.After, r.Only, r.Ends = oneOf(w, "", "a", "b"), oneOf(w, "", "", "b c"), w.chance(70)
	}
	return w.now, r
}

func (w *world) kind() quorum.Kind {
	if w.chance(w.revokes) {
		return quorum.Revoke
	}
	return oneOf(w, quorum.Claim, quorum.Claim, quorum.Claim, quorum.Claim, quorum.Claim, quorum.Claim, quorum.End,
		quorum.End, quorum.End, quorum.Attach, quorum.Renew, quorum.Renew, quorum.Stamp, quorum.Return, quorum.Lapse,
		quorum.Leave, quorum.Restore, quorum.Ack, quorum.Revoke, quorum.List)
}

func ref(r *quorum.Request) string { return fmt.Sprintf("%s.%d", r.Session, r.ID) }

func (w *world) label() lockkeeper.Label {
	return lockkeeper.Label{As: oneOf(w, "", "ann"), Note: oneOf(w, "", "disk"), Link: oneOf(w, "", "https://ci")}
}

func (w *world) ttl() quorum.Micros { return oneOf[quorum.Micros](w, 1_000_000, 2_000_000, 5_000_000) }

func (w *world) attach(epoch uint64) quorum.AttachRequest {
	a := quorum.AttachRequest{
		NewEpoch: epoch + uint64(w.random.IntN(4)),
		Nonce:    oneOf(w, "n", "m"),
		TTL:      w.ttl(),
		To:       oneOf(w, "p", "q"),
		Label:    w.label(),
	}
	for id := range uint64(5) {
		if id > 0 && w.chance(60) {
			a.Named = append(a.Named, id)
		}
		if w.chance(10) {
			a.Lapsed = append(a.Lapsed, quorum.LapseRecord{ID: id, Reason: oneOf(w, lockkeeper.Expired, lockkeeper.Stolen)})
		}
	}
	return a
}

func (w *world) want() quorum.WantRecord {
	paths := []string{"x", "y", "z/é"}
	w.random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	paths = paths[:1+w.random.IntN(2)]
	slices.Sort(paths)
	r := quorum.WantRecord{
		Paths:    paths,
		Priority: w.random.IntN(5) - 2,
		Ticket:   origin + uint64(w.random.IntN(20)),
		Try:      w.chance(15),
		Steal:    oneOf(w, lockkeeper.NoSteal, lockkeeper.Ask, lockkeeper.Take, lockkeeper.Take),
		Expected: oneOf[quorum.Micros](w, 0, 0, 700_000),
		Label:    w.label(),
	}
	if r.Steal == lockkeeper.Take {
		r.After = quorum.Micros(w.random.IntN(4)) * 400_000
		r.AfterTTL = oneOf(w, 0, 0, 500, 1000, 333)
	}
	return r
}

func (w *world) restore(r *quorum.Request) quorum.RestoreRequest {
	all := quorum.RestoreRequest{TTL: w.ttl(), To: oneOf(w, "p", "q"), Label: w.label()}
	for id := range uint64(4) {
		if w.chance(50) {
			one := *r
			one.ID = id + 1
			want, ok := w.wants[ref(&one)]
			if !ok {
				want = w.want()
			}
			all.Claims = append(all.Claims, quorum.RestoreClaim{
				ID:    id + 1,
				Want:  want,
				Fence: oneOf(w, 0, w.votes[ref(&one)], w.votes[ref(&one)]+1),
				Above: oneOf(w, 0, w.votes[ref(&one)], w.votes[ref(&one)]+2),
			})
		}
	}
	return all
}

// learn keeps what later requests use.
func (w *world) learn(r *quorum.Request, reply *quorum.Reply) {
	if reply.Epoch != 0 {
		w.epochs[r.Session] = reply.Epoch
	}
	if reply.Outcome == quorum.NoSession && w.chance(50) {
		w.epochs[r.Session] = 0
	}
	if reply.Until != 0 {
		w.ends = append(w.ends, reply.Until)
	}
	for _, c := range reply.Claims {
		one := *r
		one.ID = c.ID
		if c.Vote != 0 {
			w.votes[ref(&one)] = c.Vote
		}
		if c.Ask != nil {
			w.ends = append(w.ends, c.Ask.End)
			w.asks = append(w.asks, quorum.AckRecord{ID: c.ID, End: c.Ask.End})
		}
		if c.LapseEnd != 0 {
			w.ends = append(w.ends, c.LapseEnd)
		}
		if r.Kind == quorum.Claim {
			if w.wants == nil {
				w.wants = map[string]quorum.WantRecord{}
			}
			w.wants[ref(r)] = r.Want
		}
	}
	w.ends = slices.DeleteFunc(w.ends, func(end quorum.Micros) bool { return end == 0 })
}
