package access

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// compiled is a copy of a Policy that is prepared for lookups.
type compiled struct {
	rules        []Rule
	quotas       []Quota
	tokens       map[Digest]Token
	certificates bool
	elsewhere    bool
	closed       string
}

// compile copies p; the compiled form of nil is nil.
func compile(p *Policy) *compiled {
	if p == nil {
		return nil
	}
	c := &compiled{
		tokens:       make(map[Digest]Token, len(p.Tokens)),
		certificates: p.Certificates,
		elsewhere:    p.Elsewhere,
		closed:       p.Closed,
	}
	for _, r := range p.Rules {
		c.rules = append(c.rules, Rule{valid(r.Who), slices.Clone(r.May), slices.Clone(r.Paths)})
	}
	for _, q := range p.Quotas {
		q.Who = valid(q.Who)
		if q.HighestPriority != nil {
			most := *q.HighestPriority
			q.HighestPriority = &most
		}
		c.quotas = append(c.quotas, q)
	}
	for _, t := range p.Tokens {
		if IdentityName(t.Name) == nil {
			c.tokens[t.Digest] = t
		}
	}
	return c
}

// valid returns the patterns that can match an identity.
func valid(patterns []string) []string {
	return slices.DeleteFunc(slices.Clone(patterns), func(pattern string) bool { return checkPattern(pattern) != nil })
}

// A credential identifies an admission. Two certificates of one identity that expire at the same
// time are the same credential.
type credential struct {
	name   string
	digest Digest    // of a token
	until  time.Time // of a certificate
}

// longestToken bounds the bytes hashed for an unauthenticated client.
const longestToken = 256

// admits returns the credential and the rights of the client. With a nil p every client may do
// everything.
func (p *compiled) admits(c *Credentials) (credential, *rights, error) {
	if p == nil {
		return credential{}, &everything, nil
	}
	of, expires, err := p.authenticates(c)
	if err != nil {
		return credential{}, nil, err
	}
	r := p.rightsOf(of.name, expires)
	if r == nil {
		return credential{}, nil, nobody(of.name)
	}
	return of, r, nil
}

// authenticates returns the credential of the client, and when it expires; zero: never. With a nil p
// all clients have the same credential.
func (p *compiled) authenticates(c *Credentials) (of credential, expires time.Time, err error) {
	switch {
	case p == nil:
		return of, expires, nil
	case p.closed != "":
		// The client in engine/remote knows this denial by its beginning: no token would help.
		return of, expires, denied("nobody is admitted: %s", p.closed)
	case c.Token != "":
		return p.authenticatesToken(c.Token, time.Now())
	case c.Certificate != nil && p.certificates:
		return authenticatesCertificate(c, time.Now())
	case c.Certificate != nil:
		return of, expires, denied("this server accepts no certificates: send a token")
	}
	return of, expires, denied("authentication required: send a token, or a certificate if the server accepts them")
}

// authenticatesToken looks a token up by the digest of its secret. The time of the lookup may reveal
// something about digests. That helps no attacker, who can neither construct a secret for a digest
// nor derive one from it. The final comparison of digests takes constant time.
func (p *compiled) authenticatesToken(secret string, now time.Time) (credential, time.Time, error) {
	if len(secret) <= longestToken {
		digest := Digest(sha256.Sum256([]byte(secret)))
		if t, ok := p.tokens[digest]; ok && t.Digest.equal(digest) && !t.expired(now) {
			return credential{name: t.Name, digest: digest}, t.Expires, nil
		}
	}
	return credential{}, time.Time{}, denied("the token is unknown here, or no longer valid")
}

