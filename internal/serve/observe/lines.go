package observe

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A line is one line of the audit log. docs/operations.md says what each event means.
type line struct {
	Time     string `json:"time"` // of the wall clock, for people
	Event    string `json:"event"`
	Claim    string `json:"claim,omitempty"`
	Identity string `json:"identity,omitempty"`
	From     string `json:"from,omitempty"`
	lockkeeper.Label
	Targets     []lockkeeper.Grant `json:"targets,omitempty"`
	Fence       uint64             `json:"fence,omitempty"`
	Unconfirmed bool               `json:"unconfirmed,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Text        string             `json:"text,omitempty"`
	Waited      *seconds           `json:"waited,omitempty"`
	Held        *seconds           `json:"held,omitempty"`
	Left        *seconds           `json:"left,omitempty"`
	Asked       *lockkeeper.Asked  `json:"asked,omitempty"`
	Verb        access.Verb        `json:"verb,omitempty"`
	Path        lockkeeper.Path    `json:"path,omitempty"`
	Force       bool               `json:"force,omitempty"`
	Error       string             `json:"error,omitempty"`
	Dropped     int                `json:"dropped,omitempty"`
	More        int                `json:"more,omitempty"`
}

// seconds is a duration in seconds, to the microsecond.
type seconds float64

func inSeconds(d time.Duration) *seconds {
	s := seconds(math.Round(d.Seconds()*1e6) / 1e6)
	return &s
}

// encode writes a line with the time, and its end.
func encode(l *line) []byte {
	l.Time = time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	text, err := json.Marshal(l)
	if err != nil { // nothing in a line can't be written; if it were so, that must be seen
		text, _ = json.Marshal(&line{Time: l.Time, Event: l.Event, Claim: l.Claim, Error: err.Error()})
	}
	return append(lockkeeper.AppendVisible(nil, text), '\n')
}

// about is a line about a claim.
func (a *Audit) about(event string, st *lockkeeper.Status) *line {
	return &line{
		Event: event, Claim: st.Ref.String(), Identity: a.whose(st.Ref), Label: st.Label, Targets: st.Grants, Fence: st.Fence,
	}
}

func (a *Audit) whose(ref lockkeeper.Ref) string {
	if a.identity == nil {
		return ""
	}
	return a.identity(ref.Session)
}

// holds tells of a hold from before the watch.
func (a *Audit) holds(st *lockkeeper.Status) {
	if a == nil {
		return
	}
	l := a.about("held", st)
	l.Held = inSeconds(st.Age)
	a.add(encode(l))
}

func (a *Audit) granted(st *lockkeeper.Status, waited time.Duration) {
	if a == nil {
		return
	}
	l := a.about("granted", st)
	l.Unconfirmed, l.Waited = st.Unconfirmed, inSeconds(waited)
	a.add(encode(l))
}

// ended tells of the end of a hold, or of a claim that was not granted.
func (a *Audit) ended(st *lockkeeper.Status, took time.Duration) {
	if a == nil {
		return
	}
	l := a.about("ended", st)
	l.Reason, l.Text = st.Reason.String(), st.Text
	if st.Reason == lockkeeper.NoReason {
		l.Reason = "not seen"
	}
	if st.Fence == 0 {
		l.Waited = inSeconds(took)
	} else {
		l.Held = inSeconds(took)
	}
	a.add(encode(l))
}

func (a *Audit) asked(st *lockkeeper.Status) {
	if a == nil {
		return
	}
	l := a.about("asked", st)
	l.Asked = st.Asked
	a.add(encode(l))
}

func (a *Audit) frozen(st *lockkeeper.Status) {
	if a == nil {
		return
	}
	l := a.about("frozen", st)
	if st.Left < lockkeeper.Forever {
		l.Left = inSeconds(st.Left)
	}
	a.add(encode(l))
}

func (a *Audit) thawed(path lockkeeper.Path, st *lockkeeper.Status) {
	if a == nil {
		return
	}
	a.add(encode(&line{Event: "thawed", Claim: st.Ref.String(), Identity: a.whose(st.Ref), Path: path}))
}

// gap tells that following began anew.
func (a *Audit) gap(err error) {
	if a == nil {
		return
	}
	l := &line{Event: "gap", Text: "the watch of the locks begins anew: grants and ends just before this may have no line"}
	if err != nil {
		l.Error = err.Error()
	}
	a.add(encode(l))
}

// Started tells that the server has begun; the text says with what.
func (a *Audit) Started(text string) { a.server("started", text) }

// Stopped tells that the server ends, and why.
func (a *Audit) Stopped(text string) { a.server("stopped", text) }

func (a *Audit) server(event, text string) {
	if a != nil {
		a.add(encode(&line{Event: event, Text: text}))
	}
}

// mostDenials bounds the lines about denials in one second, so that nobody who has
// no right to anything fills the disk. The rest is counted.
const mostDenials = 10

// Act tells what an operator did, or what was denied to anybody; it is for
// [access.Options].
func (a *Audit) Act(act access.Act) {
	if a == nil {
		return
	}
	l := &line{
		Event:    "operator",
		Identity: act.Identity,
		From:     act.From,
		Verb:     act.Verb,
		Path:     act.Path,
		Label:    act.Label,
		Force:    act.Force,
	}
	if act.Ref != (lockkeeper.Ref{}) {
		l.Claim = act.Ref.String()
	}
	if act.Err != nil {
		l.Event, l.Error = "failed", act.Err.Error()
		if errors.Is(act.Err, lockkeeper.ErrDenied) {
			l.Event = "denied"
			if !a.mayTellDenial() {
				return
			}
		}
	}
	a.add(encode(l))
}

// mayTellDenial reports whether there is a line left for one more denial.
func (a *Audit) mayTellDenial() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.second) >= time.Second {
		a.second, a.denials = time.Now(), 0
	}
	a.denials++
	if a.denials > mostDenials {
		a.withheld++
		return false
	}
	return true
}
