package join

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A world is a state of the model: the cluster's settings, two new nodes with one key each, and the
// requests on their way. The cluster's side is decide itself. Everything else may happen at any time:
// a node that answers stops before or after a change, answers are lost or late, the new nodes stop, ask
// again, lose their logs; the tokens end; the operator expels a member.
type world struct {
	tokens  [2]cell
	nodes   [2]cell // under the names "a" and "b"
	expel   string  // ids of one character
	last    uint8   // revision
	ended   bool    // the tokens are over
	drawn   uint8   // ids
	joiners [2]joiner
	calls   [maxCalls]call

	// What happened, for the judgement.
	mayVote   string    // ids of members that had a log
	logs      [10]uint8 // by id: the joiner that made a log, +1
	admitted  [2]uint8  // by token: joiners, as bits
	claimedAt [2]uint8  // by token: 1 in time, 2 too late
	wrong     string
}

const maxCalls = 3

type cell struct {
	value    string
	revision uint8
}

type joiner struct {
	log     uint8 // the id of its log; 0: none
	joined  bool  // it knows that it is a member
	refused Code
	conn    uint8 // its present connection; answers on others are lost
	waits   bool
	lost    bool // it has lost a log
}

// A call is a request that a node of the cluster works on.
type call struct {
	stage stage
	from  uint8 // joiner
	conn  uint8
	id    uint8 // of a begin; 0: a join
	// Of stage planned: the change. Of stage answered: the answer.
	key      string
	value    string
	revision uint8
	granted  uint8
	code     Code
}

type stage uint8

const (
	free stage = iota
	received
	planned
	answered
)

// A scenario says which token and name each joiner has, and how much may happen.
type scenario struct {
	name    string
	joiners int
	tokens  [2]int
	names   [2]string
	conns   uint8 // connections of each joiner
	calls   int   // requests on their way at a time, at most maxCalls
}

var secrets = [2][]byte{[]byte("first"), []byte("second")}

func tokenRecord(i int) TokenRecord {
	return TokenRecord{Digest: sha256.Sum256(secrets[i]), Ends: time.Hour}
}

// worldView is the View of a world.
type worldView struct{ w *world }

func (v worldView) Now() time.Duration {
	if v.w.ended {
		return time.Hour
	}
	return 0
}

func (v worldView) Setting(key string) Setting {
	if id, ok := strings.CutPrefix(key, voters.ExpelledPrefix); ok {
		for _, c := range v.w.expel {
			if FormatID(uint64(c-'0')) == id {
				return Setting{Key: key, Value: []byte("x"), Revision: 1}
			}
		}
		return Setting{Key: key}
	}
	c := v.w.cell(key)
	return Setting{key, []byte(c.value), uint64(c.revision)}
}

func (v worldView) Settings(prefix string) (all []Setting) {
	for _, key := range []string{"node/a", "node/b"} {
		if s := v.Setting(key); strings.HasPrefix(key, prefix) && len(s.Value) > 0 {
			all = append(all, s)
		}
	}
	return all
}

func (w *world) cell(key string) *cell {
	switch key {
	case "node/a":
		return &w.nodes[0]
	case "node/b":
		return &w.nodes[1]
	}
	for i := range w.tokens {
		if record := tokenRecord(i); record.key() == key {
			return &w.tokens[i]
		}
	}
	panic("no setting " + key)
}

func joinerKey(i int) Digest { return Digest{byte(i + 1)} }

// requestOf returns the request of a call.
func (sc *scenario) requestOf(c *call) *request {
	r := &request{Form: form, Step: stepJoin, Secret: secrets[sc.tokens[c.from]], key: joinerKey(int(c.from))}
	r.Node.Name = sc.names[c.from]
	if c.id != 0 {
		r.Step, r.Node.ID = stepBegin, uint64(c.id)
	}
	return r
}

