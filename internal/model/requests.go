package model

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// do does one command at its instant. A refused command changes nothing.
func (m *Model) do(c *table.Command) (table.Reply, error) {
	switch c.Op {
	case table.Pass:
		_, _ = m.keyed(c.Key) // a key that is of no use states nothing
		return table.Reply{}, nil
	case table.Attach:
		return m.attach(c.Session)
	case table.Renew:
		return m.renew(c.Key)
	case table.Claim:
		return m.claimOrFreeze(c.Key, c.Want)
	case table.End:
		return table.Reply{}, m.endWhat(c.Key, c.Ending)
	case table.Gone:
		return table.Reply{}, m.gone(c.Key)
	case table.Restart:
		m.restart()
		return table.Reply{}, nil
	}
	return table.Reply{}, lockkeeper.Invalid("op %d", c.Op)
}

// keyed finds the session that k is the key of.
func (m *Model) keyed(k lockkeeper.Key) (*session, error) {
	s := m.session(k.Session)
	if s == nil || s.epoch != k.Epoch || s.resuming {
		return nil, &lockkeeper.Error{Err: lockkeeper.ErrSession}
	}
	s.lowestOpen = max(s.lowestOpen, k.LowestOpen)
	m.acknowledge(s, k.Acked)
	m.forgetEnded()
	return s, nil
}

// attach opens a session, or takes it over and ends what it does not name, if it
// follows the latest attach (R19).
func (m *Model) attach(want lockkeeper.Session) (table.Reply, error) {
	if err := want.Check(true); err != nil {
		return table.Reply{}, err
	}
	s := m.session(want.ID)
	if s != nil && want.Epoch != s.epoch {
		return table.Reply{}, &lockkeeper.Error{Err: lockkeeper.ErrSession, Epoch: s.epoch}
	}
	if s == nil {
		s = &session{id: want.ID}
		m.sessions = append(m.sessions, s)
	}
	for _, l := range want.Lapsed {
		if c := m.claim(lockkeeper.Ref{Session: s.id, ID: l.ID}); c != nil {
			m.lapses(c, s, l)
		}
	}
	m.epoch++
	s.epoch, s.ttl, s.resuming, s.lowestOpen = m.epoch, want.TTL, false, 0
	unnamed := func(c *claim) bool { return c.ref.Session == s.id && !slices.Contains(want.Named, c.ref.ID) }
	for _, c := range slices.Clone(m.claims) {
		if unnamed(c) && c.lapse == nil {
			m.end(c, lockkeeper.Superseded)
		}
	}
	m.acknowledgeEnds(func(g *unackedHold) bool { return unnamed(g.claim) })
	return m.lease(s), nil
}

func (m *Model) renew(k lockkeeper.Key) (table.Reply, error) {
	s, err := m.keyed(k)
	if err != nil {
		return table.Reply{}, err
	}
	return m.lease(s), nil
}

// lease gives s its whole TTL, and promises it (R11, R12). It has every
// claim that has an end or an ask, and of every remembered one.
func (m *Model) lease(s *session) table.Reply {
	m.extend(s)
	m.settle()
	s.leases++
	s.promise = s.end // by the answer, which has the changes of this step, too
	lease := lockkeeper.Lease{Key: lockkeeper.Key{Session: s.id, Epoch: s.epoch}, Number: s.leases}
	if s.end != forever {
		lease.TTL, lease.EndsAt = s.end-m.now, s.end
	}
	for _, c := range m.claims {
		if c.ref.Session == s.id {
			m.recordStatedEnd(c, s.leases)
			if c.statedEnd != forever || c.asked.reason != lockkeeper.NoReason {
				lease.Claims = append(lease.Claims, m.status(c))
			}
		}
	}
	for _, c := range m.ended {
		if c.ref.Session == s.id && c.forget > m.now && !m.knownToSession(c) {
			lease.Claims = append(lease.Claims, m.status(c))
		}
	}
	for _, f := range m.thawed {
		if f.ref.Session == s.id {
			lease.Claims = append(lease.Claims, m.freezeStatus(f))
		}
	}
	return table.Reply{Lease: lease}
}

func (m *Model) extend(s *session) {
	before := s.end
	s.end = forever
	if s.ttl != 0 {
		s.end = m.now + s.ttl
		if before != forever && before > s.end {
			s.end = before
		}
	}
}

