package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// Check names all mistakes at once, and nothing that is valid.
func TestCheckNamesEveryMistake(t *testing.T) {
	high := lockkeeper.MaxPriority + 1
	p := access.Policy{
		Rules: []access.Rule{
			{Who: []string{"ci", "deploy-*", "*"}, May: []access.Verb{access.Look, access.Lock}, Paths: []string{"db/", "*"}},
			{},
			{Who: []string{"a b", "*x", "c*d", ""}, May: []access.Verb{"connect", "read"}, Paths: []string{"db/*", "..", ""}},
			{Who: []string{"ops"}, May: []access.Verb{access.Drain}, Paths: []string{"db"}},
		},
		Quotas: []access.Quota{
			{Who: []string{"*"}, Claims: -1, Waiting: -2, Sessions: -3, Paths: -4, LongestTTL: duration.Span(time.Millisecond),
				HighestPriority: &high},
			{Claims: 1},
		},
		Tokens: []access.Token{{Name: "a"}, {Name: "b:c"}},
	}
	err := p.Check()
	if !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Fatal(err)
	}
	for _, words := range []string{
		"rule 2 names 0 identities", "rule 2 allows nothing", "rule 2 names 0 paths",
		`identity "a b"`, `identity "*x"`, `identity "c*d"`, `rule 3: "connect" is none of`, `rule 3: "read" is none of`,
		`"db/*": a path covers`, `the segment ".."`, `path ""`,
		"rule 4: drain", "claims -1", "waiting -2", "sessions -3", "paths -4", "longest_ttl 1ms", "highest_priority 1000001",
		"quota 2 names 0 identities",
		`"b:c"`, "b:c has the secret of another",
	} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q is missing in: %v", words, err)
		}
	}
	if strings.Contains(err.Error(), "rule 1") || strings.Count(err.Error(), "invalid request") != 1 {
		t.Errorf("the error names valid parts: %v", err)
	}
	none := 0
	good := access.Policy{
		Rules:  p.Rules[:1],
		Quotas: []access.Quota{{Who: []string{"*"}, Claims: 1, LongestTTL: duration.Span(time.Hour), HighestPriority: &none}},
		Tokens: p.Tokens[:1],
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if err := new(access.Policy).Check(); err != nil {
		t.Error(err)
	}
	// Invalid parts allow nothing, even if the caller did not call Check.
	if access.Allows([]string{"*x", "", "c*d"}, []string{"*"}, "x", "db") ||
		access.Allows([]string{"*"}, []string{"db/*", "..", ""}, "x", "db/1") {
		t.Error("an invalid pattern or path allows something")
	}
}

func TestPatternsMatchIdentities(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"ci", "ci", true}, {"ci", "ci2", false}, {"ci", "c", false}, {"ci", "CI", false}, {"*", "ci", true},
		{"deploy-*", "deploy-1", true}, {"deploy-*", "deploy-", true}, {"deploy-*", "deploy", false},
		{"deploy-*", "x-deploy-1", false},
	} {
		if got := access.Allows([]string{c.pattern}, []string{"*"}, c.name, "db"); got != c.want {
			t.Errorf("%q for %q: %t", c.pattern, c.name, got)
		}
	}
}

// A rule allows exactly the paths that it covers, to exactly the identities that it names.
func FuzzAllows(f *testing.F) {
	f.Add("deploy-*", "db/", "deploy-1", "db/x")
	f.Add("*", "*", "ci", "a/b")
	f.Fuzz(func(t *testing.T, who, path, name, at string) {
		if access.IdentityName(name) != nil || !lockkeeper.Path(at).Valid() {
			return
		}
		named := who == name || who == "*"
		if begin, star := strings.CutSuffix(who, "*"); star && access.IdentityName(begin) == nil {
			named = named || strings.HasPrefix(name, begin)
		}
		covered := path == "*"
		if p, err := lockkeeper.ParsePath(path); err == nil && !strings.Contains("/"+string(p)+"/", "/*/") {
			covered = covered || ("/" + at + "/")[:min(len(p)+2, len(at)+2)] == "/"+string(p)+"/"
		}
		if got := access.Allows([]string{who}, []string{path}, name, lockkeeper.Path(at)); got != (named && covered) {
			t.Errorf("%q below %q: %q at %q: %t, want %t", who, path, name, at, got, named && covered)
		}
	})
}
