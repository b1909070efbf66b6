package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// lockBody is what Terraform sends with LOCK.
func lockBody(id, who string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":%q,"Version":"1.11.4",`+
		`"Created":"2026-11-22T01:44:58.497353679Z","Path":""}`, id, who)
}

func (h reply) info(t *testing.T) lockInfo {
	t.Helper()
	var info lockInfo
	if err := json.Unmarshal([]byte(h.text), &info); err != nil {
		t.Fatalf("%s: %v", h.text, err)
	}
	return info
}

// isRecent reports whether Terraform can read a time, and it is of this test.
func isRecent(text string) bool {
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && time.Since(at) < time.Hour
}

// held is what there is at a path.
func (v *village) held(path lockkeeper.Path) (all []lockkeeper.Status) {
	v.Helper()
	for st, err := range v.engine.List(v.Context(), lockkeeper.Query{Meets: path}) {
		if err != nil {
			v.Fatal(err)
		}
		all = append(all, st)
	}
	return all
}

// TestTerraformExchange is the exchange as Terraform documents it.
func TestTerraformExchange(t *testing.T) {
	v := newVillage(t)
	for _, methods := range [][2]string{{"LOCK", "UNLOCK"}, {"POST", "DELETE"}, {"PUT", "DELETE"}} {
		lock, unlock := methods[0], methods[1]
		const at = "/v1/terraform/infra/prod"
		for range 2 { // a repeat, after an answer that was lost
			if h := v.ask(lock, at, lockBody("one", "me@host")); h.code != 200 || h.info(t).ID != "one" {
				t.Fatalf("%s: %d %s", lock, h.code, h.text)
			}
		}
		if all := v.held("infra/prod"); len(all) != 1 || all[0].As != "me@host" || all[0].Note != "terraform apply, ID one" {
			t.Fatalf("held: %+v, want what people read", all)
		}
		h := v.ask(lock, at, lockBody("two", "you@host"))
		if info := h.info(t); h.code != 423 || !strings.HasPrefix(info.ID, "one held by me@host on infra/prod for ") ||
			info.Who != "me@host" || info.Operation != "apply" || !isRecent(info.Created) || info.Path != "infra/prod" {
			t.Errorf("taken: %d %s", h.code, h.text)
		}
		v.waits(1, "me", "infra/prod/x")
		if h := v.ask(unlock, at, lockBody("two", "you@host")); h.code != 409 || !strings.HasPrefix(h.info(t).ID, "one ") {
			t.Errorf("unlocked by another ID: %d %s", h.code, h.text)
		}
		other := villageOf(t, v.engine) // a restarted server
		for range 2 {
			if h := other.ask(unlock, at, lockBody("one", "me@host")); h.code != 200 {
				t.Errorf("%s: %d %s", unlock, h.code, h.text)
			}
		}
		v.ok("me", "infra/prod/x")
		v.released(1, "me", "infra/prod/x")
		if all := v.held("infra"); len(all) != 0 {
			t.Errorf("left: %v", all)
		}
	}
}

// TestTerraformBesideOthers: the answer to LOCK names any blocker, also one that is not of
// Terraform.
func TestTerraformBesideOthers(t *testing.T) {
	v := newVillage(t)
	v.ok("ci-17", "infra", "&note=moving")
	h := v.ask("LOCK", "/v1/terraform/infra/prod", lockBody("one", "me@host"))
	if info := h.info(t); h.code != 423 || info.Who != "ci-17" || info.Info != "moving" ||
		!strings.HasPrefix(info.ID, "grab-") || !strings.Contains(info.ID, "ci-17 on infra") {
		t.Errorf("%d %s, want who has it", h.code, h.text)
	}
	v.released(1, "ci-17", "infra")
	if h := v.ask("LOCK", "/v1/terraform/infra/prod?ttl=2h", lockBody("one", "me@host")); h.code != 200 {
		t.Errorf("%d %s, want it locked", h.code, h.text)
	}
	// force-unlock is an UNLOCK without a body. Who had it is told.
	for range 2 {
		if h := v.ask("UNLOCK", "/v1/terraform/infra/prod", ""); h.code != 200 {
			t.Errorf("force-unlock: %d %s", h.code, h.text)
		}
	}
	v.refused(410, "terraform force-unlock", "UNLOCK", "/v1/terraform/infra/prod", lockBody("one", "me@host"))
	if h := v.ask("LOCK", "/v1/terraform/infra/prod", lockBody("two", "me@host")); h.code != 200 {
		t.Errorf("%d %s, want it locked", h.code, h.text)
	}
	if h := v.ask("UNLOCK", "/v1/terraform/infra/prod", `{"ID":"two held by me@host, as it was told"}`); h.code != 200 {
		t.Errorf("%d %s, want it unlocked", h.code, h.text)
	}
}

