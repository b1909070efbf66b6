package access_test

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// everything lets one identity do everything, by one token.
func everything(name string) (*access.Policy, string) {
	secret, digest := access.NewToken()
	return &access.Policy{
		Rules: []access.Rule{{
			Who:   []string{name},
			May:   []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze, access.Drain},
			Paths: []string{"*"},
		}},
		Tokens: []access.Token{{Name: name, Digest: digest}},
	}, secret
}

// passes opens the engine of a pass, for the conformance suite.
func passes(policy *access.Policy, secret string, o access.Options) enginetest.Harness {
	return enginetest.Harness{
		Bubble: true,
		Fresh: func(t *testing.T) enginetest.Open {
			return func() lockkeeper.Engine {
				e := memlock.New()
				pass, err := access.New(e, policy, o).Admit(access.Credentials{Token: secret})
				if err != nil {
					t.Fatal(err)
				}
				return &closing{pass.Engine(), e}
			}
		},
	}
}

// closing closes the engine beneath a pass, which the pass leaves open.
type closing struct {
	lockkeeper.Engine
	beneath lockkeeper.Engine
}

func (c *closing) Close() error { return c.beneath.Close() }

// The engine of an identity with all rights, and that of a gate without a policy, pass the suite of
// every engine.
func TestConformance(t *testing.T) {
	policy, secret := everything("ci")
	t.Run("identity", func(t *testing.T) { enginetest.Run(t, passes(policy, secret, access.Options{})) })
	t.Run("open", func(t *testing.T) { enginetest.Run(t, passes(nil, "", access.Options{})) })
	t.Run("uncounted", func(t *testing.T) { enginetest.Run(t, passes(nil, "", access.Options{Uncounted: true})) })
}

func TestStress(t *testing.T) {
	policy, secret := everything("ci")
	enginetest.Stress(t, passes(policy, secret, access.Options{}))
}
