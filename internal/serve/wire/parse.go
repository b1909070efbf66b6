package wire

import (
	"cmp"

	"github.com/lockkeeper/lockkeeper"
)

// The functions here read the content of messages straight into the values of package lockkeeper. A
// value keeps no reference to the bytes. As everywhere in protocol buffers, a later field replaces an
// earlier one with the same number, a repeated field adds an element, and a message that comes twice
// is merged.

func parseRef(message []byte, to *lockkeeper.Ref) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			to.Session = f.text()
		case 2:
			to.ID = f.uint()
		}
	}
	return f.err
}

// target reads one field of a target.
func (f *fields) target(to *lockkeeper.Target) {
	switch f.field {
	case 1:
		to.Path = lockkeeper.Path(f.message())
	case 2:
		to.Mode = enum[lockkeeper.Mode](f)
	case 3:
		to.Units = f.int()
	case 4:
		to.Limit = f.int()
	}
}

func parseTarget(message []byte, to *lockkeeper.Target) error {
	f := fields{rest: message}
	for f.next() {
		f.target(to)
	}
	return f.err
}

func parseWant(message []byte, w *lockkeeper.Want) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			w.ID = f.uint()
		case fieldTargets:
			// Want.Check refuses more targets, so one too many is enough.
			var t lockkeeper.Target
			f.inner(parseTarget(f.message(), &t))
			if len(w.Targets) <= lockkeeper.MaxTargets {
				w.Targets = append(w.Targets, t)
			}
		case 3:
			w.Wait = f.duration()
		case 4, 5, 6:
			f.label(&w.Label, 4)
		case 7:
			w.Revision = f.uint()
		case 8:
			f.inner(parseRef(f.message(), &w.Inside))
		case 9:
			w.Priority = readInt(f.signed())
		case 10:
			w.WriterPolicy = enum[lockkeeper.WriterPolicy](&f)
		case 11:
			w.Quiet = f.duration()
		case 12:
			w.Steal = enum[lockkeeper.Steal](&f)
		case 13:
			w.After = f.duration()
		case 14:
			w.MaxHold = f.duration()
		case 15:
			w.Grace = f.duration()
		case 16:
			w.Expected = f.duration()
		case 17:
			w.Freeze = f.duration()
		case 18:
			w.AfterTTL = readInt(f.signed())
		}
	}
	return f.err
}

func parseEnding(message []byte, e *lockkeeper.Ending) error {
	var lapse lapses
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			e.Kind = enum[lockkeeper.EndingKind](&f)
		case 2:
			e.ID = f.uint()
		case 3:
			f.inner(parseRef(f.message(), &e.Ref))
		case 4:
			e.Path = lockkeeper.Path(f.message())
		case 5:
			e.Force = f.bool()
		case 6, 7, 8:
			f.label(&e.Label, 6)
		case 9:
			f.inner(lapse.parse(f.message()))
		}
	}
	if len(lapse.ids) > 0 {
		e.Lapse = lockkeeper.Lapse{ID: lapse.ids[0], Reason: lapse.reason, EndsAt: readDuration(lapse.endsAt)}
	}
	return f.err
}

// lapses are lapses that differ only in the claim.
type lapses struct {
	ids    []uint64
	reason lockkeeper.Reason
	endsAt int64 // as the wire has it
}

func (l *lapses) parse(message []byte) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			l.ids = f.uints(l.ids)
		case 2:
			l.reason = enum[lockkeeper.Reason](&f)
		case 3:
			l.endsAt = f.signed()
		}
	}
	return f.err
}

func parseSession(message []byte, s *lockkeeper.Session) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			s.ID = f.text()
		case 2:
			s.TTL = f.duration()
		case 3:
			s.Named = f.uints(s.Named)
		case 4:
			s.Outlive = f.bool()
		case 5:
			s.Epoch = f.uint()
		case 6, 7, 8:
			f.label(&s.Label, 6)
		case fieldLapsed:
			var l lapses
			f.inner(l.parse(f.message()))
			for _, id := range l.ids {
				s.Lapsed = append(s.Lapsed, lockkeeper.Lapse{ID: id, Reason: l.reason, EndsAt: readDuration(l.endsAt)})
			}
		}
	}
	return f.err
}

// A listed is a status as the wire has it.
type listed struct {
	*lockkeeper.Status
	handle  uint64
	asAsked bool
}

// parse reads a status, which is of the given session unless it names another.
func (s *listed) parse(message []byte, session string) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			s.Ref.Session = f.text()
		case 2:
			s.Ref.ID = f.uint()
		case 3:
			s.Change = f.uint()
		case 4:
			s.State = enum[lockkeeper.State](&f)
		case 5:
			var g lockkeeper.Grant
			f.inner(parseGrant(f.message(), &g))
			s.Grants = append(s.Grants, g)
		case 6:
			s.Fence = f.uint()
		case 7:
			s.Left = f.duration()
		case 8:
			s.Age = f.duration()
		case 9:
			s.Ticket = f.uint()
		default:
			s.parseRare(&f)
		}
	}
	s.Ref.Session = cmp.Or(s.Ref.Session, session)
	return f.err
}

