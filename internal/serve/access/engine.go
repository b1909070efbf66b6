package access

import (
	"context"
	"errors"
	"iter"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// guarded is the engine of one pass.
type guarded struct {
	pass   Pass
	engine lockkeeper.Engine
	names  names
	usage  *limits.Identity // nil: claims and sessions are not counted
}

// Guarantees implements lockkeeper.Engine.
func (e *guarded) Guarantees() lockkeeper.Guarantees {
	g := e.engine.Guarantees()
	g.Partial = !e.pass.SeesEverything()
	return g
}

// Close implements lockkeeper.Engine: the engine is the gate's, and stays open.
func (e *guarded) Close() error { return nil }

// Attach implements lockkeeper.Engine.
func (e *guarded) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	r, err := e.pass.enter()
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	ctx = e.as(ctx, r)
	own := s.ID
	if !r.open {
		if s.ID, err = e.session(r, &s); err != nil {
			return lockkeeper.Lease{}, err
		}
	}
	alone := s.Outlive
	s.Outlive = true // the session must outlive this process, because its client does
	if e.usage == nil {
		lease, err := e.engine.Attach(ctx, s, notify)
		e.attached(&s, &lease, alone, err)
		return lease, err
	}
	session, generation, err := e.usage.Attaching(own, s.TTL, &r.limits)
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	lease, err := e.engine.Attach(ctx, s, e.notified(own, notify))
	session.Attached(&lease, generation, err)
	e.attached(&s, &lease, alone, err)
	return e.names.lease(lease), e.names.err(err)
}

// notified returns a function that counts notifications of a session, which the identity calls own,
// and passes them on to notify if that is not nil.
func (e *guarded) notified(own string, notify func([]lockkeeper.Status)) func([]lockkeeper.Status) {
	return func(all []lockkeeper.Status) {
		e.usage.Notified(own, all)
		if notify != nil {
			notify(e.names.statuses(all))
		}
	}
}

// attached records an attach that the engine may have done, for a session that lives by its TTL
// alone.
func (e *guarded) attached(s *lockkeeper.Session, lease *lockkeeper.Lease, alone bool, err error) {
	if alone && (err == nil || errors.Is(err, lockkeeper.ErrUnavailable)) {
		e.pass.admission.gate.refreshed.note(s.ID, max(s.TTL, lease.TTL), true)
	}
}

// session validates s and returns the engine's id of it.
func (e *guarded) session(r *rights, s *lockkeeper.Session) (string, error) {
	if err := s.Check(e.engine.Guarantees().NoExpiry); err != nil {
		return "", err
	}
	id, err := e.names.own(s.ID)
	if err != nil {
		return "", err
	}
	if len(id) > lockkeeper.MaxSessionID {
		return "", lockkeeper.Invalid("session id %q has %d bytes: at most %d are allowed to %s, whose name counts too",
			s.ID, len(s.ID), lockkeeper.MaxSessionID-len(e.names.prefix), e.pass.Name())
	}
	err = r.allowsTTL(e.pass.Name(), s.TTL)
	if err != nil && e.usage != nil && e.usage.Keeps(s.ID, s.TTL) {
		err = nil
	}
	return id, err
}

// key returns the engine's key for k, and the rights of the pass.
func (e *guarded) key(k lockkeeper.Key) (lockkeeper.Key, *rights, error) {
	r, err := e.pass.enter()
	if err == nil {
		k.Session, err = e.names.own(k.Session)
	}
	return k, r, err
}

// Renew implements lockkeeper.Engine.
func (e *guarded) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	key, r, err := e.key(k)
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	ctx = e.as(ctx, r)
	refreshed := &e.pass.admission.gate.refreshed
	if e.usage == nil {
		lease, err := e.engine.Renew(ctx, key)
		if err == nil {
			refreshed.note(key.Session, lease.TTL, false)
		}
		return lease, err
	}
	session, generation := e.usage.Renewing(k.Session)
	lease, err := e.engine.Renew(ctx, key)
	e.usage.Renewed(session, k.Session, generation, &lease, err)
	if err == nil {
		refreshed.note(key.Session, lease.TTL, false)
	}
	return e.names.lease(lease), e.names.err(err)
}

