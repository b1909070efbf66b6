package lockkeeper

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Forever is a wait without a bound, and the time left where there is no end.
const Forever time.Duration = math.MaxInt64

// Limits of a [Want]. A value that exceeds them is refused, never clamped.
const (
	MaxTargets   = 64
	MaxPermits   = 1 << 30                   // the largest limit, and so the most units
	MaxPriority  = 1_000_000                 // priorities run from -MaxPriority to MaxPriority
	MaxAsBytes   = 128                       // of Label.As
	MaxNoteBytes = 512                       // of Label.Note and Label.Link
	MaxSessionID = 128                       // bytes of a session's id
	MaxDuration  = 10 * 365 * 24 * time.Hour // of any bound but Forever
)

// AfterMeasured, as [Want].After, waits for a holder that is asked to yield about as long as holders
// needed lately: for twice the 99th percentile of the handshakes that the engine measured, and for
// the whole TTL of the holder while it measured fewer than eight. Only engines with
// [FeatureMeasuredSteal] accept it.
const AfterMeasured time.Duration = -2 // -1 is Forever where durations cross a network

// MaxAfterTTL is the largest [Want].AfterTTL: the whole TTL of the holder.
const MaxAfterTTL = 1000

// Bounds and defaults of a session's TTL (R11).
const (
	MinTTL     = time.Second
	MaxTTL     = MaxDuration
	DefaultTTL = 30 * time.Second
)

// A Ref names one claim of one engine: the session that made it, and the id
// that the session chose for it. It prints as "session.7".
type Ref struct {
	Session string
	ID      uint64
}

func (r Ref) String() string {
	if r == (Ref{}) {
		return ""
	}
	return r.Session + "." + strconv.FormatUint(r.ID, 10)
}

// MarshalText writes the ref as String does.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what ParseRef reads; empty text is the zero Ref.
func (r *Ref) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Ref{}
		return nil
	}
	ref, err := ParseRef(string(text))
	*r = ref
	return err
}

// ParseRef reads "session.7". It refuses anything else with [ErrInvalid].
func ParseRef(s string) (Ref, error) {
	i := strings.LastIndexByte(s, '.')
	if i <= 0 {
		return Ref{}, invalidf("claim %q: a claim is written as its session, a dot and its number, such as \"k3v9.1\"", s)
	}
	id, err := strconv.ParseUint(s[i+1:], 10, 64)
	if err != nil {
		return Ref{}, invalidf("claim %q: %q is not a number: a claim is written as its session, a dot and its number, "+
			"such as \"k3v9.1\"", s, s[i+1:])
	}
	return Ref{Session: s[:i], ID: id}, nil
}

// Target is one path that a claim asks for, and the mode.
type Target struct {
	Path  Path `json:"path"`
	Mode  Mode `json:"mode"`
	Units int  `json:"units,omitempty"` // of Permits: how many, at least 1; else 0
	Limit int  `json:"limit,omitempty"` // of Permits: at most so many in use at once, as this caller sees it (R7); else 0
}

func (t Target) String() string {
	if t.Mode == ModePermits {
		return fmt.Sprintf("%d of %d permits of %s", t.Units, t.Limit, t.Path)
	}
	return t.Mode.String() + " " + string(t.Path)
}

// Label describes a claim for people. Engines store it and do not interpret it.
type Label struct {
	As   string `json:"as,omitempty"`   // the caller: a person, a job
	Note string `json:"note,omitempty"` // the purpose
	Link string `json:"link,omitempty"` // where to look, such as the URL of a CI run
}

// Want is one claim as its session asks for it. The same id with the same Want is the same claim,
// however often it is sent. With a higher Revision it amends the claim (R16): the priority, which
// can only rise, the limits of a waiting claim, or the modes of a held one (R14).
type Want struct {
	ID       uint64   `json:"id"`                 // chosen by the session, never used again by it; not 0
	Revision uint64   `json:"revision,omitempty"` // 0 for the first
	Inside   Ref      `json:"inside,omitzero"`    // the claim in whose hold this one is made (R15); zero: in none
	Targets  []Target `json:"targets"`            // 1 to MaxTargets, no path twice
	Priority int      `json:"priority,omitempty"`
	// bound of the wait, not of the hold (R8); 0: try once, Forever: no bound
	Wait         time.Duration `json:"wait,omitempty"`
	WriterPolicy WriterPolicy  `json:"writer_policy,omitempty"` // Soft: exclusive targets only, and never with Steal
	Quiet        time.Duration `json:"quiet,omitempty"`         // quiet period of Soft (R9)
	Steal        Steal         `json:"steal,omitempty"`         // R10
	After        time.Duration `json:"after,omitempty"`         // of Take: how long after the ask the hold is taken
	AfterTTL     int           `json:"after_ttl,omitempty"`     // of Take, instead of After: thousandths of the holder's TTL
	MaxHold      time.Duration `json:"max_hold,omitempty"`      // longest hold; 0: none (R11)
	Grace        time.Duration `json:"grace,omitempty"`         // after MaxHold, until the hold ends
	// announced duration of the hold: claims with a shorter wait fail at once (R8); 0: not
	// announced
	Expected time.Duration `json:"expected,omitempty"`
	// of a freeze, which is no claim: for how long it forbids new grants on the targets (R18)
	Freeze time.Duration `json:"freeze,omitempty"`
	Label
}

