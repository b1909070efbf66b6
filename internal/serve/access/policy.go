package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// Policy lists the identities, their rights and their quotas. A gate keeps a copy; don't change a
// Policy during the call that passes it. The zero Policy admits nobody.
type Policy struct {
	Rules []Rule `yaml:"rules"`
	// Only the first quota that names an identity applies. An identity that no quota names has only
	// the server's bounds.
	Quotas []Quota `yaml:"quotas"`

	Tokens       []Token `yaml:"-"`            // from a file of their own, see ParseTokens
	Certificates bool    `yaml:"certificates"` // a client with a certificate that the TLS layer verified is admitted

	// Elsewhere says that the engine itself decides by these rules and quotas, for all of its servers:
	// see CallerOf. The gate then only authenticates, keeps the sessions of identities apart, and decides
	// what they see and whether they may drain the server.
	Elsewhere bool   `yaml:"-"`
	Closed    string `yaml:"-"` // why nobody is admitted; "": some are
}

// A Rule allows verbs to identities on paths and all below them.
type Rule struct {
	// identities; "*" is every admitted identity, "deploy-*" all that begin so
	Who   []string `yaml:"who" json:"who"`
	May   []Verb   `yaml:"may" json:"may"`     // look, lock, revoke, freeze, drain
	Paths []string `yaml:"paths" json:"paths"` // each with all below it (R1); "*" stands for all paths; drain requires it
}

// A Quota bounds what each of its identities may have at a time. 0 sets no bound.
type Quota struct {
	Who    []string `yaml:"who" json:"who"`                           // as in a Rule
	Claims int      `yaml:"claims,omitempty" json:"claims,omitempty"` // held and waiting; 0 is the server's bound
	// Claims that wait. A claim that may wait counts here until it is granted.
	Waiting  int `yaml:"waiting,omitempty" json:"waiting,omitempty"`
	Sessions int `yaml:"sessions,omitempty" json:"sessions,omitempty"` // open sessions
	// targets of all claims; a path that two claims name counts twice
	Paths int `yaml:"paths,omitempty" json:"paths,omitempty"`
	// claims of one session; 0 is the server's bound
	SessionClaims int `yaml:"session_claims,omitempty" json:"session_claims,omitempty"`

	LongestTTL duration.Span `yaml:"longest_ttl,omitempty" json:"longest_ttl,omitempty"` // of a session
	// of a claim; nil: no bound of its own
	HighestPriority *int `yaml:"highest_priority,omitempty" json:"highest_priority,omitempty"`
}

// Limits of a policy. A larger policy is refused.
const (
	MaxRules       = 10_000 // rules, and quotas
	MaxRuleEntries = 1_000  // names, and paths, in one rule or quota
	MaxIdentity    = 64     // bytes of an identity's name, which are letters, digits and any of . _ @ -
)

// Check returns one ErrInvalid that names every mistake in p; nil if there is none.
func (p *Policy) Check() error {
	var c complaints
	if len(p.Rules) > MaxRules || len(p.Quotas) > MaxRules {
		c.addf("%d rules and %d quotas: at most %d of each are allowed", len(p.Rules), len(p.Quotas), MaxRules)
	}
	for i := range p.Rules {
		p.Rules[i].check(&c, fmt.Sprintf("rule %d", i+1))
	}
	for i := range p.Quotas {
		p.Quotas[i].check(&c, fmt.Sprintf("quota %d", i+1))
	}
	if err := checkTokens(p.Tokens); err != nil {
		c.addf("%s", err.(*lockkeeper.Error).Detail)
	}
	return c.err()
}