func authenticatesCertificate(c *Credentials, now time.Time) (credential, time.Time, error) {
	name, err := CertificateName(c.Certificate)
	if err != nil {
		return credential{}, time.Time{}, denied("%s", err.(*lockkeeper.Error).Detail)
	}
	until := c.Certificate.NotAfter.UTC()
	if now.Before(c.Certificate.NotBefore) || !now.Before(until) {
		return credential{}, time.Time{}, denied("the certificate of %s is valid from %s to %s, and it is %s",
			name, c.Certificate.NotBefore.UTC().Format(time.RFC3339), until.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return credential{name: name, until: until}, until, nil
}

func nobody(name string) error {
	return unnamed(name)
}

// stillAdmits returns the rights under p of an admission by c; nil if p does not admit c.
func (p *compiled) stillAdmits(c credential, now time.Time) *rights {
	if !c.until.IsZero() {
		if !p.certificates {
			return nil
		}
		return p.rightsOf(c.name, c.until)
	}
	t, ok := p.tokens[c.digest]
	if !ok || t.Name != c.name || t.expired(now) {
		return nil
	}
	return p.rightsOf(c.name, t.Expires)
}

// rights are what one identity may do under one policy.
type rights struct {
	open bool // everything
	// The engine decides by the rules and quotas: here they only say what the identity sees, and whether it
	// may drain.
	elsewhere bool
	at        map[Verb]reach
	quota     Quota
	limits    limits.Quota // the numbers in quota
	expires   time.Time    // of the credential; zero: never
}

// everything is what every client may do without a policy.
var everything = rights{open: true}

func unnamed(name string) error {
	return denied("%s is authenticated, but no rule allows it anything", name)
}

// A reach is a set of paths, each with all below it.
type reach struct {
	all   bool
	below map[lockkeeper.Path]struct{}
}

// rightsOf returns what the rules allow to the identity; nil if no rule names it. If the engine decides,
// every identity is admitted: this server may not have the latest rules yet.
func (p *compiled) rightsOf(name string, expires time.Time) *rights {
	var r *rights
	if p.elsewhere {
		r = &rights{at: make(map[Verb]reach), expires: expires, elsewhere: true}
	}
	for i := range p.rules {
		rule := &p.rules[i]
		if !slices.ContainsFunc(rule.Who, func(pattern string) bool { return matches(pattern, name) }) {
			continue
		}
		if r == nil {
			r = &rights{at: make(map[Verb]reach), expires: expires}
		}
		for _, v := range rule.May {
			r.give(v, rule.Paths)
		}
	}
	if r == nil {
		return nil
	}
	for _, q := range p.quotas {
		if p.elsewhere {
			break
		}
		if slices.ContainsFunc(q.Who, func(pattern string) bool { return matches(pattern, name) }) {
			r.quota = q
			r.limits = limits.Quota{
				Claims: q.Claims, Waiting: q.Waiting, Sessions: q.Sessions, Paths: q.Paths, SessionClaims: q.SessionClaims,
			}
			break
		}
	}
	return r
}

// give allows v on the paths of a rule. It ignores invalid paths and verbs.
func (r *rights) give(v Verb, paths []string) {
	at := r.at[v]
	for _, text := range paths {
		switch p, err := parseReach(text); {
		case err != nil || !slices.Contains(ruled, v):
			continue
		case p == "":
			at.all = true
		default:
			if at.below == nil {
				at.below = make(map[lockkeeper.Path]struct{})
			}
			at.below[p] = struct{}{}
		}
	}
	if at.all || at.below != nil {
		r.at[v] = at
	}
}

// allows reports whether v is allowed at the path, which must be valid; "" and the root stand for
// all paths.
func (r *rights) allows(v Verb, at lockkeeper.Path) bool {
	if r.open {
		return true
	}
	where, ok := r.at[v]
	if !ok || where.all || at == "" || at == lockkeeper.Root {
		return ok && where.all
	}
	if _, ok := where.below[at]; ok {
		return true
	}
	for above := range at.Ancestors() { // as many as a path has segments, however many rules there are
		if _, ok := where.below[above]; ok {
			return true
		}
	}
	return false
}

func (r *rights) expired() bool { return !r.expires.IsZero() && !time.Now().Before(r.expires) }