// parseRare reads a field that few statuses have.
func (s *listed) parseRare(f *fields) {
	switch f.field {
	case 10, 11, 12:
		f.label(&s.Label, 10)
	case 13:
		s.Revision = f.uint()
	case 14:
		f.inner(parseRef(f.message(), &s.Inside))
	case 15:
		s.Reason = enum[lockkeeper.Reason](f)
	case 16:
		s.Text = f.text()
	case 17:
		s.Priority = readInt(f.signed())
	case 18:
		s.Unconfirmed = f.bool()
	case 19:
		s.Converting = f.bool()
	case 20:
		if s.Asked == nil {
			s.Asked = new(lockkeeper.Asked)
		}
		f.inner(parseAsked(f.message(), s.Asked))
	case 21:
		s.Position = f.int()
	case 22:
		s.ETA = f.duration()
	case 23:
		for _, w := range f.uints(nil) {
			s.Waits = append(s.Waits, narrow[lockkeeper.WaitReason](int32(w)))
		}
	case 24:
		s.Blockers = f.blocker(s.Blockers)
	case 25:
		s.Lapsed = f.bool()
	case fieldHandle:
		s.handle = f.uint()
	case 27:
		s.asAsked = f.bool()
	}
}

// complete adds the fields of a want that the answer to it leaves out.
func (s *listed) complete(w *lockkeeper.Want) {
	if !s.asAsked {
		return
	}
	s.Label, s.Inside, s.Revision, s.Priority = w.Label, w.Inside, w.Revision, w.Priority
	engines := s.Grants
	s.Grants = nil
	if len(w.Targets) > 0 {
		s.Grants = make([]lockkeeper.Grant, len(w.Targets))
	}
	for i, t := range w.Targets {
		s.Grants[i].Target = t
		if i < len(engines) {
			s.Grants[i].InUse, s.Grants[i].Slot = engines[i].InUse, engines[i].Slot
		}
	}
}

func parseGrant(message []byte, g *lockkeeper.Grant) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 5:
			g.InUse = f.int()
		case 6:
			g.Slot = f.int()
		default:
			f.target(&g.Target)
		}
	}
	return f.err
}

func parseAsked(message []byte, a *lockkeeper.Asked) error {
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			f.inner(parseRef(f.message(), &a.By))
		case 2:
			a.Reason = enum[lockkeeper.Reason](&f)
		case 3:
			a.Left = f.duration()
		case 4, 5, 6:
			f.label(&a.Label, 4)
		case 7:
			a.EndsAt = f.duration()
		}
	}
	return f.err
}

// blocker appends the blocker that the field has.
func (f *fields) blocker(to []lockkeeper.Blocker) []lockkeeper.Blocker {
	var b lockkeeper.Blocker
	part := fields{rest: f.message()}
	for part.next() {
		switch part.field {
		case 1:
			part.inner(parseRef(part.message(), &b.Ref))
		case 2:
			b.Why = enum[lockkeeper.WaitReason](&part)
		case 3:
			b.Path = lockkeeper.Path(part.message())
		case 4:
			b.Mode = enum[lockkeeper.Mode](&part)
		case 5:
			b.Units = part.int()
		case 6:
			b.Age = part.duration()
		case 7:
			b.Left = part.duration()
		case 8, 9, 10:
			part.label(&b.Label, 8)
		}
	}
	f.inner(part.err)
	return append(to, b)
}

// parseLease reads a lease of the session, or a piece of it, whose claims it appends to those of l.
func parseLease(message []byte, session string, l *lockkeeper.Lease) error {
	claims := l.Claims
	*l = lockkeeper.Lease{Key: lockkeeper.Key{Session: session}}
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			l.Key.Epoch = f.uint()
		case 2:
			l.TTL = f.duration()
		case 3:
			claims = append(claims, lockkeeper.Status{})
			s := listed{Status: &claims[len(claims)-1]}
			f.inner(s.parse(f.message(), session))
		case 4:
			l.Number = f.uint()
		case 5:
			l.EndsAt = f.duration()
		}
	}
	l.Claims = claims
	return f.err
}

// ParseError reads an Error. An unknown code becomes ErrUnavailable. err reports an invalid message.
func ParseError(message []byte) (e *lockkeeper.Error, err error) {
	e = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			e.Err = sentinelOf(Code(f.uint()))
		case 2:
			e.Path = lockkeeper.Path(f.message())
		case 3:
			e.Reason = enum[lockkeeper.Reason](&f)
		case 4:
			e.Detail = f.text()
		case 5:
			e.Blocked = f.blocker(e.Blocked)
		case 6:
			e.Position = f.int()
		case 7:
			e.ETA = f.duration()
		case 8:
			e.Epoch = f.uint()
		case 9:
			e.Stale = f.duration()
		}
	}
	return e, f.err
}
