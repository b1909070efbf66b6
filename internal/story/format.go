package story

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	durations "github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/table"
)

// Format writes c as a line that Parse reads back. It omits what no valid command has, such as an
// unknown mode.
func Format(c table.Command) string {
	f := &formatter{}
	if c.At != 0 {
		f.words("at", Duration(c.At))
	}
	switch c.Op {
	case table.Pass, table.Restart:
		f.words(c.Op.String())
	case table.Attach:
		f.session(c.Session)
	case table.Renew, table.Gone:
		f.words(c.Op.String(), quote(c.Key.Session))
	case table.Claim:
		f.want(c)
	case table.End:
		f.ending(c)
	}
	if c.Op != table.Attach && c.Key.Epoch != 0 {
		f.words("epoch=" + strconv.FormatUint(c.Key.Epoch, 10))
	}
	if keyed := c.Op == table.Renew || c.Op == table.Claim || c.Op == table.End; keyed {
		f.stated("lowest-open", c.Key.LowestOpen)
		f.stated("acked", c.Key.Acked)
	}
	return strings.Join(f.all, " ")
}

// Duration writes d as Go does, without trailing zeros: 1h, not
// 1h0m0s. It is "forever" for lockkeeper.Forever.
func Duration(d time.Duration) string {
	if d == lockkeeper.Forever {
		return "forever"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

type formatter struct{ all []string }

func (f *formatter) words(words ...string) { f.all = append(f.all, words...) }

func (f *formatter) text(key, value string) {
	if value != "" {
		f.words(key + "=" + quote(value))
	}
}

func (f *formatter) duration(key string, d time.Duration) {
	if d != 0 {
		f.words(key + "=" + Duration(d))
	}
}

func (f *formatter) stated(key string, n uint64) {
	if n != 0 {
		f.words(key + "=" + strconv.FormatUint(n, 10))
	}
}

func (f *formatter) label(l lockkeeper.Label) {
	f.text("as", l.As)
	f.text("note", l.Note)
	f.text("link", l.Link)
}

func (f *formatter) session(s lockkeeper.Session) {
	f.words("attach", quote(s.ID))
	f.duration("ttl", s.TTL)
	if len(s.Named) > 0 {
		named := make([]string, len(s.Named))
		for i, id := range s.Named {
			named[i] = strconv.FormatUint(id, 10)
		}
		f.words("named=" + strings.Join(named, ","))
	}
	for _, l := range s.Lapsed {
		f.text("lapsed", lapseText(l))
	}
	switch s.Epoch {
	case 0:
	case NoEpoch:
		f.words("epoch=none")
	default:
		f.words("epoch=" + strconv.FormatUint(s.Epoch, 10))
	}
	f.label(s.Label)
}

func (f *formatter) want(c table.Command) {
	w := c.Want
	verb := "claim"
	if w.Freeze != 0 {
		verb = "freeze"
	}
	f.words(verb, quote(c.Key.Session), strconv.FormatUint(w.ID, 10))
	for i, t := range w.Targets {
		f.target(t, w.Freeze != 0)
		if i < len(w.Targets)-1 {
			f.all[len(f.all)-1] += ","
		}
	}
	f.duration("for", w.Freeze)
	if w.Revision != 0 {
		f.words("rev=" + strconv.FormatUint(w.Revision, 10))
	}
	if w.Priority != 0 {
		f.words("priority=" + strconv.Itoa(w.Priority))
	}
	switch {
	case w.Wait == 0 && w.Freeze == 0:
		f.words("wait=try")
	case w.Wait != lockkeeper.Forever && w.Wait != 0, w.Wait == lockkeeper.Forever && w.Freeze != 0:
		f.duration("wait", w.Wait)
	}
	f.writerPolicy(w)
	f.duration("max-hold", w.MaxHold)
	f.duration("grace", w.Grace)
	f.duration("expected", w.Expected)
	if w.Inside != (lockkeeper.Ref{}) {
		f.text("inside", w.Inside.String())
	}
	f.label(w.Label)
}

func (f *formatter) target(t lockkeeper.Target, freezing bool) {
	if !freezing {
		f.words(t.Mode.String())
	}
	f.words(quote(string(t.Path)))
	if t.Mode == lockkeeper.ModePermits {
		f.words(fmt.Sprintf("%d/%d", t.Units, t.Limit))
	}
}

func (f *formatter) writerPolicy(w lockkeeper.Want) {
	if w.WriterPolicy == lockkeeper.Soft {
		f.words("soft")
	}
	f.duration("quiet", w.Quiet)
	switch w.Steal {
	case lockkeeper.Ask:
		f.words("steal")
	case lockkeeper.Take:
		after := Duration(w.After)
		if w.AfterTTL != 0 {
			after = durations.TTLPartText(w.AfterTTL)
		}
		f.words("steal-after=" + after)
	}
}

func (f *formatter) ending(c table.Command) {
	e := c.Ending
	who := quote(c.Key.Session)
	switch e.Kind {
	case lockkeeper.Release:
		f.words("release", who, strconv.FormatUint(e.ID, 10))
	case lockkeeper.Lapsed:
		f.words("lapsed", who, quote(lapseText(e.Lapse)))
	case lockkeeper.Leave:
		f.words("leave", who)
	case lockkeeper.Revoke:
		f.words("revoke", who, quote(e.Ref.String()))
		if e.Force {
			f.words("force")
		}
	case lockkeeper.Thaw:
		f.words("thaw", who, quote(string(e.Path)))
	}
	f.label(e.Label)
}

func lapseText(l lockkeeper.Lapse) string {
	return fmt.Sprintf("%d/%s/%s", l.ID, l.Reason, Duration(l.EndsAt))
}

// duration reads what Duration writes, and d and w for days and weeks.
func duration(s string) (time.Duration, error) {
	if s == "forever" {
		return lockkeeper.Forever, nil
	}
	for _, unit := range []struct {
		suffix string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"w", 7 * 24 * time.Hour}} {
		if number, ok := strings.CutSuffix(s, unit.suffix); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || n > math.MaxInt64/int64(unit.length) || n < math.MinInt64/int64(unit.length) {
				return 0, fmt.Errorf("%q is not a duration", s)
			}
			return time.Duration(n) * unit.length, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	return d, nil
}