// Check returns an [ErrInvalid] with everything that is wrong with w by itself; nil if w is valid.
func (w *Want) Check() error {
	var c checker
	if w.ID == 0 {
		c.addf("id 0 is not allowed: ids begin with 1")
	}
	if w.Inside != (Ref{}) {
		c.text("inside", w.Inside.Session, MaxSessionID)
		if w.Inside.Session == "" || w.Inside.ID == 0 {
			c.addf("inside claim %d of session %q: a claim has a session, and a number from 1", w.Inside.ID, w.Inside.Session)
		}
	}
	w.checkTargets(&c)
	if w.Priority < -MaxPriority || w.Priority > MaxPriority {
		c.addf("priority %d is out of range: %d to %d", w.Priority, -MaxPriority, MaxPriority)
	}
	c.bound("wait", w.Wait, true)
	c.bound("quiet period", w.Quiet, false)
	if w.After != AfterMeasured {
		c.bound("steal after", w.After, false)
	}
	if w.AfterTTL < 0 || w.AfterTTL > MaxAfterTTL {
		c.addf("steal after %d thousandths of the TTL is out of range: 1 to %d, or 0 for none", w.AfterTTL, MaxAfterTTL)
	}
	c.bound("longest hold", w.MaxHold, false)
	c.bound("grace", w.Grace, false)
	c.bound("announced hold", w.Expected, false)
	c.bound("freeze", w.Freeze, false)
	w.checkCombinations(&c)
	c.label(w.Label)
	return c.err()
}

// CheckWait refuses a claim whose wait ends before its quiet period: it could never be
// granted. Call it where a person's request arrives. It is not part of Check, because a
// claim may reach an engine after a part of its wait has passed.
func (w *Want) CheckWait() error {
	if w.Quiet <= w.Wait {
		return nil
	}
	return invalidf("quiet period %s is longer than wait %s: "+
		"nothing is granted before it is over, so wait for at least as long", durationText(w.Quiet), durationText(w.Wait))
}

func (w *Want) checkTargets(c *checker) {
	if len(w.Targets) == 0 {
		c.addf("there are no targets: name 1 to %d paths, and a mode for each", MaxTargets)
		return
	}
	if len(w.Targets) > MaxTargets {
		c.addf("%d targets: 1 to %d are allowed", len(w.Targets), MaxTargets)
		return
	}
	for i, t := range w.Targets {
		check := t.Path.check
		if w.Freeze != 0 {
			check = t.Path.checkFreezable
		}
		if err := check(); err != nil {
			c.addf("%s", err.(*Error).Detail)
		}
		switch {
		case t.Mode < ModeExclusive || t.Mode > ModePermits:
			c.addf("%s: mode %d: allowed are exclusive, shared, permits", t.Path, t.Mode)
		case t.Mode != ModePermits && (t.Units != 0 || t.Limit != 0):
			c.addf("%s: units and limit go with permits only, not with %s", t.Path, t.Mode)
		case t.Mode == ModePermits && (t.Limit < 1 || t.Limit > MaxPermits):
			c.addf("%s: limit %d is out of range: 1 to %d", t.Path, t.Limit, MaxPermits)
		case t.Mode == ModePermits && (t.Units < 1 || t.Units > t.Limit):
			c.addf("%s: %d units are out of range: 1 to the limit, %d", t.Path, t.Units, t.Limit)
		}
		for _, other := range w.Targets[:i] {
			if other.Path == t.Path {
				c.addf("%s is named twice: name each path once", t.Path)
			}
		}
	}
}

