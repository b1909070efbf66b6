package script

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// Limits of what a server may answer. They are wider than what the scripts produce.
const (
	MaxClaims  = 10_000 // of one session
	MaxPage    = 1_000  // sessions in one answer to List
	maxText    = 4096
	maxChannel = 256
	maxNonce   = 128
	maxRef     = lockkeeper.MaxSessionID + 24
	maxWant    = 1<<16 - 1
	maxEnd     = maxText + lockkeeper.MaxSessionID + 64
)

// Decode returns the reply that a script answered. Anybody may write into a shared Redis, so every
// field is checked: an error, with words, means that the reply is no vote and no promise. reply is
// what the Redis client returned: a string or bytes.
func Decode(kind quorum.Kind, reply any) (quorum.Reply, error) {
	u := unpacker{}
	switch text := reply.(type) {
	case string:
		u.b = []byte(text)
	case []byte:
		u.b = text
	default:
		return quorum.Reply{}, fmt.Errorf("the reply of the Redis server is a %T instead of text", reply)
	}
	var r quorum.Reply
	n := u.array("the reply", 9)
	if u.err == nil && n < 8 {
		u.failf("the reply has %d entries: 8, or 9 with ends", n)
	}
	r.Outcome = quorum.Outcome(u.number("the outcome", int64(quorum.Done), int64(quorum.Full)))
	r.Now = u.time("the server's clock")
	r.Epoch = u.count("the epoch")
	r.Until = u.time("the end of the session")
	r.Claims = list(&u, "the claims", MaxClaims, (*unpacker).claim)
	r.Listed = list(&u, "the sessions", MaxPage, (*unpacker).session)
	r.More = u.bool("the mark of further sessions")
	r.Text = u.text("the text", maxText)
	if n == 9 {
		r.Ends = list(&u, "the ends", quorum.MaxEnds, (*unpacker).endRecord)
	}
	if err := u.end(); err != nil {
		return quorum.Reply{}, fmt.Errorf("the reply of the Redis server is damaged: %w", err)
	}
	if (len(r.Listed) > 0 || n == 9) && kind != quorum.List {
		return quorum.Reply{}, fmt.Errorf("the reply of the Redis server is damaged: it lists sessions")
	}
	return r, nil
}

// DecodeMessage returns the message that a script published. Anybody may publish, so a message is
// only a reason to ask the server; see Decode.
func DecodeMessage(payload []byte) (quorum.Message, error) {
	u := unpacker{b: payload}
	u.record("it", 5)
	m := quorum.Message{
		To:      u.text("the channel", maxChannel),
		Session: u.text("the session", lockkeeper.MaxSessionID),
		Epoch:   u.count("the epoch"),
		Now:     u.time("the server's clock"),
		Claim:   u.claim(),
	}
	if err := u.end(); err != nil {
		return quorum.Message{}, fmt.Errorf("a message of the Redis server is damaged: %w", err)
	}
	return m, nil
}

// list reads an array; nil if it is empty.
func list[T any](u *unpacker, what string, most int, read func(*unpacker) T) []T {
	n := u.array(what, most)
	var all []T
	for range n {
		if u.err != nil {
			return nil
		}
		all = append(all, read(u))
	}
	return all
}

// time reads a time or a duration in microseconds.
func (u *unpacker) time(what string) quorum.Micros {
	return quorum.Micros(u.number(what, 0, maxExact))
}

func (u *unpacker) session() quorum.SessionState {
	u.record("a session", 8)
	return quorum.SessionState{
		ID:     u.text("a session's id", lockkeeper.MaxSessionID),
		Epoch:  u.count("a session's epoch"),
		TTL:    u.time("a session's TTL"),
		Until:  u.time("a session's end"),
		Label:  u.label(),
		Claims: list(u, "a session's claims", MaxClaims, (*unpacker).claim),
	}
}

func (u *unpacker) claim() quorum.ClaimState {
	u.record("a claim", 17)
	c := quorum.ClaimState{
		ID:       u.count("a claim's id"),
		State:    lockkeeper.State(u.number("a claim's state", int64(lockkeeper.Waiting), int64(lockkeeper.Ended))),
		Reason:   u.reason(),
		Text:     u.text("a claim's text", maxText),
		Revision: u.count("a claim's revision"),
		Vote:     u.count("a claim's vote"),
		Counter:  u.count("a claim's counter"),
		Unsure:   u.time("a claim's unsure end"),
		Since:    u.time("a claim's beginning"),
		Lapsed:   u.bool("a claim's lapse"),
		LapseEnd: u.time("the end of a claim's lapse"),
	}
	if u.present("a claim's ask") {
		c.Ask = u.ask()
	}
	c.Asking = u.bool("whether a claim asks")
	c.AskEnd = u.time("the end of what a claim asks")
	c.Position = int(u.number("a claim's position", 0, math.MaxInt32))
	c.Blockers = list(u, "a claim's blockers", lockkeeper.MaxBlockers, (*unpacker).blocker)
	if u.present("a claim's want") {
		c.Want = u.want()
	}
	u.checkVote(&c)
	return c
}