func TestTerraformRefusesWrongInput(t *testing.T) {
	v := newVillage(t)
	for _, body := range []string{
		"", "x", "[]", "{}", `{"ID":""}`, `{"ID":"a b"}`, `{"ID":1}`, `{"ID":"` + strings.Repeat("x", 129) + `"}`,
		`{"ID":"x","Who":"` + strings.Repeat("x", 129) + `"}`,
		`{"ID":"x","Operation":"` + strings.Repeat("x", 600) + `"}`, `{"ID":"x","Who":"a\nb"}`, "{\"ID\":\"x\xff\"}",
	} {
		v.refused(400, "problems/invalid", "LOCK", "/v1/terraform/s", body)
		if body != "" && len(body) < 200 && !strings.Contains(body, "Who") && !strings.Contains(body, "Created") {
			v.refused(400, "problems/invalid", "UNLOCK", "/v1/terraform/s", strings.Replace(body, "a b", " ", 1))
		}
	}
	v.refused(400, "TTL", "LOCK", "/v1/terraform/s?ttl=1ms", lockBody("x", "me"))
	v.refused(400, "names nothing", "LOCK", "/v1/terraform/", lockBody("x", "me"))
	v.refused(405, "DELETE, LOCK, POST, PUT, UNLOCK", "GET", "/v1/terraform/s", "")
	if all := v.held(""); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// slowEngine lets a test do something before or after an exchange. What has begun it
// does to its end, whether anybody waits for that or not.
type slowEngine struct {
	lockkeeper.Engine
	before, after func(what string) error
}

func (e *slowEngine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := e.before("claim"); err != nil {
		return lockkeeper.Status{}, err
	}
	st, err := e.Engine.Claim(context.WithoutCancel(ctx), k, w)
	if lost := e.after("claim"); lost != nil {
		return lockkeeper.Status{}, lost
	}
	return st, err
}

func (e *slowEngine) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	if err := e.before("attach"); err != nil {
		return lockkeeper.Lease{}, err
	}
	l, err := e.Engine.Attach(context.WithoutCancel(ctx), s, notify)
	if lost := e.after("attach"); lost != nil {
		return lockkeeper.Lease{}, lost
	}
	return l, err
}

func (e *slowEngine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if err := e.before("list"); err != nil {
		return func(yield func(lockkeeper.Status, error) bool) { yield(lockkeeper.Status{}, err) }
	}
	return e.Engine.List(context.WithoutCancel(ctx), q)
}

// TestTerraformGivesUp: Terraform goes away at each exchange with the engine, with and without a
// repeat of its request. A lock exists afterwards exactly if an answer reported it.
func TestTerraformGivesUp(t *testing.T) {
	info := readLockInfo([]byte(lockBody("one", "me")), new(mistakes))
	for _, repeated := range []bool{false, true} {
		for at, more := 0, true; more; at++ {
			e := memlock.New()
			ctx, leave := context.WithCancel(t.Context())
			n, told := 0, false
			moment := func(string) error {
				if n++; n != at+1 {
					return nil
				}
				leave()
				if repeated {
					taken, err := stateLocks{e}.lock(t.Context(), "s", info, time.Hour)
					if taken != nil || err != nil {
						t.Fatalf("the repeat at exchange %d: %v, %v", at, taken, err)
					}
					told = true
				}
				return nil
			}
			taken, err := stateLocks{&slowEngine{e, moment, moment}}.lock(ctx, "s", info, time.Hour)
			more = n > at
			told = told || taken == nil && err == nil && ctx.Err() == nil
			held := false
			for st := range e.List(t.Context(), lockkeeper.Query{}) {
				held = held || st.State == lockkeeper.Held
			}
			if held != told {
				t.Errorf("gone at exchange %d, repeated %v: told %v (%v, %v), held %v", at, repeated, told, taken, err, held)
			}
			leave()
			e.Close()
		}
	}
}