// claimOrFreeze makes a claim or a freeze, answers again, or amends (R16).
func (m *Model) claimOrFreeze(k lockkeeper.Key, w lockkeeper.Want) (table.Reply, error) {
	s, err := m.keyed(k)
	if err != nil {
		return table.Reply{}, err
	}
	if err := w.Check(); err != nil {
		return table.Reply{}, err
	}
	if w.After == lockkeeper.AfterMeasured {
		return table.Reply{}, &lockkeeper.Error{Err: lockkeeper.ErrUnsupported}
	}
	w.Targets = slices.Clone(w.Targets)
	ref := lockkeeper.Ref{Session: s.id, ID: w.ID}
	if status, err, known := m.known(ref, &w); known {
		return table.Reply{Status: status}, err
	}
	if w.ID < s.lowestOpen {
		return table.Reply{}, &lockkeeper.Error{Err: lockkeeper.ErrNotHeld}
	}
	if w.Freeze > 0 {
		return table.Reply{Status: m.freeze(ref, w)}, nil
	}
	return table.Reply{Status: m.arrive(ref, w)}, nil
}

// arrive queues a new claim and settles.
func (m *Model) arrive(ref lockkeeper.Ref, w lockkeeper.Want) lockkeeper.Status {
	c := &claim{ref: ref, want: w, wish: w.Targets, arrived: m.now, bound: after(m.now, w.Wait), statedEnd: forever}
	m.draw(c)
	m.claims = append(m.claims, c)
	m.settle()
	c.brief = c.reason != lockkeeper.NoReason
	return m.answerStatus(c)
}

func (m *Model) draw(c *claim) {
	m.ticket++
	c.ticket = m.ticket
}

// answerStatus returns the status of c, and records the end that it states.
func (m *Model) answerStatus(c *claim) lockkeeper.Status {
	m.recordStatedEnd(c, 0)
	return m.status(c)
}

// known answers for an id that is known already, and amends its claim.
func (m *Model) known(ref lockkeeper.Ref, w *lockkeeper.Want) (lockkeeper.Status, error, bool) {
	for _, c := range m.ended {
		if c.ref == ref {
			return m.status(c), nil, true
		}
	}
	if c := m.claim(ref); c != nil {
		switch {
		case w.Revision > c.want.Revision:
			if err := m.amend(c, w); err != nil {
				return lockkeeper.Status{}, err, true
			}
			m.settle()
		case w.Revision == c.want.Revision && !w.SameRequest(&c.want):
			return lockkeeper.Status{}, lockkeeper.Invalid("claim %s is another request", ref), true
		}
		return m.answerStatus(c), nil, true
	}
	if f := m.firstFreeze(ref); f != nil {
		return m.freezeStatus(f), nil, true
	}
	return lockkeeper.Status{}, nil, false
}

// firstFreeze is the freeze of ref, live or remembered; of several the first by path.
func (m *Model) firstFreeze(ref lockkeeper.Ref) *freeze {
	for _, f := range slices.Concat(m.frozenPaths(), m.thawed) {
		if f.ref == ref {
			return f
		}
	}
	return nil
}

// freeze begins the freezes that w is, one for each path (R18).
func (m *Model) freeze(ref lockkeeper.Ref, w lockkeeper.Want) lockkeeper.Status {
	for _, t := range w.Targets {
		for _, f := range slices.Clone(m.freezes) {
			if f.path == t.Path {
				m.endFreeze(f, lockkeeper.Superseded)
			}
		}
		f := &freeze{ref: ref, want: w, path: t.Path, since: m.now, end: m.now + w.Freeze}
		m.freezes = append(m.freezes, f)
		m.event(table.Event{Kind: table.Froze, Ref: ref, Path: t.Path})
	}
	m.settle()
	return m.freezeStatus(m.firstFreeze(ref))
}

// endWhat ends what an Ending names (R11, R18).
func (m *Model) endWhat(k lockkeeper.Key, e lockkeeper.Ending) error {
	s, err := m.keyed(k)
	if err != nil {
		return err
	}
	if err := e.Check(); err != nil {
		return err
	}
	switch e.Kind {
	case lockkeeper.Release:
		err = m.release(lockkeeper.Ref{Session: s.id, ID: e.ID})
	case lockkeeper.Lapsed:
		err = m.lapsed(s, e.Lapse)
	case lockkeeper.Leave:
		m.leave(s)
	case lockkeeper.Revoke:
		err = m.revoke(e)
	case lockkeeper.Thaw:
		err = m.thaw(e.Path)
	default:
		err = lockkeeper.Invalid("ending %d", e.Kind)
	}
	m.settle()
	return err
}

