package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// policy is who may do what, as the files have it now; nil if everybody may do
// everything.
func (o *serveOptions) policy() (*access.Policy, error) {
	if !o.knowsClients() {
		return nil, nil
	}
	p := &access.Policy{Certificates: o.clientCA != ""}
	if o.file != nil {
		p.Rules, p.Quotas = o.file.Rules, o.file.Quotas
	}
	if len(p.Rules) == 0 {
		p.Rules = []access.Rule{everything}
	}
	if o.tokens != "" {
		if _, err := os.Stat(o.tokens); err != nil {
			return nil, fmt.Errorf("--tokens: %w (lk token new NAME --tokens %s makes it)", err, o.tokens)
		}
		tokens, err := pki.ReadTokens(o.tokens)
		if err != nil {
			return nil, fmt.Errorf("--tokens: %w", err)
		}
		p.Tokens = tokens
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.config, err)
	}
	return p, nil
}

// everything is the rule where there are no others: whoever is let in may do
// everything.
var everything = access.Rule{
	Who:   []string{"*"},
	May:   []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze, access.Drain},
	Paths: []string{"*"},
}

// policyLook is how often the files of a policy are looked at. A change is taken up
// at the second look that finds it, since at the first somebody may be in the midst of
// writing it; half of it could allow more than the whole.
const policyLook = 500 * time.Millisecond

// A policyWatch gives a gate a new policy when the files that it comes from change.
type policyWatch struct {
	options *serveOptions
	gate    *access.Gate
	log     *slog.Logger
	seen    []fileState // at the latest look
	taken   []fileState // as they were when they were taken up; nil: never, also not what the gate began with
	wrong   string      // what was logged last; "" if all is well
}

// fileState tells whether a file has changed.
type fileState struct {
	at   time.Time
	size int64
}

// newPolicyWatch returns a watch that takes the files up once at its beginning: they may
// have changed since the gate's policy was read.
func newPolicyWatch(o *serveOptions, g *access.Gate, log *slog.Logger) *policyWatch {
	return &policyWatch{options: o, gate: g, log: log}
}

// look is how the files are now.
func (w *policyWatch) look() []fileState {
	var now []fileState
	for _, name := range []string{w.options.config, w.options.tokens} {
		state := fileState{}
		if info, err := os.Stat(name); name != "" && err == nil {
			state = fileState{info.ModTime(), info.Size()}
		}
		now = append(now, state)
	}
	return now
}

// run takes changes up until ctx ends: at once when hup says so.
func (w *policyWatch) run(ctx context.Context, hup <-chan os.Signal) {
	if !w.options.knowsClients() {
		return
	}
	tick := time.NewTicker(policyLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			w.seen = w.look()
			w.take()
		case <-tick.C:
			now := w.look()
			settled := slices.Equal(now, w.seen)
			w.seen = now
			if settled && !slices.Equal(now, w.taken) {
				w.take()
			}
		}
	}
}

// take reads the changed files again. While they are wrong, or
// can't be read, what was there goes on, and the next look tries again.
func (w *policyWatch) take() {
	fresh := *w.options
	if fresh.config != "" {
		c, err := readConfig(fresh.config)
		if err != nil {
			w.fails("the configuration is wrong, and the one before goes on", err)
			return
		}
		if !sameSettings(c, fresh.file) {
			w.log.Warn("only rules and quotas are taken from the changed configuration; the rest needs a restart", "config",
				fresh.config)
		}
		fresh.file = c
	}
	p, err := fresh.policy()
	if err != nil {
		w.fails("rules or tokens are wrong, and those before go on", err)
		return
	}
	w.options.file = fresh.file
	w.gate.Set(p)
	w.taken, w.wrong = w.seen, ""
	w.log.Info("rules and tokens were read again", "rules", len(p.Rules), "tokens", len(p.Tokens))
}

// fails logs what is wrong, once.
func (w *policyWatch) fails(what string, err error) {
	if w.wrong != err.Error() {
		w.wrong = err.Error()
		w.log.Error(what, "error", err)
	}
}

// sameSettings reports whether two configurations have the same values for flags.
func sameSettings(a, b *configFile) bool {
	if len(a.Settings) != len(b.Settings) {
		return false
	}
	for key, node := range a.Settings {
		if other, there := b.Settings[key]; !there || other.Value != node.Value {
			return false
		}
	}
	return true
}
