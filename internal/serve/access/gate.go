package access

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Credentials are what somebody shows to be let in.
type Credentials struct {
	Token       string            // "" if none was shown
	Certificate *x509.Certificate // that the TLS layer has verified; nil if none was shown
	From        string            // the address, for the log
}

// A Gate lets identities in to one engine. It is safe for concurrent use.
type Gate struct {
	engine    lockkeeper.Engine
	options   Options
	ledger    *limits.Ledger
	counts    bool // it counts claims and sessions, even with an open gate
	drain     drain
	refreshed refreshed

	mu         sync.RWMutex // guards all below
	policy     *compiled    // nil: everybody may do everything
	admissions map[credential]*admission
}

// maxAdmissions bounds the credentials that are in use at a time.
const maxAdmissions = 1 << 16

// Options of a gate. The zero value is fine.
type Options struct {
	// Acted is told of everything that an operator does, and of everything that
	// the rules denied, before it is answered. It must not block. It may be nil.
	Acted func(Act)

	// Limits bound what the identities use; nil is limits.DefaultBounds. An open gate counts too.
	Limits *limits.Bounds
	// Uncounted makes an open gate count no claims and sessions, so that it does not bound them.
	Uncounted bool
}

// An Act is what somebody did, or tried to do, as an operator; or what the rules
// denied to anybody. A quota that is used up is no denial.
type Act struct {
	Identity string          // who; "" where everybody may do everything, or nobody was let in
	From     string          // the address
	Verb     Verb            // what kind
	Path     lockkeeper.Path // of which path, if of one; the first if of several
	Ref      lockkeeper.Ref  // of which claim, if of one, as the engine names it
	Label    lockkeeper.Label
	Force    bool
	// nil: it was done. An ErrDenied: it was not allowed. Else it failed, or, if ErrUnavailable,
	// nobody knows
	Err error
}

// Verb is what the rules allow.
type Verb string

// The verbs.
const (
	Connect Verb = "connect" // be let in; nobody is given it by a rule: a valid credential is enough
	Look    Verb = "look"
	Lock    Verb = "lock"
	Revoke  Verb = "revoke"
	Freeze  Verb = "freeze"
	Thaw    Verb = "thaw"  // only in an Act; rules grant it with Freeze
	Drain   Verb = "drain" // of the server as a whole
)

// New returns a gate to the engine, which it never closes. With a nil policy everybody
// may do everything, and only hard caps bound how much. Of a policy that Check
// refuses, what is wrong allows nothing.
func New(e lockkeeper.Engine, p *Policy, o Options) *Gate {
	g := &Gate{engine: e, options: o, counts: !o.Uncounted, admissions: make(map[credential]*admission)}
	bounds := limits.DefaultBounds()
	if o.Limits != nil {
		bounds = *o.Limits
	}
	g.ledger, g.drain.settled = limits.New(bounds), make(chan struct{})
	g.Set(p)
	return g
}

// Set replaces the policy. Passes of whom it does not know any more, and of whom no
// rule speaks any more, are withdrawn; all others are under the new rules and quotas
// from the moment at which Set returns. Who had more than its new quota keeps it.
// Going from no policy to one, or back, withdraws all passes, since sessions are
// named differently then.
func (g *Gate) Set(p *Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = compile(p)
	now := time.Now()
	for c, a := range g.admissions {
		var r *rights
		if g.policy != nil { // it admits nobody who came while there was none
			r = g.policy.stillAdmits(c, now)
		}
		if r == nil {
			g.withdraw(a)
			continue
		}
		a.rights.Store(r)
		g.watch(a)
	}
}

// Ledger returns the counts of what identities use of the gate's server.
func (g *Gate) Ledger() *limits.Ledger { return g.ledger }

// Open reports whether everybody may do everything.
func (g *Gate) Open() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.policy == nil
}

// Admit lets somebody in, or refuses with an ErrDenied that says what is wrong, but
// nothing that would help who guesses. A token that is shown counts, whatever
// certificate is shown with it. It is cheap enough for each request.
func (g *Gate) Admit(c Credentials) (*Pass, error) {
	a, err := g.admit(&c)
	if err != nil {
		g.acted(Act{From: c.From, Verb: Connect, Err: err})
		return nil, err
	}
	return &Pass{admission: a, from: c.From}, nil
}

func (g *Gate) admit(c *Credentials) (*admission, error) {
	now := time.Now()
	g.mu.RLock()
	cr, _, err := g.policy.admits(c, now)
	a := g.admissions[cr]
	g.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	if a != nil && a.rights.Load() != nil {
		return a, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	cr, r, err := g.policy.admits(c, now) // by the policy that there is now
	if err != nil {
		return nil, err
	}
	if a = g.admissions[cr]; a != nil {
		return a, nil
	}
	if len(g.admissions) >= maxAdmissions {
		return nil, overdrawn("%d credentials are in use at a time, which is the most; come back when some of them have "+
			"expired", maxAdmissions)
	}
	return g.begin(cr, r), nil
}

// begin makes the admission of whoever has the credential. g.mu is held.
func (g *Gate) begin(c credential, r *rights) *admission {
	a := newAdmission(g, c, r)
	g.admissions[c] = a
	g.watch(a)
	return a
}

func (g *Gate) acted(a Act) {
	if g.options.Acted != nil {
		g.options.Acted(a)
	}
}