func (m *Model) release(ref lockkeeper.Ref) error {
	c := m.claim(ref)
	if c == nil {
		err := m.endedAlready(ref)
		m.acknowledgeEnds(func(g *unackedHold) bool { return g.ref == ref })
		if 0 < ref.ID && ref.ID < m.session(ref.Session).lowestOpen {
			return nil // it is over (R16)
		}
		return err
	}
	if c.lapse == nil {
		m.end(c, releaseReason(c))
	}
	return nil
}

// lapsed applies the report that a hold lapsed (R12).
func (m *Model) lapsed(s *session, l lockkeeper.Lapse) error {
	ref := lockkeeper.Ref{Session: s.id, ID: l.ID}
	if c := m.claim(ref); c != nil {
		m.lapses(c, s, l)
		return nil
	}
	return m.release(ref) // it has ended before, or never was
}

func (m *Model) lapses(c *claim, s *session, l lockkeeper.Lapse) {
	switch {
	case c.lapse != nil:
		return // only the first report counts
	case !c.holds() && l.Reason == lockkeeper.Expired:
		m.end(c, lockkeeper.Expired)
		return
	case !c.holds():
		m.end(c, lockkeeper.Cancelled)
		return
	}
	end := l.EndsAt
	switch l.Reason {
	case lockkeeper.Overdue:
		end = c.overdueEnd()
	case lockkeeper.Revoked:
		end = c.operatorEnd()
	}
	if end == forever { // there is no such end
		m.end(c, releaseReason(c))
		return
	}
	if end = min(end, s.end); end > m.now && c.converting() {
		m.giveUp(c, lockkeeper.Cancelled)
	}
	c.lapse = &lapse{end: end, reason: l.Reason}
	if end <= m.now {
		m.end(c, l.Reason)
	}
}

func releaseReason(c *claim) lockkeeper.Reason {
	switch {
	case !c.holds():
		return lockkeeper.Cancelled
	case c.asked.reason != lockkeeper.NoReason:
		return lockkeeper.Yielded
	}
	return lockkeeper.Released
}

// endedAlready is how an end of what is not there is answered (R16).
func (m *Model) endedAlready(ref lockkeeper.Ref) error {
	for _, c := range m.ended {
		if c.ref == ref {
			return nil
		}
	}
	for _, f := range m.thawed {
		if f.ref == ref {
			return nil
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld}
}

// leave ends a session by its own will.
func (m *Model) leave(s *session) {
	for _, c := range byRef(m.claims) {
		if c.ref.Session == s.id {
			m.end(c, releaseReason(c))
		}
	}
	m.close(s)
}

// revoke is an operator's end of a claim (R18).
func (m *Model) revoke(e lockkeeper.Ending) error {
	c := m.claim(e.Ref)
	if c == nil {
		return m.endedAlready(e.Ref)
	}
	if e.Force || !c.holds() {
		m.end(c, lockkeeper.Revoked)
		return nil
	}
	ttl := m.session(c.ref.Session).ttl
	if ttl == 0 {
		ttl = lockkeeper.DefaultTTL
	}
	if m.now+ttl < c.operatorEnd() {
		c.operator = &operatorAsk{end: m.now + ttl, by: e.Label}
	}
	return nil
}

func (m *Model) thaw(path lockkeeper.Path) error {
	for _, f := range m.freezes {
		if f.path == path {
			m.endFreeze(f, lockkeeper.Released)
			return nil
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld}
}

// gone ends a session whose processes are gone, as the kernel says (R11).
func (m *Model) gone(k lockkeeper.Key) error {
	if s := m.session(k.Session); s != nil && s.epoch == k.Epoch {
		m.endSession(s)
		m.settle()
	}
	return nil
}

// restart makes every session resume: with its whole TTL ahead, or with the rest of its TTL if it
// already has to resume (R19). The last answers to the session are unknown.
func (m *Model) restart() {
	for _, s := range m.sessions {
		if !s.resuming {
			m.extend(s)
		}
		s.promise = max(s.promise, s.end)
		s.resuming = true
	}
	for _, c := range m.claims {
		c.statedEnd = forever
		if c.holds() {
			c.stated = append(c.stated, statement{0, forever})
		}
	}
	m.settle()
}