// TestTerraformLostAnswers: what an engine did and could not say is undone, or found
// by the repeat.
func TestTerraformLostAnswers(t *testing.T) {
	info := readLockInfo([]byte(lockBody("one", "me")), new(mistakes))
	for at, more := 0, true; more; at++ {
		e := memlock.New()
		n := 0
		lossy := func(string) error {
			if n++; n == at+1 {
				return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "lost"}
			}
			return nil
		}
		s := stateLocks{&slowEngine{e, lossy, lossy}}
		_, err := s.lock(t.Context(), "s", info, time.Hour)
		more = n > at
		if more && !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("lost at %d: %v", at, err)
		}
		n = at + 1 // the rest gets through
		if taken, err := s.lock(t.Context(), "s", info, time.Hour); taken != nil || err != nil {
			t.Errorf("the repeat after a loss at %d: %v, %v", at, taken, err)
		}
		if taken, err := s.unlock(t.Context(), "s", "one"); taken != nil || err != nil {
			t.Errorf("unlocked after a loss at %d: %v, %v", at, taken, err)
		}
		for st := range e.List(t.Context(), lockkeeper.Query{}) {
			t.Errorf("left after a loss at %d: %v", at, st)
		}
		e.Close()
	}
}

// TestTerraformMany: of many that want one state at once, each with repeats of its
// own, one at a time has it.
func TestTerraformMany(t *testing.T) {
	v := newVillage(t)
	var inside sync.Mutex
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			for turn := 0; turn < 5; {
				body := lockBody(fmt.Sprintf("%d-%d", who, turn), "me")
				double := make(chan reply)
				go func() { double <- v.ask("LOCK", "/v1/terraform/s", body) }()
				h, again := v.ask("LOCK", "/v1/terraform/s", body), <-double
				if h.code != 200 && again.code != 200 {
					continue
				}
				if !inside.TryLock() {
					t.Errorf("two have it")
					return
				}
				inside.Unlock()
				if h := v.ask("UNLOCK", "/v1/terraform/s", body); h.code != 200 {
					t.Errorf("%d %s", h.code, h.text)
				}
				turn++
			}
		})
	}
	all.Wait()
}

// stateKeeper keeps Terraform's state, which is no matter of ours.
func stateKeeper(t *testing.T) string {
	var mu sync.Mutex
	var state []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == "POST":
			state = body
		case state == nil:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(state)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestTerraformProgram: the real one locks a state here.
func TestTerraformProgram(t *testing.T) {
	binary, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("terraform is not installed: TestTerraformExchange has its exchange")
	}
	v := newVillage(t)
	dir := t.TempDir()
	config := fmt.Sprintf(`
		terraform {
			backend "http" {
				address        = %q
				lock_address   = "%s/v1/terraform/infra/prod"
				unlock_address = "%[2]s/v1/terraform/infra/prod"
			}
		}
		variable "to" { default = "1" }
		resource "terraform_data" "x" {
			input = var.to
			provisioner "local-exec" { command = "curl -sS ${var.to}" }
		}`, stateKeeper(t), v.url)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	terraform := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, binary, append(args, "-no-color")...)
		c.Dir, c.Env = dir, append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := terraform("init"); err != nil {
		t.Fatal(out)
	}
	// A provisioner asks this, so the test knows that an apply is inside, and when it goes on.
	arrived, goOn := make(chan bool, 1), make(chan bool)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-goOn
	}))
	defer inside.Close()
	applied := make(chan error, 1)
	go func() {
		out, err := terraform("apply", "-auto-approve", "-var=to="+inside.URL)
		if err != nil {
			err = errors.New(out)
		}
		applied <- err
	}()
	select {
	case <-arrived:
	case err := <-applied:
		t.Fatalf("it did not get to work: %v", err)
	}
	holders := v.held("infra/prod")
	if len(holders) != 1 || !strings.HasPrefix(holders[0].Note, "terraform apply, ID ") || holders[0].As == "" {
		t.Fatalf("held: %v", holders)
	}
	if out, err := terraform("plan"); err == nil || !strings.Contains(out, "held by "+holders[0].As+" on infra/prod") {
		t.Errorf("a second one: %v\n%s", err, out)
	}
	waited := make(chan error, 1)
	go func() {
		out, err := terraform("plan", "-lock-timeout=50s")
		if err != nil {
			err = errors.New(out)
		}
		waited <- err
	}()
	goOn <- true
	if err := <-applied; err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if all := v.held(""); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
	if h := v.ask("LOCK", "/v1/terraform/infra/prod", lockBody("killed", "me@host")); h.code != 200 {
		t.Fatalf("%d %s", h.code, h.text)
	}
	if out, err := terraform("force-unlock", "-force", "killed"); err != nil {
		t.Error(out)
	}
	if all := v.held(""); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}
