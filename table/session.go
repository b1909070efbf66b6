package table

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A session is the unit of liveness (R11).
type session struct {
	id         string
	label      lockkeeper.Label
	ttl        time.Duration
	epoch      uint64
	deadline   time.Duration // forever for TTL 0
	promise    time.Duration // the deadline that its last lease stated (R12)
	resumed    bool          // a client attached it since the last restart (R19)
	leases     uint64        // the number of the latest lease
	acked      uint64        // the latest lease that it acknowledged; 0: none
	lowestOpen uint64        // its client starts no claim with an id below this (R16)
	claims     idMap[*claim]
	endings    endings
	due        timer
	terms      *terms           // of its latest claim
	calmed     *terms           // in a scratch copy: those that terms stand for
	latest     lockkeeper.Label // of its latest claim
	packed     label            // latest
}

// claim returns the live claim with that id; nil if there is none.
func (s *session) claim(id uint64) *claim {
	c, _ := s.claims.get(id)
	return c
}

// A tombstone remembers an ended claim, so that the table answers a late repetition of the request
// and never grants it again (R16).
type tombstone struct {
	id      uint64
	session *session
	want    *terms
	label   label
	path    lockkeeper.Path // of its only target; mode is 0 if the grants are in several
	at      time.Duration
	forget  time.Duration // when the table forgets it
	change  uint64
	fence   uint64
	*ended                  // &plainEnd for most ends; see own
	mode    lockkeeper.Mode // of the target of path
	reason  lockkeeper.Reason
	thawed  bool // it stands for an ended freeze, not for a claim
	acked   bool // its session knows of the end: it ended the claim, or its first answer said so
	kept    bool // others than the endings of its session need it after the step in which the claim ended

	remembered bool // it is in the endings of its session, as an object
}

// ended is the rare part of a tombstone.
type ended struct {
	text         string
	several      []lockkeeper.Grant   // what it held or waited for, if not one path exclusively or shared
	unackedUntil time.Duration        // until then its holder may believe that it still holds (R12); 0: it knows
	blockers     []lockkeeper.Blocker // of a refused claim: the claims and freezes that blocked it
	position     int                  // of a timed-out claim: its position in the queue
	eta          time.Duration        // of a timed-out claim: the estimated rest of its wait; 0 if unknown
}

// plainEnd is the rare part of most tombstones. All tables share it, so nobody may change it.
var plainEnd ended

// own returns the rare part of tomb for a change; tomb gets one of its own if it has none.
func (tomb *tombstone) own() *ended {
	if tomb.ended == &plainEnd {
		tomb.ended = new(ended)
	}
	return tomb.ended
}

func (tomb *tombstone) ref() lockkeeper.Ref {
	return lockkeeper.Ref{Session: tomb.session.id, ID: tomb.id}
}

// grants returns what the claim held, or waited for if it held nothing.
func (tomb *tombstone) grants() []lockkeeper.Grant {
	if tomb.mode == 0 {
		return tomb.several
	}
	return []lockkeeper.Grant{{Target: lockkeeper.Target{Path: tomb.path, Mode: tomb.mode}}}
}

// setGrants sets what grants returns.
func (tomb *tombstone) setGrants(grants []lockkeeper.Grant) {
	if len(grants) == 1 && grants[0].Mode != lockkeeper.ModePermits {
		tomb.path, tomb.mode = grants[0].Path, grants[0].Mode
	} else if len(grants) > 0 {
		tomb.own().several = grants
	}
}
