package access

import (
	"crypto/x509"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Credentials identify a client.
type Credentials struct {
	Token       string            // "" if the client sent none
	Certificate *x509.Certificate // verified by the TLS layer; nil if the client sent none
	From        string            // the address of the client, for the log
}

// A Gate admits identities to one engine. It is safe for concurrent use.
type Gate struct {
	engine    lockkeeper.Engine
	options   Options
	ledger    *limits.Ledger
	counts    bool // it counts claims and sessions, even without a policy
	drain     drain
	refreshed refreshed

	mu         sync.RWMutex // guards all below
	policy     *compiled    // nil: every client may do everything
	admissions map[credential]*admission
}

// maxAdmissions bounds the number of credentials in use at a time.
const maxAdmissions = 1 << 16

// Options of a gate. The zero value is fine.
type Options struct {
	// Acted is called for every act of an operator, and for every denial, before the caller gets
	// its answer. It must not block. It may be nil.
	Acted func(Act)

	// Limits bound what the identities use; nil is limits.DefaultBounds. An open gate counts too.
	Limits *limits.Bounds
	// Callers tells the engine who calls: see CallerOf.
	Callers bool

	// Uncounted makes an open gate count no claims and sessions, so that it does not bound them.
	Uncounted bool
}

// An Act is an operation that an operator did or tried to do, or one that the rules denied to any
// identity. An exceeded quota is no denial.
type Act struct {
	Identity string          // "" without a policy, and if no credential was admitted
	From     string          // the address
	Verb     Verb            // the kind of operation
	Path     lockkeeper.Path // the path it is about; the first of several
	Ref      lockkeeper.Ref  // the claim it is about, as the engine names it
	Label    lockkeeper.Label
	Force    bool
	Index    uint64 // of the log of a cluster: where it was decided; 0 without one
	// nil: it succeeded. ErrDenied: the rules denied it. ErrUnavailable: its outcome is unknown.
	// Any other error: it failed.
	Err error
}

// Verb is a kind of operation that rules allow.
type Verb string

// The verbs.
const (
	Connect Verb = "connect" // to be admitted, which takes a valid credential and no rule
	Look    Verb = "look"
	Lock    Verb = "lock"
	Revoke  Verb = "revoke"
	Freeze  Verb = "freeze"
	Thaw    Verb = "thaw"  // only in an Act; rules grant it with Freeze
	Drain   Verb = "drain" // of the server as a whole
)

// New returns a gate to the engine, which it never closes. With a nil policy every client may do
// everything within Options.Limits. The invalid parts of a policy that Check refuses allow nothing.
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

// Set replaces the policy. It withdraws the passes of credentials and identities that the new
// policy does not have. The new rules and quotas apply to all other passes when Set returns. An
// identity keeps what it has beyond its new quota. A change from no policy to one, or back,
// withdraws all passes, because the engine's names of sessions change.
func (g *Gate) Set(p *Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = compile(p)
	now := time.Now()
	for c, a := range g.admissions {
		var r *rights
		if g.policy != nil { // it keeps no admission from before it
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

// Closed returns why the policy admits nobody; "" if it does.
func (g *Gate) Closed() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.policy == nil {
		return ""
	}
	return g.policy.closed
}

// Ledger returns the counts of the resources that identities use.
func (g *Gate) Ledger() *limits.Ledger { return g.ledger }

// Open reports whether there is no policy.
func (g *Gate) Open() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.policy == nil
}

// Admit returns a pass for the credentials, or an ErrDenied that says what is wrong without helping
// an attacker to guess. If there are a token and a certificate, the token counts. Admit is cheap
// enough for each request.
func (g *Gate) Admit(c Credentials) (*Pass, error) {
	a, err := g.admit(&c)
	if err != nil {
		g.acted(Act{From: c.From, Verb: Connect, Err: err})
		return nil, err
	}
	return &Pass{admission: a, from: c.From}, nil
}

func (g *Gate) admit(c *Credentials) (*admission, error) {
	g.mu.RLock()
	cr, _, err := g.policy.authenticates(c)
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
	cr, r, err := g.policy.admits(c) // the policy may have changed
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

// begin creates the admission of the credential. The caller holds g.mu.
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
