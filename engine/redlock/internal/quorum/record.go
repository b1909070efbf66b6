package quorum

import (
	"slices"
	"strconv"

	"github.com/lockkeeper/lockkeeper"
)

// recordOf returns w as servers keep it.
func (p *Party) recordOf(w *lockkeeper.Want, ticket uint64) WantRecord {
	r := WantRecord{
		Revision: w.Revision,
		Paths:    make([]string, len(w.Targets)),
		Priority: w.Priority,
		Ticket:   ticket,
		Try:      w.Wait == 0,
		Steal:    w.Steal,
		Expected: micros(w.Expected),
		MaxHold:  micros(w.MaxHold),
		Grace:    micros(w.Grace),
		Inside:   w.Inside,
		Label:    w.Label,
	}
	for i := range w.Targets {
		r.Paths[i] = string(w.Targets[i].Path)
	}
	slices.Sort(r.Paths)
	if r.Try {
		r.Steal = lockkeeper.NoSteal // a try asks nobody
	}
	if r.Steal == lockkeeper.Take {
		r.After, r.AfterTTL = micros(w.After), w.AfterTTL
		if w.After == lockkeeper.AfterMeasured {
			r.After, r.AfterTTL = p.shakes.allowed()
		}
	}
	return r
}

// wantOf returns what is known of the Want of an adopted claim.
func wantOf(id uint64, r *WantRecord) lockkeeper.Want {
	w := lockkeeper.Want{
		ID: id, Revision: r.Revision, Inside: r.Inside, Priority: r.Priority, Wait: lockkeeper.Forever,
		Steal: r.Steal, Expected: r.Expected.duration(), MaxHold: r.MaxHold.duration(), Grace: r.Grace.duration(),
		Label: r.Label,
	}
	for _, path := range r.Paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive})
	}
	return w
}

// sameRequest reports whether w is the request that c was made by, of its revision. Of an adopted
// claim, the servers' record is compared.
func (p *Party) sameRequest(c *claim, w *lockkeeper.Want) bool {
	if !c.adopted {
		return c.want.SameRequest(w)
	}
	r := p.recordAs(c, w)
	return sameRecord(&r, &c.record)
}

// recordAs returns w as servers keep it, with the measured wait of c, which another party measured.
func (p *Party) recordAs(c *claim, w *lockkeeper.Want) WantRecord {
	r := p.recordOf(w, c.record.Ticket)
	if w.After == lockkeeper.AfterMeasured {
		r.After, r.AfterTTL = c.record.After, c.record.AfterTTL
	}
	return r
}

// sameRecord compares two records, but for their tickets.
func sameRecord(a, b *WantRecord) bool {
	return a.Revision == b.Revision && slices.Equal(a.Paths, b.Paths) && a.Priority == b.Priority &&
		a.Try == b.Try && a.Steal == b.Steal && a.After == b.After && a.AfterTTL == b.AfterTTL &&
		a.Expected == b.Expected && a.MaxHold == b.MaxHold && a.Grace == b.Grace && a.Inside == b.Inside &&
		a.Label == b.Label
}

func quota(what string, most int) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Reason: lockkeeper.Quota,
		Detail: strconv.Itoa(most) + " " + what + " are the most that are allowed",
	}
}
