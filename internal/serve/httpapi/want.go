package httpapi

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// A claimRequest is the body of POST /v1/claims. It may contain the fields of a single target.
type claimRequest struct {
	targetRequest
	Targets    []targetRequest `json:"targets"`
	Wait       *waitField      `json:"wait"` // a duration or "forever"; absent: do not wait
	TTL        *durationField  `json:"ttl"`
	Priority   int             `json:"priority"`
	Steal      string          `json:"steal"`       // "ask"
	StealAfter *stealField     `json:"steal_after"` // ask, and after that take
	MaxHold    durationField   `json:"max_hold"`
	Grace      durationField   `json:"grace"`
	Expected   durationField   `json:"expected"`
	Soft       bool            `json:"soft"`
	Quiet      durationField   `json:"quiet_period"` // timed soft
	As         string          `json:"as"`
	Note       string          `json:"note"`
	Link       string          `json:"link"`
}

// A targetRequest is a path and its mode.
type targetRequest struct {
	Path  string          `json:"path"`
	Mode  lockkeeper.Mode `json:"mode"`  // default: permits if there is a limit, else exclusive
	Units *int            `json:"units"` // default: 1
	Limit *int            `json:"limit"`
}

// target returns the target that t describes. A limit or units of 0 are there: they are out of range, or in a mode that
// has none.
func (t *targetRequest) target(m *mistakes) lockkeeper.Target {
	path, err := lockkeeper.ParsePath(t.Path)
	if t.Path != "" || !m.in("path", "targets") {
		m.add(err)
	}
	as := lockkeeper.Target{Path: path, Mode: t.Mode}
	switch {
	case as.Mode == 0 && t.Limit != nil:
		as.Mode = lockkeeper.ModePermits
	case as.Mode == 0:
		as.Mode = lockkeeper.ModeExclusive
	}
	if as.Mode != lockkeeper.ModePermits {
		if path != "" && (t.Units != nil || t.Limit != nil) && !m.in("mode", "limit", "targets") {
			m.addf("%s: units and limit go with permits only, not with %s", path, as.Mode)
		}
		return as
	}
	if as.Units = 1; t.Units != nil {
		as.Units = *t.Units
	}
	if t.Limit != nil {
		as.Limit = *t.Limit
	}
	return as
}

// targets returns the targets of the request; they are incomplete if some are wrong.
func (q *claimRequest) targets(m *mistakes) []lockkeeper.Target {
	list := q.Targets
	short := q.targetRequest != targetRequest{}
	switch {
	case short && len(list) > 0:
		m.addf("path, mode, units and limit exclude targets: put them into one of the targets")
	case short:
		list = []targetRequest{q.targetRequest}
	case len(list) == 0:
		m.addf("no target: give \"path\", or \"targets\": [{\"path\": …}]")
	case len(list) > lockkeeper.MaxTargets:
		m.addf("%d targets: 1 to %d are allowed", len(list), lockkeeper.MaxTargets)
		return nil
	}
	targets := make([]lockkeeper.Target, len(list))
	for i := range list {
		targets[i] = list[i].target(m)
	}
	return targets
}

// want returns the claim that the request describes, and adds all its mistakes to m.
func (q *claimRequest) want(m *mistakes) lockkeeper.Want {
	w := lockkeeper.Want{
		ID: solo.ClaimID, Priority: q.Priority,
		MaxHold:  time.Duration(q.MaxHold),
		Grace:    time.Duration(q.Grace),
		Expected: time.Duration(q.Expected),
		Quiet:    time.Duration(q.Quiet),
		Label:    lockkeeper.Label{As: q.As, Note: q.Note, Link: q.Link},
	}
	if q.Wait != nil {
		w.Wait = time.Duration(*q.Wait)
	}
	if q.Soft || q.Quiet != 0 {
		w.WriterPolicy = lockkeeper.Soft
	}
	if !m.in("wait") {
		m.add(w.CheckWait())
	}
	switch {
	case q.Steal != "" && q.Steal != "ask":
		m.addf("steal %s: write \"ask\", or give steal_after, after which the lock is taken", quoted(q.Steal))
	case q.StealAfter != nil:
		q.StealAfter.apply(&w)
	case q.Steal == "ask":
		w.Steal = lockkeeper.Ask
	}
	known := len(m.list)
	if unread := m.in("path", "mode", "units", "limit", "targets"); !unread || q.Path != "" || len(q.Targets) > 0 {
		w.Targets = q.targets(m)
		if !unread && len(m.list) == known {
			m.add(w.Check())
			return w
		}
	}
	// m has the mistakes of the targets.
	rest := w
	rest.Targets = []lockkeeper.Target{{Path: "path", Mode: lockkeeper.ModeExclusive}}
	m.add(rest.Check())
	return w
}

