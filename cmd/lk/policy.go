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

// policy reads the rules, quotas and tokens of the files; nil if the server does not authenticate
// clients, and so allows everything.
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

// everything is the default rule: every authenticated client may do everything.
var everything = access.Rule{
	Who:   []string{"*"},
	May:   []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze, access.Drain},
	Paths: []string{"*"},
}

// policyLook is the pause between two checks of the files of a policy. A change takes effect at the
// second check that finds it: at the first somebody may still be writing the file, and a
// half-written policy could allow more than the whole.
const policyLook = 500 * time.Millisecond

// A policyWatch calls set with the new policy when the files that it comes from change.
type policyWatch struct {
	options *serveOptions
	set     func(*access.Policy)
	log     *slog.Logger
	seen    []fileState // at the latest check
	taken   []fileState // at the latest successful load; nil before the first load of this watch
	wrong   string      // the last logged error; "" after a successful load
}

// fileState tells whether a file has changed.
type fileState struct {
	at   time.Time
	size int64
}

// newPolicyWatch returns a watch that loads the files once at its beginning: they may have changed
// since the server read the policy of the gate.
func newPolicyWatch(o *serveOptions, set func(*access.Policy), log *slog.Logger) *policyWatch {
	return &policyWatch{options: o, set: set, log: log}
}

// states returns the present state of the files.
func (w *policyWatch) states() []fileState {
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

// run loads changed files until ctx ends, and all files at once on a value of hup.
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
			w.seen = w.states()
			w.take()
		case <-tick.C:
			now := w.states()
			stable := slices.Equal(now, w.seen)
			w.seen = now
			if stable && !slices.Equal(now, w.taken) {
				w.take()
			}
		}
	}
}

// take loads the files. If they are invalid or can't be read, the former policy stays, and the next
// check tries again.
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
	w.set(p)
	said := "rules and tokens were read again"
	if w.taken == nil {
		said = "rules and tokens are read"
	}
	w.taken, w.wrong = w.seen, ""
	w.log.Info(said, "rules", len(p.Rules), "tokens", len(p.Tokens))
}

// fails logs an error, once.
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