// next returns all worlds that may follow w.
func (sc *scenario) next(w world) (all []world) {
	add := func(step func(w *world)) {
		after := w
		step(&after)
		after.observe(sc)
		slices.SortFunc(after.calls[:], func(a, b call) int {
			return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.from, b.from), cmp.Compare(a.conn, b.conn),
				cmp.Compare(a.id, b.id), cmp.Compare(a.revision, b.revision), cmp.Compare(a.value, b.value),
				cmp.Compare(a.granted, b.granted), cmp.Compare(a.code, b.code))
		})
		all = append(all, after)
	}
	for i := range w.calls {
		if w.calls[i].stage == free {
			continue
		}
		add(func(w *world) { w.calls[i] = call{} }) // the node stops, or a message is lost
		switch w.calls[i].stage {
		case received:
			add(func(w *world) { sc.decide(w, i) })
		case planned:
			add(func(w *world) { sc.put(w, i) })
		case answered:
			add(func(w *world) { w.deliver(i) })
		}
	}
	for i := range sc.joiners {
		j := &w.joiners[i]
		at := slices.IndexFunc(w.calls[maxCalls-sc.calls:], func(c call) bool { return c.stage == free })
		if at >= 0 && j.conn < sc.conns && !j.joined && j.refused == "" {
			at += maxCalls - sc.calls
			add(func(w *world) { w.ask(i, at) }) // for the first time, or after a stop, or because no answer came
		}
		if j.log != 0 && !j.lost {
			add(func(w *world) {
				j := &w.joiners[i]
				j.log, j.joined, j.refused, j.lost, j.waits = 0, false, "", true, false
			})
		}
	}
	if !w.ended {
		add(func(w *world) { w.ended = true })
	}
	if w.expel == "" {
		for i := range w.nodes {
			if n, _, err := nodeNamed(worldView{&w}, []string{"a", "b"}[i]); err == nil && n.ID != 0 {
				add(func(w *world) { w.expel += fmt.Sprint(n.ID) })
			}
		}
	}
	return all
}

func (w *world) ask(i, at int) {
	j := &w.joiners[i]
	j.conn++
	j.waits = true
	w.calls[at] = call{stage: received, from: uint8(i), conn: j.conn, id: j.log}
}

// decide lets the node with a call read the settings and decide.
func (sc *scenario) decide(w *world, at int) {
	c := &w.calls[at]
	change, id, err := decide(worldView{w}, sc.requestOf(c), func() uint64 {
		w.drawn++
		return uint64(w.drawn)
	})
	switch refusal, _ := err.(*Refusal); {
	case refusal != nil:
		c.stage, c.code = answered, refusal.Code
	case err != nil:
		w.wrong = err.Error()
	case change != nil:
		c.stage, c.key, c.value, c.revision = planned, change.Key, string(change.Value), uint8(change.Revision)
	default:
		c.stage, c.granted = answered, uint8(id)
	}
}

// put makes the change of a call, and judges it.
func (sc *scenario) put(w *world, at int) {
	c := &w.calls[at]
	cell := w.cell(c.key)
	if cell.revision == c.revision {
		token := sc.tokens[c.from]
		if strings.HasPrefix(c.key, nodePrefix) {
			before, _, _ := nodeNamed(worldView{w}, sc.names[c.from])
			if before.ID != 0 && !expelled(worldView{w}, before.ID) {
				w.wrong = "a member was replaced that was not expelled"
			}
			if strings.Contains(w.expel, fmt.Sprint(c.id)) {
				w.wrong = "an expelled id became a member"
			}
			if w.claimedAt[token] == 2 {
				w.wrong = "a token was claimed after its end, and admitted a node"
			}
			if w.admitted[token] |= 1 << c.from; w.admitted[token] == 3 {
				w.wrong = "one token admitted two nodes"
			}
		} else if w.claimedAt[token] = 1; w.ended {
			w.claimedAt[token] = 2
		}
		w.last++
		cell.value, cell.revision = c.value, w.last
	}
	*c = call{stage: received, from: c.from, conn: c.conn, id: c.id}
}

// deliver gives the answer of a call to the joiner, if it still waits for it.
func (w *world) deliver(at int) {
	c := w.calls[at]
	w.calls[at] = call{}
	j := &w.joiners[c.from]
	if !j.waits || j.conn != c.conn {
		return
	}
	j.waits = false
	switch {
	case c.code != "":
		j.refused = c.code
	case c.id != 0:
		j.joined = true
	default:
		j.log = c.granted
		if strings.Contains(w.mayVote, fmt.Sprint(j.log)) {
			w.wrong = "an empty log was made under an id that may have voted"
		}
		if by := w.logs[j.log]; by != 0 && by != c.from+1 {
			w.wrong = "two nodes have one id"
		}
		w.logs[j.log] = c.from + 1
	}
}