// ttl returns the TTL of the claim's session.
func (q *claimRequest) ttl(m *mistakes) time.Duration {
	if q.TTL == nil {
		return lockkeeper.DefaultTTL
	}
	s := lockkeeper.Session{ID: "x", TTL: time.Duration(*q.TTL)}
	m.add(s.Check(false))
	return s.TTL
}

// An amendment is the body of PATCH /v1/claims/{claim}: the fields to change. A server that does
// not know the request that made the claim knows only its status. It takes all other fields from
// the amendment, so the client must repeat fields that an amendment cannot change.
type amendment struct {
	Priority   *int             `json:"priority"`
	Limit      *int             `json:"limit"` // of targets in mode permits
	Mode       *lockkeeper.Mode `json:"mode"`  // of all targets: exclusive, shared
	Wait       *waitField       `json:"wait"`  // for the mode
	Steal      string           `json:"steal"`
	StealAfter *stealField      `json:"steal_after"`
	MaxHold    *durationField   `json:"max_hold"`
	Grace      *durationField   `json:"grace"`
	Expected   *durationField   `json:"expected"`
	Soft       *bool            `json:"soft"`
	Quiet      *durationField   `json:"quiet_period"`
}

// wantOf returns the want of a claim, as far as its status shows it.
func wantOf(st *lockkeeper.Status) lockkeeper.Want {
	w := lockkeeper.Want{ID: st.Ref.ID, Inside: st.Inside, Priority: st.Priority, Label: st.Label}
	for _, g := range st.Grants {
		w.Targets = append(w.Targets, g.Target)
	}
	if st.State == lockkeeper.Waiting {
		w.Wait = lockkeeper.Forever // unless the amendment says otherwise
	}
	return w
}

// apply returns w with the amendment.
func (a *amendment) apply(w lockkeeper.Want) (lockkeeper.Want, error) {
	if *a == (amendment{}) {
		return w, lockkeeper.Invalid("the amendment is empty: give priority, limit or mode")
	}
	var m mistakes
	w.Targets = append([]lockkeeper.Target(nil), w.Targets...)
	limited := false
	for i := range w.Targets {
		t := &w.Targets[i]
		if a.Mode != nil {
			t.Mode = *a.Mode
		}
		if a.Limit != nil && t.Mode == lockkeeper.ModePermits {
			t.Limit, limited = *a.Limit, true
		}
	}
	if a.Limit != nil && !limited {
		m.addf("limit: the claim has no target in mode permits")
	}
	if a.Priority != nil {
		w.Priority = *a.Priority
	}
	if a.Wait != nil {
		w.Wait = time.Duration(*a.Wait)
	} else if a.Mode != nil {
		w.Wait = 0
	}
	for _, d := range []struct {
		to   *time.Duration
		from *durationField
	}{{&w.MaxHold, a.MaxHold}, {&w.Grace, a.Grace}, {&w.Expected, a.Expected}, {&w.Quiet, a.Quiet}} {
		if d.from != nil {
			*d.to = time.Duration(*d.from)
		}
	}
	switch {
	case a.StealAfter != nil:
		a.StealAfter.apply(&w)
	case a.Steal == "ask":
		w.Steal = lockkeeper.Ask
	case a.Steal != "":
		m.addf("steal %s: write \"ask\", or give steal_after", quoted(a.Steal))
	}
	if a.Soft != nil && *a.Soft || a.Quiet != nil && *a.Quiet != 0 {
		w.WriterPolicy = lockkeeper.Soft
	}
	w.Revision++
	m.add(w.Check())
	return w, m.err()
}
