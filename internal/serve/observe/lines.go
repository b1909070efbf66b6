package observe

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A line is one line of the audit log. docs/operations.md explains the events.
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
	Index       uint64             `json:"index,omitempty"`
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
	if err != nil { // no field can fail; if one did, the log must show it
		text, _ = json.Marshal(&line{Time: l.Time, Event: l.Event, Claim: l.Claim, Error: err.Error()})
	}
	return append(lockkeeper.AppendVisible(nil, text), '\n')
}

// about returns a line about a claim.
func (a *Audit) about(event string, st *lockkeeper.Status) *line {
	return &line{
		Event: event, Claim: st.Ref.String(), Identity: a.whose(st.Ref), Label: st.Label, Targets: st.Grants, Fence: st.Fence,
		Index: st.LogIndex,
	}
}

func (a *Audit) whose(ref lockkeeper.Ref) string {
	if a.identity == nil {
		return ""
	}
	return a.identity(ref.Session)
}

// holds reports a hold older than the watch.
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

// ended reports the end of a hold, or of a claim without a grant.
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
	a.add(encode(&line{
		Event: "thawed", Claim: st.Ref.String(), Identity: a.whose(st.Ref), Path: path, Index: st.LogIndex,
	}))
}

// gap reports that the watch follows the engine again.
func (a *Audit) gap(err error) {
	if a == nil {
		return
	}
	l := &line{Event: "gap", Text: "the server follows its locks again: grants and ends just before this may have no line"}
	if err != nil {
		l.Error = err.Error()
	}
	a.add(encode(l))
}

// Started reports the start of the server; the text describes it.
func (a *Audit) Started(text string) { a.server("started", text) }

// Stopped reports the end of the server; the text says why.
func (a *Audit) Stopped(text string) { a.server("stopped", text) }

func (a *Audit) server(event, text string) {
	if a != nil {
		a.add(encode(&line{Event: event, Text: text}))
	}
}

// Cluster reports a change of the cluster by the entry of its log with that index.
func (a *Audit) Cluster(index uint64, text string) {
	if a != nil {
		a.add(encode(&line{Event: "cluster", Text: text, Index: index}))
	}
}

// mostDenials bounds the lines about denials in one second, so that a client without rights can't
// fill the disk. Further denials are counted.
const mostDenials = 10

// Act reports an operator's act, or a denial; it is for [access.Options].
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
		Index:    act.Index,
	}
	if act.Ref != (lockkeeper.Ref{}) {
		l.Claim = act.Ref.String()
	}
	if act.Err != nil {
		l.Event, l.Error = "failed", act.Err.Error()
		if errors.Is(act.Err, lockkeeper.ErrDenied) {
			l.Event = "denied"
			if !a.mayLogDenial() {
				return
			}
		}
	}
	a.add(encode(l))
}

// mayLogDenial reports whether there is a line left for one more denial.
func (a *Audit) mayLogDenial() bool {
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