// observe notes which ids may have voted by now.
func (w *world) observe(sc *scenario) {
	for i := range sc.joiners {
		j := &w.joiners[i]
		if j.log == 0 || strings.Contains(w.mayVote, fmt.Sprint(j.log)) {
			continue
		}
		if n, _, err := nodeNamed(worldView{w}, sc.names[i]); err == nil && n.ID == uint64(j.log) {
			w.mayVote += fmt.Sprint(j.log)
		}
	}
}

// alone lets one joiner go on without faults, and returns whether it joined, and the refusal if not.
func (sc *scenario) alone(w world, i int) (joined bool, refused Code) {
	w.calls = [maxCalls]call{}
	for range 3 {
		if j := &w.joiners[i]; j.joined || j.refused != "" {
			return j.joined, j.refused
		}
		w.ask(i, 0)
		for steps := 0; w.calls[0].stage != free && steps < 10; steps++ {
			switch w.calls[0].stage {
			case received:
				sc.decide(&w, 0)
			case planned:
				sc.put(&w, 0)
			case answered:
				w.deliver(0)
			}
		}
	}
	j := &w.joiners[i]
	return j.joined, j.refused
}

// TestJoinUnderEveryInterleaving walks all worlds.
func TestJoinUnderEveryInterleaving(t *testing.T) {
	calls, more := testmode.Pick(2, maxCalls), testmode.Pick[uint8](0, 1)
	for _, sc := range []scenario{
		{"one node", 1, [2]int{0, 0}, [2]string{"a", "a"}, 5 + more, calls},
		{"two nodes with one token and one name", 2, [2]int{0, 0}, [2]string{"a", "a"}, 2 + more, calls},
		{"two nodes with one token and two names", 2, [2]int{0, 0}, [2]string{"a", "b"}, 2 + more, calls},
		{"two nodes with two tokens and one name", 2, [2]int{0, 1}, [2]string{"a", "a"}, 2 + more, calls},
	} {
		t.Run(sc.name, func(t *testing.T) { sc.walk(t) })
	}
}

func (sc *scenario) walk(t *testing.T) {
	var start world
	for i := range start.tokens {
		start.last++
		record := tokenRecord(i)
		setting, err := Setting{}.with(record)
		if err != nil {
			t.Fatal(err)
		}
		start.tokens[i] = cell{string(setting.Value), start.last}
	}
	worlds, parents := []world{start}, []int{-1}
	seed := maphash.MakeSeed()
	seen := map[uint64]bool{maphash.Comparable(seed, start): true}
	story := func(at int) string {
		var lines []string
		for ; at >= 0; at = parents[at] {
			lines = append(lines, fmt.Sprintf("%+v", worlds[at]))
		}
		slices.Reverse(lines)
		return strings.Join(lines, "\n")
	}
	ends := map[string]int{}
	for at := 0; at < len(worlds); at++ {
		w := worlds[at]
		if w.wrong != "" {
			t.Fatalf("%s:\n%s", w.wrong, story(at))
		}
		for i := range sc.joiners {
			joined, refused := sc.alone(w, i)
			if joined == (refused != "") {
				t.Fatalf("joiner %d: joined %v, refused %q: no final answer:\n%s", i, joined, refused, story(at))
			}
			if refused != "" && w.hindered(sc, i) == "" {
				t.Fatalf("joiner %d was refused (%s) without a reason:\n%s", i, refused, story(at))
			}
			ends[fmt.Sprint(joined, " ", refused)]++
		}
		for _, after := range sc.next(w) {
			if sum := maphash.Comparable(seed, after); !seen[sum] {
				seen[sum] = true
				worlds, parents = append(worlds, after), append(parents, at)
			}
		}
	}
	t.Logf("%d worlds; a joiner left alone: %v", len(worlds), ends)
}

// hindered says why joiner i may be refused; "" if it must be let in.
func (w *world) hindered(sc *scenario, i int) string {
	j := &w.joiners[i]
	switch {
	case j.refused != "":
		return "it was refused before"
	case w.ended || w.expel != "" || j.lost:
		return "the tokens ended, its id may be expelled, or it lost a log"
	}
	other := 1 - i
	if sc.joiners == 2 && sc.tokens[i] == sc.tokens[other] && w.claimedAt[sc.tokens[i]] != 0 {
		return "the other may have the token"
	}
	if sc.joiners == 2 && sc.names[i] == sc.names[other] && w.nodes[0].value != "" {
		return "the other may have the name"
	}
	return ""
}