// endRecord reads an entry of the set of ends: time, session and id as MEMBER of a queue has them, and
// what is packed.
func (u *unpacker) endRecord() quorum.EndRecord {
	text := u.text("an end", maxEnd)
	const digits = 16
	if u.err != nil {
		return quorum.EndRecord{}
	}
	at, rest := text[:min(digits, len(text))], text[min(digits, len(text)):]
	session, rest, _ := strings.Cut(rest, "\x00")
	id, rest := rest[:min(digits, len(rest))], rest[min(digits, len(rest)):]
	time, err := strconv.ParseUint(at, 10, 53)
	number, wrong := strconv.ParseUint(id, 10, 53)
	if err != nil || wrong != nil || session == "" || len(session) > lockkeeper.MaxSessionID {
		u.failf("the end %.80q names no time and claim", text)
		return quorum.EndRecord{}
	}
	packed := unpacker{b: []byte(rest)}
	e := quorum.EndRecord{
		At:     quorum.Micros(time),
		Ref:    lockkeeper.Ref{Session: session, ID: number},
		Reason: packed.reason(),
		Text:   packed.text("the text of an end", maxText),
	}
	if err := packed.end(); err != nil {
		u.fail(err)
	}
	return e
}

// checkVote refuses states that would be a vote without being one.
func (u *unpacker) checkVote(c *quorum.ClaimState) {
	switch {
	case u.err != nil:
	case (c.State == lockkeeper.Held) != (c.Vote != 0):
		u.failf("claim %d is %s with the vote %d", c.ID, c.State, c.Vote)
	case c.Vote > c.Counter:
		u.failf("claim %d has the vote %d above the counter %d", c.ID, c.Vote, c.Counter)
	case (c.State == lockkeeper.Ended) != (c.Reason != lockkeeper.NoReason):
		u.failf("claim %d is %s for the reason %q", c.ID, c.State, c.Reason)
	}
}

// present reads the number of entries of an optional value, 0 or 1.
func (u *unpacker) present(what string) bool { return u.array(what, 1) == 1 }

func (u *unpacker) reason() lockkeeper.Reason {
	return lockkeeper.Reason(u.number("a reason", 0, int64(lockkeeper.Quota)))
}

func (u *unpacker) label() lockkeeper.Label {
	return lockkeeper.Label{
		As:   u.text("a name", lockkeeper.MaxAsBytes),
		Note: u.text("a note", lockkeeper.MaxNoteBytes),
		Link: u.text("a link", lockkeeper.MaxNoteBytes),
	}
}

func (u *unpacker) ref() lockkeeper.Ref {
	return lockkeeper.Ref{
		Session: u.text("a session's id", lockkeeper.MaxSessionID),
		ID:      u.count("a claim's id"),
	}
}

func (u *unpacker) ask() *quorum.Ask {
	u.record("an ask", 7)
	return &quorum.Ask{
		By:     u.text("the claim that asks", maxRef),
		Reason: u.reason(),
		End:    u.time("the end of an ask"),
		Acked:  u.bool("whether an ask is acknowledged"),
		Label:  u.label(),
	}
}

func (u *unpacker) blocker() quorum.Blocker {
	u.record("a blocker", 13)
	return quorum.Blocker{
		Ref:       u.ref(),
		Path:      u.text("a blocker's path", lockkeeper.MaxPathBytes),
		Waiting:   u.bool("whether a blocker waits"),
		Vote:      u.count("a blocker's vote"),
		Priority:  u.priority(),
		Ticket:    u.count("a blocker's ticket"),
		Since:     u.time("a blocker's beginning"),
		Until:     u.time("a blocker's end"),
		Announced: u.time("a blocker's announced end"),
		Label:     u.label(),
	}
}

func (u *unpacker) priority() int {
	return int(u.number("a priority", -lockkeeper.MaxPriority, lockkeeper.MaxPriority))
}

// want reads what packer.want wrote.
func (u *unpacker) want() *quorum.WantRecord {
	u.record("a claim's want", 16)
	w := &quorum.WantRecord{
		Revision: u.count("a revision"),
		Priority: u.priority(),
		Paths: list(u, "the paths", lockkeeper.MaxTargets, func(u *unpacker) string {
			return u.text("a path", lockkeeper.MaxPathBytes)
		}),
		Ticket:   u.count("a ticket"),
		Try:      u.bool("whether a claim waits"),
		Steal:    lockkeeper.Steal(u.number("a steal", 0, int64(lockkeeper.Take))),
		After:    u.time("the allowed wait of a steal"),
		AfterTTL: int(u.number("the allowed wait of a steal", 0, math.MaxInt32)),
		Expected: u.time("an announced duration"),
		MaxHold:  u.time("a longest hold"),
		Grace:    u.time("a grace"),
		Inside:   u.ref(),
		Label:    u.label(),
	}
	if u.err == nil && (len(w.Paths) == 0 || !slices.IsSorted(w.Paths) ||
		len(slices.Compact(slices.Clone(w.Paths))) != len(w.Paths)) {
		u.failf("the paths %q are not sorted, or one is named twice", w.Paths)
	}
	return w
}