func (r *Rule) check(c *complaints, at string) {
	c.who(at, r.Who)
	if len(r.May) == 0 {
		c.addf("%s allows nothing: name verbs in may, of look, lock, revoke, freeze, drain", at)
	}
	for _, v := range r.May {
		if !slices.Contains(ruled, v) {
			c.addf("%s: %q is none of look, lock, revoke, freeze, drain", at, v)
		}
	}
	if len(r.Paths) == 0 || len(r.Paths) > MaxRuleEntries {
		c.addf("%s names %d paths: name 1 to %d, or \"*\" for everything", at, len(r.Paths), MaxRuleEntries)
	}
	for _, text := range r.Paths {
		if _, err := parseReach(text); err != nil {
			c.addf("%s: %s", at, err.(*lockkeeper.Error).Detail)
		}
	}
	if slices.Contains(r.May, Drain) && !slices.Contains(r.Paths, "*") {
		c.addf("%s: drain is for the server as a whole: give it in a rule whose paths are \"*\"", at)
	}
}

func (q *Quota) check(c *complaints, at string) {
	c.who(at, q.Who)
	for _, bound := range []struct {
		name string
		n    int
	}{
		{"claims", q.Claims}, {"waiting", q.Waiting}, {"sessions", q.Sessions}, {"paths", q.Paths},
		{"session_claims", q.SessionClaims},
	} {
		if bound.n < 0 {
			c.addf("%s: %s %d is out of range: 1 or more, or leave it out", at, bound.name, bound.n)
		}
	}
	if ttl := time.Duration(q.LongestTTL); ttl != 0 && (ttl < lockkeeper.MinTTL || ttl > lockkeeper.MaxTTL) {
		c.addf("%s: longest_ttl %s is out of range: %s to 10 years", at, ttl, lockkeeper.MinTTL)
	}
	if p := q.HighestPriority; p != nil && (*p < -lockkeeper.MaxPriority || *p > lockkeeper.MaxPriority) {
		c.addf("%s: highest_priority %d is out of range: %d to %d", at, *p, -lockkeeper.MaxPriority, lockkeeper.MaxPriority)
	}
}

// ruled lists the verbs that a rule can allow.
var ruled = []Verb{Look, Lock, Revoke, Freeze, Drain}

// everywhere stands for all paths in a rule.
const everywhere = "*"

// parseReach parses a path of a rule; "" stands for all paths.
func parseReach(text string) (lockkeeper.Path, error) {
	if text == everywhere {
		return "", nil
	}
	p, err := lockkeeper.ParsePath(text)
	if err != nil {
		return "", err
	}
	if slices.Contains(strings.Split(string(p), "/"), everywhere) {
		return "", lockkeeper.Invalid("path %q: a path covers all below it, so \"*\" stands alone, for everything", text)
	}
	return p, nil
}

// IdentityName returns an ErrInvalid if name can't be the name of an identity.
func IdentityName(name string) error {
	if name == "" || len(name) > MaxIdentity {
		return lockkeeper.Invalid("identity %q has %d bytes: 1 to %d are allowed", cut(name), len(name), MaxIdentity)
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._@-", c) >= 0) {
			return lockkeeper.Invalid("identity %q: only letters, digits and . _ @ - are allowed", name)
		}
	}
	return nil
}

// cut shortens a text that a message quotes.
func cut(text string) string {
	if len(text) > MaxIdentity {
		return text[:MaxIdentity] + "…"
	}
	return text
}

// matches reports whether a pattern of a rule names the identity.
func matches(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// complaints collects the mistakes in one input.
type complaints struct{ wrong []string }

func (c *complaints) addf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *complaints) who(at string, patterns []string) {
	if len(patterns) == 0 || len(patterns) > MaxRuleEntries {
		c.addf("%s names %d identities in who: name 1 to %d, or \"*\" for everybody", at, len(patterns), MaxRuleEntries)
	}
	for _, pattern := range patterns {
		if err := checkPattern(pattern); err != nil {
			c.addf("%s: %s", at, err.(*lockkeeper.Error).Detail)
		}
	}
}

// checkPattern returns an error if the pattern can match no identity.
func checkPattern(pattern string) error {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild && prefix == "" {
		return nil
	} else if wild {
		return IdentityName(prefix)
	}
	return IdentityName(pattern)
}

func (c *complaints) err() error {
	if len(c.wrong) == 0 {
		return nil
	}
	return lockkeeper.Invalid("%s", strings.Join(c.wrong, "; "))
}