// Claim implements lockkeeper.Engine.
func (e *guarded) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	drain := &e.pass.admission.gate.drain
	if w.Freeze <= 0 && e.passes() && drain.enter() {
		defer drain.leave()
		return e.engine.Claim(ctx, k, w)
	}
	key, r, err := e.key(k)
	if err == nil && !r.open {
		err = e.permits(r, key, &w)
	}
	if err != nil {
		return lockkeeper.Status{}, err
	}
	ctx = e.as(ctx, r)
	if w.Freeze > 0 {
		st, err := e.engine.Claim(ctx, key, w)
		e.operated(r, Act{
			Verb:  Freeze,
			Path:  first(w.Targets),
			Ref:   lockkeeper.Ref{Session: key.Session, ID: w.ID},
			Label: w.Label,
			Err:   err,
		})
		return e.names.status(st), e.names.err(err)
	}
	if drain.enter() {
		defer drain.leave()
	} else {
		why, _ := e.pass.admission.gate.Draining()
		if _, err := e.known(ctx, key, w.ID, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.Draining,
			Detail: why + "; no new claims are taken, and what is held or waits goes on"}); err != nil {
			return lockkeeper.Status{}, err
		}
	}
	if e.usage == nil { // no quota, and the gate may drain
		return e.engine.Claim(ctx, key, w)
	}
	session, err := e.usage.Claiming(k, &w, &r.limits)
	if err != nil { // a quota does not refuse an existing claim
		switch state, missing := e.known(ctx, key, w.ID, err); {
		case missing != nil:
			return lockkeeper.Status{}, missing
		case state == lockkeeper.Ended: // the engine may forget it before the call, and then makes it again
			return lockkeeper.Status{}, err
		}
		if session, err = e.usage.Claiming(k, &w, nil); err != nil {
			return lockkeeper.Status{}, err
		}
	}
	st, err := e.engine.Claim(ctx, key, w)
	session.Claimed(k, w.ID, &st, err)
	return e.names.status(st), e.names.err(err)
}

// passes reports whether calls need no mapping, counting or checks, apart from draining. It is a
// short cut for servers without a policy.
func (e *guarded) passes() bool {
	if e.usage != nil {
		return false
	}
	r := e.pass.admission.rights.Load()
	return r != nil && r.open
}

// known returns the state of the claim if the engine has it already, refusal if it has not, and the
// error of the query if that fails.
func (e *guarded) known(ctx context.Context, key lockkeeper.Key, id uint64, refusal error) (lockkeeper.State, error) {
	st, found, err := e.lookup(ctx, lockkeeper.Ref{Session: key.Session, ID: id})
	if err == nil && !found {
		return 0, refusal
	}
	return st.State, err
}

// lookup returns the status of a claim; false if the engine has no such claim.
func (e *guarded) lookup(ctx context.Context, ref lockkeeper.Ref) (lockkeeper.Status, bool, error) {
	for st, err := range e.engine.List(ctx, lockkeeper.Query{Ref: ref, Brief: true}) {
		return st, err == nil, err
	}
	return lockkeeper.Status{}, false, nil
}

// permits validates w, maps the reference in it, and returns the denial if the rules do not allow
// it. It denies a repeated claim, too: if the engine granted the first one and the answer was lost,
// the client ends that claim when it learns of the denial.
func (e *guarded) permits(r *rights, key lockkeeper.Key, w *lockkeeper.Want) error {
	if err := w.Check(); err != nil {
		return err
	}
	verb := Lock
	if w.Freeze > 0 {
		verb = Freeze
	}
	refuse := func(at lockkeeper.Path, err error) error {
		e.pass.acted(Act{Verb: verb, Path: at, Ref: lockkeeper.Ref{Session: key.Session, ID: w.ID}, Label: w.Label, Err: err})
		return err
	}
	if !r.elsewhere {
		if at, err := r.allowsTargets(e.pass.Name(), w); err != nil {
			return refuse(at, err)
		}
	}
	if w.Inside != (lockkeeper.Ref{}) {
		session, err := e.names.own(w.Inside.Session)
		if err != nil { // such a claim could make others look deadlocked
			return refuse(first(w.Targets), insideAnother(e.pass.Name(), w.Inside))
		}
		if len(session) > lockkeeper.MaxSessionID {
			return lockkeeper.Invalid("inside claim %s: no session of %s has such a long id", w.Inside, e.pass.Name())
		}
		w.Inside.Session = session
	}
	return r.allowsPriority(e.pass.Name(), w)
}

func first(targets []lockkeeper.Target) lockkeeper.Path {
	if len(targets) == 0 {
		return ""
	}
	return targets[0].Path
}

