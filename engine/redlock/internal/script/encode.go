package script

import (
	"strconv"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// A Set names what one server has of a set of servers. The engine creates and removes the key
// SetKey; the scripts own every key that begins with Data.
type Set struct {
	// SetKey is a hash whose field "marker" equals Marker while the server is a member of the set.
	SetKey string
	Marker string // the set's id and the generations of all its servers

	Data    string // the prefix of all keys of this server in this generation
	Channel string // the prefix of all channels
}

// Floor is the key of the server's highest counter, as decimal digits. Without it the floor is 0.
func (s Set) Floor() string { return s.Data + "floor" }

// Until is the key of a sorted set: ids of sessions by their end, in microseconds on the clock of
// the server. A session may have ended already.
func (s Set) Until() string { return s.Data + "until" }

// ChannelOf is the channel to which the server sends the messages for the party To.
func (s Set) ChannelOf(to string) string { return s.Channel + to }

// A Call is one EVALSHA.
type Call struct {
	Script *Script
	Keys   []string
	Args   []any // strings and []byte
}

// MaxBatch is how many requests one call executes at most: others must not wait for long.
const MaxBatch = 128

// Together reports whether one call can execute both requests.
func Together(a, b *quorum.Request) bool {
	short := func(r *quorum.Request) bool { return r.Kind == quorum.Claim || r.Kind == quorum.End }
	return short(a) && short(b) && a.Session == b.Session && a.Epoch == b.Epoch
}

// Encode returns the call that executes the requests at a server of the set, each in one step and in their
// order: one, or up to MaxBatch that can go Together. It refuses requests that a server could not keep
// exactly: numbers above 2^53, and texts above the limits of lockkeeper. What the server answers is a list
// with one entry for each, which Decode reads, or one error for all, which Refusal reads.
func Encode(s Set, requests ...quorum.Request) (Call, error) {
	first := &requests[0]
	c := Call{Script: script(), Keys: []string{s.SetKey, s.Data}, Args: make([]any, 0, 4+6*len(requests))}
	var p packer
	if first.Kind != quorum.List {
		p.text("the session's id", first.Session, lockkeeper.MaxSessionID)
		if first.Session == "" {
			p.failf("the session's id is empty: name it")
		}
	}
	c.Args = append(c.Args, s.Marker, s.Channel, first.Session, p.digits("the epoch", first.Epoch))
	for i := range requests {
		r := &requests[i]
		if r.Kind < quorum.Attach || r.Kind > quorum.List {
			p.failf("there is no request of kind %d", r.Kind)
		}
		p.b = nil // the last one is an argument
		c.Args = append(c.Args, strconv.Itoa(int(r.Kind)), p.digits("the low-water mark", r.LowestOpen),
			p.digits("the claim's id", r.ID))
		rest := p.rest(r)
		c.Args = append(c.Args, rest[:]...)
	}
	if p.err != nil {
		return Call{}, p.err
	}
	return c, nil
}

// rest returns the arguments of r that depend on its kind.
func (p *packer) rest(r *quorum.Request) [3]any {
	switch r.Kind {
	case quorum.Claim:
		p.want(&r.Want)
		only := "" // the path, if it is the only one
		if len(r.Want.Paths) == 1 {
			only = r.Want.Paths[0]
		}
		return [3]any{p.b, only, p.digits("the revision", r.Want.Revision)}
	case quorum.Stamp:
		return [3]any{p.digits("the vote", r.Vote), p.digits("the fence", r.Fence), ""}
	case quorum.Return:
		favour, err := lockkeeper.ParseRef(r.Favour)
		if r.Favour != "" && err != nil {
			p.failf("the favoured claim: %w", err)
		}
		return [3]any{p.digits("the vote", r.Vote), favour.Session, p.digits("the favoured claim", favour.ID)}
	case quorum.End, quorum.Lapse:
		if r.Reason == lockkeeper.NoReason || r.Reason > lockkeeper.Quota {
			p.failf("claim %d ends for the reason %q, which does not exist", r.ID, r.Reason)
		}
		return [3]any{strconv.Itoa(int(r.Reason)), "", ""}
	case quorum.Attach:
		p.attach(&r.Attach)
	case quorum.Ack:
		p.list("the acknowledgements", len(r.Acks))
		for _, a := range r.Acks {
			p.array(2)
			p.count("a claim's id", a.ID)
			p.number("the end of an ask", int64(a.End))
		}
	case quorum.Restore:
		p.restore(&r.Restore)
	case quorum.Revoke:
		p.array(4)
		p.bool(r.Force)
		p.label(r.Label)
	case quorum.List:
		if r.Limit < 1 || r.Limit > MaxPage {
			r.Limit = MaxPage
		}
		p.array(4)
		p.text("the session before the page", r.After, lockkeeper.MaxSessionID)
		p.number("the size of the page", int64(r.Limit))
		p.text("the session's id", r.Only, lockkeeper.MaxSessionID)
		p.bool(r.Ends)
	}
	return [3]any{p.b, "", ""}
}

// digits returns a number as an argument of its own.
func (p *packer) digits(what string, v uint64) string {
	if v > maxExact {
		p.failf("%s %d is out of range: a Redis server counts exactly up to 2^53", what, v)
	}
	return strconv.FormatUint(v, 10)
}

// list writes the head of an array of things of a session.
func (p *packer) list(what string, n int) {
	if n > MaxClaims {
		p.failf("%s have %d entries: at most %d are allowed", what, n, MaxClaims)
		return
	}
	p.array(n)
}

func (p *packer) attach(a *quorum.AttachRequest) {
	p.array(9)
	p.count("the new epoch", a.NewEpoch)
	p.text("the nonce", a.Nonce, maxNonce)
	p.number("the TTL", int64(a.TTL))
	p.text("the channel", a.To, maxChannel)
	p.list("the named claims", len(a.Named))
	for _, id := range a.Named {
		p.count("a claim's id", id)
	}
	p.list("the lapsed claims", len(a.Lapsed))
	for _, l := range a.Lapsed {
		p.array(2)
		p.count("a claim's id", l.ID)
		p.count("a reason", uint64(l.Reason))
	}
	p.label(a.Label)
}

func (p *packer) restore(r *quorum.RestoreRequest) {
	p.array(6)
	p.number("the TTL", int64(r.TTL))
	p.text("the channel", r.To, maxChannel)
	p.label(r.Label)
	p.list("the claims", len(r.Claims))
	for i := range r.Claims {
		c := &r.Claims[i]
		p.array(4)
		p.count("a claim's id", c.ID)
		p.count("the fence", c.Fence)
		p.count("the vote", c.Above)
		want := packer{}
		want.want(&c.Want)
		if want.err != nil {
			p.failf("%w", want.err)
		}
		p.text("a claim", string(want.b), maxWant) // servers keep it as it is
	}
}

func (p *packer) label(l lockkeeper.Label) {
	p.text("a name", l.As, lockkeeper.MaxAsBytes)
	p.text("a note", l.Note, lockkeeper.MaxNoteBytes)
	p.text("a link", l.Link, lockkeeper.MaxNoteBytes)
}

// want writes what unpacker.want reads, and the scripts.
func (p *packer) want(w *quorum.WantRecord) {
	p.array(16)
	p.count("the revision", w.Revision)
	if w.Priority < -lockkeeper.MaxPriority || w.Priority > lockkeeper.MaxPriority {
		p.failf("the priority %d is out of range: %d to %d", w.Priority, -lockkeeper.MaxPriority, lockkeeper.MaxPriority)
	}
	p.number("the priority", int64(w.Priority))
	if len(w.Paths) < 1 || len(w.Paths) > lockkeeper.MaxTargets {
		p.failf("a claim of %d paths: allowed are 1 to %d", len(w.Paths), lockkeeper.MaxTargets)
	}
	p.array(len(w.Paths))
	for i, path := range w.Paths {
		p.text("a path", path, lockkeeper.MaxPathBytes)
		if i > 0 && path <= w.Paths[i-1] {
			p.failf("path %q follows %q: sort the paths, and name each once", path, w.Paths[i-1])
		}
	}
	p.count("the ticket", w.Ticket)
	p.bool(w.Try)
	p.count("the steal", uint64(w.Steal))
	p.number("the allowed wait of a steal", int64(w.After))
	p.number("the allowed wait of a steal", int64(w.AfterTTL))
	p.number("the announced duration", int64(w.Expected))
	p.number("the longest hold", int64(w.MaxHold))
	p.number("the grace", int64(w.Grace))
	p.text("the session's id", w.Inside.Session, lockkeeper.MaxSessionID)
	p.count("the claim's id", w.Inside.ID)
	p.label(w.Label)
}
