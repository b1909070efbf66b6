package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
)

var _ lockkeeper.Examiner = (*Engine)(nil)

// clockBound is how far the clocks of two servers may differ before it is a finding. No lock depends
// on it, but first-in-first-out does as long as clocks are set.
const clockBound = time.Second

// Examine implements lockkeeper.Examiner. It reads what each server states about itself.
func (e *Engine) Examine(ctx context.Context) []lockkeeper.Finding {
	if e.group == nil {
		return nil
	}
	began := time.Now()
	facts, errs := e.group.Facts(ctx)
	took := time.Since(began)
	var findings []lockkeeper.Finding
	lowest, highest := time.Duration(0), time.Duration(0)
	reached := 0
	for i := range facts {
		name := e.servers[i].link.Name()
		if errs[i] != nil {
			findings = append(findings, lockkeeper.Finding{
				Check:  name,
				Grade:  lockkeeper.Doubtful,
				Detail: fmt.Sprintf("it does not answer: %v", errs[i]),
				Remedy: "see that it runs and can be reached from here; locks go on while a majority answers",
			})
			continue
		}
		findings = append(findings, examineServer(name, &facts[i]), e.examineMembership(i))
		ahead := facts[i].Clock.Sub(began)
		if reached++; reached == 1 {
			lowest, highest = ahead, ahead
		}
		lowest, highest = min(lowest, ahead), max(highest, ahead)
	}
	if reached > 1 {
		findings = append(findings, examineClocks(highest-lowest, took))
	}
	return findings
}

// examineServer reports on the settings of one server.
func examineServer(name string, f *redisconn.Facts) lockkeeper.Finding {
	finding := lockkeeper.Finding{Check: name + ", settings"}
	about := "Redis " + f.Version
	switch err := f.Refusal(); {
	case err != nil:
		finding.Grade, finding.Detail = lockkeeper.Broken, err.Error()
		finding.Remedy = "name another server, or change the setting"
	case f.Durable():
		finding.Detail = about + ", writes every change to disk before it answers: a restart loses nothing"
	case f.Fsync == "":
		finding.Grade = lockkeeper.Doubtful
		finding.Detail = about + "; whether it keeps its data over a restart can't be seen: the user may not read the " +
			"configuration, so a restart counts as a loss"
		finding.Remedy = "grant +config|get, if the server has appendonly yes and appendfsync always"
	default:
		finding.Grade = lockkeeper.Doubtful
		finding.Detail = about + ", does not write every change to disk: after a restart it stays out until all leases " +
			"from before have ended, and if a majority restarts at once all locks are lost"
		finding.Remedy = "set appendonly yes and appendfsync always; it costs a disk write for each change"
	}
	return finding
}

// examineMembership reports whether the engine uses a server.
func (e *Engine) examineMembership(i int) lockkeeper.Finding {
	name := e.servers[i].link.Name()
	up, why := e.serverState(i)
	finding := lockkeeper.Finding{Check: name + ", set", Detail: "it is a member of the set and lost nothing"}
	if !up {
		finding.Grade, finding.Detail = lockkeeper.Doubtful, fmt.Sprintf("it is not used at present: %v", why)
		finding.Remedy = "if it has lost its data, it takes part again by itself when all leases from before have ended"
	}
	return finding
}

// examineClocks compares the clocks of the servers. took is how exact the comparison is.
func examineClocks(difference, took time.Duration) lockkeeper.Finding {
	finding := lockkeeper.Finding{Check: "servers' clocks"}
	if difference <= took+clockBound {
		finding.Detail = "the same, as far as can be told; no lock depends on that"
		return finding
	}
	finding.Grade = lockkeeper.Doubtful
	finding.Detail = fmt.Sprintf("%v apart; no lock depends on that, but a clock that is set while locks are held ends "+
		"leases of its server too early or too late", difference.Round(time.Millisecond))
	finding.Remedy = "let NTP set them, by slewing"
	return finding
}

// serverState returns whether server i is used, and why not.
func (e *Engine) serverState(i int) (up bool, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.servers[i].up, e.servers[i].why
}