// End implements lockkeeper.Engine.
func (e *guarded) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if ending.Kind == lockkeeper.Release && e.passes() {
		return e.engine.End(ctx, k, ending)
	}
	key, r, err := e.key(k)
	if err != nil {
		return err
	}
	ctx = e.as(ctx, r)
	switch ending.Kind {
	case lockkeeper.Revoke:
		return e.revoke(ctx, r, key, ending)
	case lockkeeper.Thaw:
		return e.thaw(ctx, r, key, ending)
	}
	counts := e.ending(k.Session)
	err = e.engine.End(ctx, key, ending)
	e.ended(counts, key, ending, err)
	return e.names.err(err)
}

// begun is what the identity counted of a session when a request began; the zero value: nothing.
type begun struct {
	session    *limits.Session
	generation uint64
}

// ending begins an ending of the session's own. The identity calls the session name.
func (e *guarded) ending(name string) (a begun) {
	if e.usage != nil {
		a.session, a.generation = e.usage.Ending(name)
	}
	return a
}

// ended applies the answer to an ending of the session's own.
func (e *guarded) ended(a begun, key lockkeeper.Key, ending lockkeeper.Ending, err error) {
	if err == nil && ending.Kind == lockkeeper.Leave {
		e.pass.admission.gate.refreshed.forget(key.Session)
	}
	if e.usage != nil {
		e.usage.Ended(a.session, a.generation, key, ending, err)
	}
}

func (e *guarded) thaw(ctx context.Context, r *rights, key lockkeeper.Key, ending lockkeeper.Ending) error {
	err := ending.Check()
	if err != nil {
		return err
	}
	if !r.elsewhere {
		err = r.may(e.pass.Name(), Freeze, ending.Path)
	}
	if err == nil {
		err = e.engine.End(ctx, key, ending)
	}
	e.operated(r, Act{Verb: Thaw, Path: ending.Path, Label: ending.Label, Err: err})
	return e.names.err(err)
}

func (e *guarded) revoke(ctx context.Context, r *rights, key lockkeeper.Key, ending lockkeeper.Ending) error {
	if err := ending.Check(); err != nil {
		return err
	}
	ending.Ref.Session = e.names.in(ending.Ref.Session)
	at, err := e.mayRevoke(ctx, r, ending.Ref)
	if err == nil {
		err = e.engine.End(ctx, key, ending)
	}
	e.operated(r, Act{Verb: Revoke, Path: at, Ref: ending.Ref, Label: ending.Label, Force: ending.Force, Err: err})
	return e.names.err(err)
}

// mayRevoke looks the claim up, and returns its first path if the pass may revoke it. A claim that
// the identity may not see does not exist for it.
func (e *guarded) mayRevoke(ctx context.Context, r *rights, ref lockkeeper.Ref) (lockkeeper.Path, error) {
	if r.open || r.elsewhere {
		return "", nil
	}
	if _, some := r.at[Revoke]; !some {
		return "", mayNotRevoke(e.pass.Name(), e.names, r, ref)
	}
	st, found, err := e.lookup(ctx, ref)
	if err != nil {
		return "", err
	}
	return r.allowsRevoke(e.pass.Name(), e.names, ref, &st, found)
}

// operated reports an operator's act, unless the engine decides: then it reports the act, too.
func (e *guarded) operated(r *rights, a Act) {
	if !r.elsewhere {
		e.pass.acted(a)
	}
}

// List implements lockkeeper.Engine. The rules in force at the time of each status decide whether a
// follower sees it. The list ends with an ErrDenied when the pass is withdrawn. A list without a status is an
// ErrDenied if the identity may do nothing at the path that it is about: nobody should take that for a free path.
func (e *guarded) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if _, err := e.pass.enter(); err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(e.pass.admission.life, cancel)
		defer stop()
		about, shown := q.Meets, false
		if q.Follow || q.Session != "" || q.Ref != (lockkeeper.Ref{}) {
			about = ""
		}
		q = e.names.query(q)
		q.Sees = func(st *lockkeeper.Status) bool { // so that the engine computes no hidden evidence
			r, withdrawn := e.pass.admission.current()
			return withdrawn == nil && r.sees(e.names, st)
		}
		q.Keep = e.pass.Usage().Keep
		for st, err := range e.engine.List(ctx, q) {
			r, withdrawn := e.pass.admission.current()
			if withdrawn != nil {
				break
			}
			if err == nil && !r.sees(e.names, &st) {
				continue
			}
			shown = true
			if !yield(e.names.status(st), e.names.err(err)) {
				return
			}
		}
		r, err := e.pass.admission.current()
		if err == nil && !shown && about != "" && !r.allowsSomething(about) {
			err = r.may(e.pass.Name(), Look, about)
		}
		if err != nil {
			yield(lockkeeper.Status{}, err)
		}
	}
}
