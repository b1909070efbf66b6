package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// watchedPolicy is a gate whose files of rules and tokens are watched.
type watchedPolicy struct {
	*testing.T
	options *serveOptions
	gate    *access.Gate
	secrets map[string]string
	tokens  string // the text of that file
}

const oneRule = "rules:\n- {who: [\"*\"], may: [look, lock], paths: [ci]}\n"

// watchPolicy runs a test with a watched gate; meanwhile changes the files between
// the reading of the policy and the watch.
func watchPolicy(t *testing.T, meanwhile, test func(*watchedPolicy)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watchedPolicy{T: t, secrets: map[string]string{}}
		folder := t.TempDir()
		w.options = &serveOptions{config: filepath.Join(folder, "config"), tokens: filepath.Join(folder, "tokens")}
		for _, name := range []string{"ci", "ops"} {
			secret, digest := access.NewToken()
			w.secrets[name] = secret
			w.tokens += access.Token{Name: name, Digest: digest, Created: time.Now()}.String() + "\n"
		}
		w.write(w.options.config, oneRule)
		w.write(w.options.tokens, w.tokens)
		var err error
		if w.options.file, err = readConfig(w.options.config); err != nil {
			t.Fatal(err)
		}
		p, err := w.options.policy()
		if err != nil {
			t.Fatal(err)
		}
		e := memlock.New()
		defer e.Close()
		w.gate = access.New(e, p, access.Options{})
		meanwhile(w)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go newPolicyWatch(w.options, w.gate.Set, slog.New(slog.DiscardHandler)).run(ctx, nil)
		test(w)
	})
}

func (w *watchedPolicy) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// may returns the answer of the gate to that token at the path.
func (w *watchedPolicy) may(name string, path lockkeeper.Path) error {
	pass, err := w.gate.Admit(access.Credentials{Token: w.secrets[name]})
	if err != nil {
		return err
	}
	return pass.May(access.Lock, path)
}

// denied waits until the token of ops is no longer valid.
func (w *watchedPolicy) denied() {
	w.Helper()
	time.Sleep(3 * policyLook)
	synctest.Wait()
	if err := w.may("ops", "ci"); !errors.Is(err, lockkeeper.ErrDenied) {
		w.Errorf("ops: %v, want it denied", err)
	}
	if err := w.may("ci", "ci"); err != nil {
		w.Errorf("ci: %v", err)
	}
}

// withoutOps is the file of tokens without the second one.
func (w *watchedPolicy) withoutOps() string { return w.tokens[:strings.Index(w.tokens, "\n")+1] }

// A token that is revoked while the server starts is not valid for longer than any other.
func TestRevokedAtTheBeginning(t *testing.T) {
	watchPolicy(t, func(w *watchedPolicy) { w.write(w.options.tokens, w.withoutOps()) }, func(w *watchedPolicy) {
		w.denied()
	})
}

// A half-written configuration does not take effect: it could allow more than the whole.
func TestHalfWrittenRules(t *testing.T) {
	watchPolicy(t, func(*watchedPolicy) {}, func(w *watchedPolicy) {
		time.Sleep(10*policyLook + policyLook/2)
		w.write(w.options.config, "")
		time.Sleep(policyLook)
		synctest.Wait()
		if err := w.may("ci", "prod"); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("by half of a file: %v, want it denied", err)
		}
		w.write(w.options.config, strings.Replace(oneRule, "[ci]", "[ci, production]", 1))
		time.Sleep(3 * policyLook)
		synctest.Wait()
		if err := w.may("ci", "prod"); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("after it was written: %v, want it denied", err)
		}
		if err := w.may("ci", "production"); err != nil {
			t.Error(err)
		}
	})
}

// The watch retries files that it could not read, without an event.
func TestPolicyIsReadAgain(t *testing.T) {
	watchPolicy(t, func(*watchedPolicy) {}, func(w *watchedPolicy) {
		time.Sleep(5 * policyLook)
		right := w.withoutOps()
		stamp := time.Unix(1_700_000_000, 0)
		for _, text := range []string{strings.Replace(right, "ci ", "c! ", 1), right} {
			w.write(w.options.tokens, text)
			if err := os.Chtimes(w.options.tokens, stamp, stamp); err != nil {
				t.Fatal(err)
			}
			if text != right {
				time.Sleep(3 * policyLook)
				synctest.Wait()
				if err := w.may("ops", "ci"); err != nil {
					t.Errorf("by a file that is wrong: %v", err)
				}
			}
		}
		w.denied()
	})
}