func (w *Want) checkCombinations(c *checker) {
	switch {
	case w.WriterPolicy > Soft:
		c.addf("writer policy %d: allowed are hard, soft", w.WriterPolicy)
	case w.WriterPolicy == Soft && w.Revision == 0 &&
		slices.ContainsFunc(w.Targets, func(t Target) bool { return t.Mode != ModeExclusive }):
		c.addf("a soft claim has exclusive targets only")
	case w.WriterPolicy == Soft && w.Steal != NoSteal:
		c.addf("soft and steal exclude each other: a soft claim blocks nobody")
	case w.WriterPolicy != Soft && w.Quiet != 0:
		c.addf("a quiet period goes with soft only")
	}
	switch {
	case w.Steal > Take:
		c.addf("steal %d: allowed are none, ask, take", w.Steal)
	case w.Steal != Take && (w.After != 0 || w.AfterTTL != 0):
		c.addf("a bound after which to steal goes with take only")
	case w.After != 0 && w.AfterTTL != 0:
		c.addf("a time after which to steal and a part of the TTL exclude each other")
	}
	if w.MaxHold == 0 && w.Grace != 0 {
		c.addf("a grace goes with a longest hold only")
	}
	if w.Freeze != 0 && (w.WriterPolicy != Hard || w.Steal != NoSteal || w.MaxHold != 0 || w.Expected != 0 ||
		slices.ContainsFunc(w.Targets, func(t Target) bool { return t.Mode != ModeExclusive })) {
		c.addf("a freeze has exclusive targets, a duration and a label, nothing else")
	}
}

// Features returns what an engine must claim to accept w.
func (w *Want) Features() Features {
	var f Features
	for _, t := range w.Targets {
		switch t.Mode {
		case ModeShared:
			f |= FeatureShared
		case ModePermits:
			f |= FeaturePermits
		}
		if t.Path != t.Path.Tree() {
			f |= FeatureHierarchy
		}
	}
	for _, need := range [...]struct {
		needed  bool
		feature Features
	}{
		{len(w.Targets) > 1, FeatureManyTargets},
		{w.Priority != 0, FeaturePriority},
		{w.Steal != NoSteal, FeatureSteal},
		{w.WriterPolicy == Soft, FeatureWriterPolicy},
		{w.MaxHold != 0, FeatureLongestHold},
		{w.Revision != 0, FeatureAmend},
		{w.Freeze != 0, FeatureFreeze},
		{w.After == AfterMeasured, FeatureMeasuredSteal},
	} {
		if need.needed {
			f |= need.feature
		}
	}
	return f
}

// SameRequest reports whether w and b are the same request, apart from the revision.
func (w *Want) SameRequest(b *Want) bool {
	x, y := *w, *b
	x.Targets, y.Targets, x.Revision, y.Revision = nil, nil, 0, 0
	return slices.Equal(w.Targets, b.Targets) && x.equalScalars(&y)
}

func (w *Want) equalScalars(b *Want) bool {
	return w.ID == b.ID && w.Inside == b.Inside && w.Priority == b.Priority && w.Wait == b.Wait &&
		w.WriterPolicy == b.WriterPolicy && w.Quiet == b.Quiet && w.Steal == b.Steal && w.After == b.After &&
		w.AfterTTL == b.AfterTTL &&
		w.MaxHold == b.MaxHold && w.Grace == b.Grace && w.Expected == b.Expected && w.Freeze == b.Freeze && w.Label == b.Label
}

// checker collects everything that is wrong with one input.
type checker struct{ wrong []string }

func (c *checker) addf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *checker) bound(name string, d time.Duration, forever bool) {
	if forever && d == Forever {
		return
	}
	if d < 0 || d > MaxDuration {
		c.addf("%s %s is out of range: 0 to %s", name, durationText(d), durationText(MaxDuration))
	}
}

// durationText writes a bound as people say it: "10 years", "1h", not "87600h0m0s".
func durationText(d time.Duration) string {
	if d == MaxDuration {
		return "10 years"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (c *checker) label(l Label) {
	c.name("name", l.As, MaxAsBytes)
	c.text("note", l.Note, MaxNoteBytes)
	c.text("link", l.Link, MaxNoteBytes)
}

// name checks a text that people use to identify something: it must have no invisible characters.
func (c *checker) name(name, s string, most int) {
	c.text(name, s, most)
	if isPlain(s) {
		return
	}
	if i := strings.IndexFunc(s, hidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		c.addf("%s %q has the invisible character %U at byte %d: leave it out", name, s, r, i)
	}
}

func (c *checker) text(name, s string, most int) {
	if len(s) > most {
		c.addf("%s has %d bytes: at most %d are allowed", name, len(s), most)
	}
	if !isPlain(s) && (!utf8.ValidString(s) || strings.IndexFunc(s, unicode.IsControl) >= 0) {
		c.addf("%s %q has control characters or is not UTF-8", name, s)
	}
}

func (c *checker) err() error {
	if len(c.wrong) == 0 {
		return nil
	}
	return invalidf("%s", strings.Join(c.wrong, "; "))
}
