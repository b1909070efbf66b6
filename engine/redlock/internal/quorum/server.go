package quorum

import (
	"cmp"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// A Server is what one Redis server does: its data, and [Server.Apply], which executes one request.
// The Lua scripts of engine/redlock/internal/script do the same. This comment is the authority for
// both; a differential test compares them. A Server is not safe for concurrent use.
//
// # Data
//
//	last      the latest time that a request saw
//	floor     the highest counter that any path ever had
//	sessions  id -> epoch, nonce, ttl, span, until, to, label, low, claims
//	claims    id -> want, and one of
//	          waiting: since
//	          voted:   vote, since, asks, stated, lapsed, lapse end
//	          ended:   reason, text, counter, relied, asked for by the session or not
//	paths     path -> counter, holder, queue, unsure
//	followed  the time until which ends are kept
//	ends      the latest ends of claims, at most MaxEnds: time, claim, reason, text
//
// span bounds what is left of a session: until - now <= span. To extend a session is
//
//	if now + ttl >= until { until = now + ttl; span = ttl }
//
// so a shorter TTL never brings the end nearer (R11). low is the low-water mark of the epoch.
//
// holder is the claim that has the vote of the server for the path; it has it for all its paths.
// The queue has the waiting claims with that path: highest priority first, then lowest ticket, then
// session and id. The record of a path is made when a claim enters its queue; its counter is the
// floor then. unsure is the time until which a former holder may rely on a promise. The counter of
// a path without a record is the floor. The record of a path without holder, queue and unsure may
// vanish at any time.
//
// # Settling
//
// Every request, List too, settles the server before and after it. Settling repeats these steps
// until none changes anything. The order within a step makes no difference.
//
//  1. A session with until <= now ends. Its claims end as expired, without leaving unsure. Nothing
//     of the session stays.
//
//  2. A lapsed claim with lapse end <= now ends for the reason of its lapse, without unsure.
//
//  3. A voted claim that an operator asked, with an end <= now, ends as revoked, leaving unsure.
//
//  4. A thief with Take that is first in the queues of all its paths, and whose ask has an end <=
//     now at every holder of its paths, ends them all as stolen, leaving unsure.
//
//  5. A waiting claim that is first in the queues of all its paths, none of which has a holder,
//     gets the vote: v = 1 + the highest counter of its paths; the counter of its paths is v, the
//     floor at least v.
//
//  6. A waiting claim T asks the holders of its paths iff it may steal, is first in the queues of
//     all its paths, and every holder of its paths has a lower priority. A holder has one ask for
//     each such T, and at most one of operators. An ask by T that is there stays as it is; others
//     go when T no longer asks. A new ask of T is not acknowledged. Its end is 0 with Ask. With Take
//     it is now + min(After, span of the holder's session), where AfterTTL*span/1000 replaces After
//     if AfterTTL > 0; and one more if that is the holder's stated, so that a late Ack counts for
//     one ask only. stated is the end of the ask that the holder's state showed last, if not 0.
//
// A claim that ends by an operator has the text "note (by as)" of the operator's label. A claim that
// ends leaving unsure: unless it lapsed, relied = min(until of its session, ends of its
// acknowledged asks but 0). If relied > now, each of its paths with unsure <= now gets unsure =
// relied; the others max(unsure, relied) + 1, since several former holders are in doubt. When its
// session knows of the end, relied becomes 0, and so does unsure of those of its paths where it equals
// relied: where this claim alone was in doubt (R12).
//
// While now < followed, the end of a claim with paths is added to ends; not that of a refused Try.
//
// If now < last, the clock went back: then, before anything else, until of every session becomes at
// most now + span, and every end of an ask and of a lapse at most until of the claim's session.
// last = now.
//
// # Requests
//
// Those with an epoch, which are all but Attach, Restore, Revoke and List, first look for the
// session: there is none: NoSession; its epoch is higher: OtherEpoch; lower: the server missed the
// attach and adopts the request's (nonce empty, low 0). Then low = max(low, LowestOpen). Ended
// claims below low, whose end the session asked for, are forgotten: they count as unknown, also
// after low has fallen. Outcomes but Done change nothing else.
//
//   - Attach. NewEpoch <= Epoch: Differs. No session: it is opened. Its epoch > Epoch: if it is
//     NewEpoch with the same or an empty nonce, the request came twice or after others of its
//     epoch: the nonce, ttl, to and label are set, and the session is extended, but no claim ends.
//     Else OtherEpoch. Otherwise epoch, nonce, ttl, to, label are set, low = LowestOpen, the
//     session is extended; claims in Lapsed lapse; live claims neither named nor lapsed end as
//     superseded; the session knows of the ends of those that ended before and are not named.
//   - Renew extends the session.
//   - Claim, of an unknown id: below low: NotKnown. Limit of claims: Full. With Try: if it can't
//     have the vote at once, it ends as timed out, as if it had never waited, and the reply has its
//     position and blockers. Otherwise it waits. Of a known id: a lower revision: its state. Same
//     revision: its state if all but Ticket is the same, else Differs. Higher: Differs unless all
//     but Revision, Ticket and Priority is the same and Priority is not lower; both are set, unless
//     it ended. Where the claim is live, the lower ticket counts from then on.
//   - Stamp: unknown: NotKnown. It has the vote with exactly that number, and counter < fence: the
//     counter of its paths is fence, the floor at least that; Done. Counter = fence: Done, since
//     nobody else raises the counter during a vote. Otherwise Differs.
//   - Return: unknown: NotKnown. It has the vote with exactly that number and did not lapse: it
//     waits again, with its ticket and without asks. If Favour waits, none of its paths has a
//     holder, and only the returner is ahead of it, it gets the vote. Without Favour the server
//     settles as if the returner did not wait. Then it settles with it. Otherwise Differs.
//   - End: it ends for Reason, without unsure. Unknown and not below low: it is ended from now on,
//     so that a late Claim finds it. Unknown and below low: NotKnown. Ended: the session has asked
//     for it now, too, and knows of it.
//   - Lapse: a waiting or unknown one as End. Voted, and not lapsed yet: its lapse end = until of
//     the session, or stated if that is not 0 and earlier and Reason is not Expired.
//   - Leave: the session ends; its claims end as released, without unsure. It knows of all ends.
//     Nothing stays.
//   - Ack: asks of a voted claim with exactly that end are acknowledged.
//   - Restore: a session with a higher epoch: OtherEpoch. Without one it is opened, with a lower
//     epoch that is adopted (as above). ttl, to and label are set; the session is extended. Then
//     each claim in order, if it is not ended, and the limit allows it: with Fence 0 it waits if
//     unknown. With a Fence, if it has the vote: counter = max(counter, fence), floor too. Else if
//     none of its paths has a holder, and the highest counter <= max(Fence, Above): it gets the
//     vote v = max(Fence, Above+1); the counter of its paths is v, the floor at least v. Else
//     nothing.
//   - Revoke: no session: NoSession. Unknown: NotKnown. Waiting: it ends as revoked. Voted: with
//     Force it ends as revoked, leaving unsure; else an operator's ask with end now + span is
//     placed, unless there is one.
//   - List: sessions by id, after After, at most Limit (0: all); Only: this one. With Ends: followed
//     = now + FollowedFor, and if no session follows the reply has the entries of ends, of the session
//     Only or of all, as far as they are not older than EndsShown. No other request looks at ends.
//
// # Replies and messages
//
// A reply is as of the moment after the last settling. Claims has the claim of the request if it is
// known; for Attach, Renew and Restore all claims of the session by id; Want is set for Attach,
// Restore and List, but not of claims that only End made. Until and Epoch are set for Done of
// Attach, Renew and Restore; Epoch with OtherEpoch.
//
// A claim's state shows the ask with the earliest end but 0; among equals the lowest By. Position
// is 1 + the highest number of claims ahead of it in one queue. Blockers are the holders of its
// paths in the order of paths, then the waiting claims ahead, path by path in the order of the
// queue, none twice: see NamedAhead.
//
// A message goes to the party of a claim that got the vote, lost it by an end, ended, or whose
// shown ask changed, unless the reply of a request other than Revoke and List has the claim, or its
// session left or was attached by this request. There is one message for each claim, with its last
// state; the order of messages has no meaning.
type Server struct {
	limits   Limits
	last     Micros
	floor    uint64
	sessions map[string]*serverSession
	paths    map[string]*serverPath
	followed Micros
	ends     []EndRecord // in order of time, session, id

	changed map[*serverClaim]bool // during Apply: claims that a message reports
}

// Limits bound what a server keeps; 0: no bound.
type Limits struct {
	Sessions int
	Claims   int // of one session, ended ones included
}

// NewServer returns an empty server.
func NewServer(l Limits) *Server {
	return &Server{limits: l, sessions: map[string]*serverSession{}, paths: map[string]*serverPath{}}
}

type serverSession struct {
	id, nonce, to    string
	epoch, low       uint64
	ttl, span, until Micros
	label            lockkeeper.Label
	claims           map[uint64]*serverClaim
}

// A claim is live while its state is Waiting or Held (voted).
type serverClaim struct {
	ref     lockkeeper.Ref
	session *serverSession
	want    WantRecord // without Paths: only End made it
	state   lockkeeper.State

	since  Micros
	vote   uint64
	asks   []Ask // sorted by By
	stated Micros

	lapsed   lockkeeper.Reason
	lapseEnd Micros

	reason   lockkeeper.Reason
	text     string
	counter  uint64 // of Ended: the highest of its paths at its end
	relied   Micros // of Ended: until when its holder may rely on a promise; 0: not, or it knows of the end
	finished bool   // of Ended: the session asked for the end
}

type serverPath struct {
	counter uint64
	holder  *serverClaim
	queue   []*serverClaim // sorted by compare
	unsure  Micros
}

// Apply executes r when the clock of the server shows now.
func (s *Server) Apply(now Micros, r Request) (Reply, []Message) {
	s.changed = map[*serverClaim]bool{}
	s.setClock(now)
	s.settle(nil)
	reply, about := s.execute(&r)
	s.settle(nil)
	reply.Now = now
	for _, c := range about {
		if reply.Claims == nil || r.Kind != Claim { // a refused Try is described already
			reply.Claims = append(reply.Claims, s.describe(c, r.Kind == Attach || r.Kind == Restore))
		}
		if r.Kind != Revoke {
			delete(s.changed, c)
		}
	}
	if r.Kind == List {
		s.list(&r, &reply)
		s.listEnds(&r, &reply)
	}
	return reply, s.messages()
}

// setClock limits what is left of each session if the clock went back.
func (s *Server) setClock(now Micros) {
	if now < s.last {
		for _, e := range s.sessions {
			e.until = min(e.until, now+e.span)
			for _, c := range e.claims {
				for i := range c.asks {
					c.asks[i].End = min(c.asks[i].End, e.until)
				}
				c.lapseEnd = min(c.lapseEnd, e.until)
			}
		}
	}
	s.last = now
}

// execute returns the reply without Now and Claims, and the claims that it is about.
func (s *Server) execute(r *Request) (Reply, []*serverClaim) {
	switch r.Kind {
	case Attach:
		return s.attach(r)
	case Restore:
		return s.restore(r)
	case Revoke:
		return s.revoke(r)
	case List:
		return Reply{Outcome: Done}, nil
	}
	e, refused := s.sessionOf(r)
	if e == nil {
		return refused, nil
	}
	switch r.Kind {
	case Renew:
		e.extend(s.last)
		return e.lease()
	case Leave:
		s.leave(e)
		return Reply{Outcome: Done}, nil
	case Ack:
		e.acknowledge(r.Acks)
		return Reply{Outcome: Done}, nil
	case Claim:
		return s.claim(e, r)
	}
	return s.actOn(e, e.claim(r.ID), r)
}

// counterOf returns the highest counter of the claim's paths.
func (s *Server) counterOf(c *serverClaim) uint64 {
	var highest uint64
	for _, name := range c.want.Paths {
		counter := s.floor
		if p := s.paths[name]; p != nil {
			counter = p.counter
		}
		highest = max(highest, counter)
	}
	return highest
}

// setCounter sets the counter of all paths of c.
func (s *Server) setCounter(c *serverClaim, counter uint64) {
	for _, name := range c.want.Paths {
		s.paths[name].counter = counter
	}
	s.floor = max(s.floor, counter)
}

// pathsOf returns the records of the claim's paths that exist.
func (s *Server) pathsOf(c *serverClaim) []*serverPath {
	all := make([]*serverPath, 0, len(c.want.Paths))
	for _, name := range c.want.Paths {
		if p := s.paths[name]; p != nil {
			all = append(all, p)
		}
	}
	return all
}

// compare is the order of queues.
func compare(a, b *serverClaim) int {
	return cmp.Or(
		-cmp.Compare(a.want.Priority, b.want.Priority),
		cmp.Compare(a.want.Ticket, b.want.Ticket),
		cmp.Compare(a.ref.Session, b.ref.Session),
		cmp.Compare(a.ref.ID, b.ref.ID),
	)
}

// ahead returns how many claims in the queue of p are ahead of c, whether c is in it or not.
func (p *serverPath) ahead(c *serverClaim) int {
	at, _ := slices.BinarySearchFunc(p.queue, c, compare)
	return at
}

// enqueue puts c into the queues of its paths, and makes their records.
func (s *Server) enqueue(c *serverClaim) {
	for _, name := range c.want.Paths {
		p := s.paths[name]
		if p == nil {
			p = &serverPath{counter: s.floor}
			s.paths[name] = p
		}
		p.queue = slices.Insert(p.queue, p.ahead(c), c)
	}
}

func (s *Server) dequeue(c *serverClaim) {
	for _, p := range s.pathsOf(c) {
		p.queue = slices.DeleteFunc(p.queue, func(other *serverClaim) bool { return other == c })
	}
}
