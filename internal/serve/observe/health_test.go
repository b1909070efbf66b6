package observe

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// sick is an engine of which attaching can be made to fail or to hang.
type sick struct {
	lockkeeper.Engine
	err      atomic.Pointer[error]
	hangs    atomic.Bool
	attached atomic.Int32
	left     atomic.Int32
}

func (s *sick) Attach(ctx context.Context, se lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	s.attached.Add(1)
	if s.hangs.Load() {
		time.Sleep(time.Hour) // as a disk that is gone: it does not look at ctx
		ctx = context.WithoutCancel(ctx)
	}
	if err := s.err.Load(); err != nil {
		return lockkeeper.Lease{}, *err
	}
	return s.Engine.Attach(ctx, se, notify)
}

func (s *sick) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	s.left.Add(1)
	return s.Engine.End(context.WithoutCancel(ctx), k, e)
}

// ask asks whether the server is ready: its code, and what is wrong or doubtful.
func ask(t *testing.T, h *Health) (code int, wrong string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.Ready().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	var answer struct {
		Ready  bool
		Checks []struct{ Check, Grade, Detail, Remedy string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if answer.Ready != (w.Code == 200) {
		t.Errorf("code %d says otherwise than ready: %t", w.Code, answer.Ready)
	}
	for _, c := range answer.Checks {
		if c.Grade != "fine" {
			if c.Remedy == "" {
				t.Errorf("%s is %s, and what to do is not said", c.Check, c.Grade)
			}
			wrong += c.Check + " " + c.Grade + ": " + c.Detail + "; "
		}
	}
	return w.Code, wrong
}

// Ready is who can take a lock now, whatever was so before.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &sick{Engine: memlock.New()}
		var draining string
		expires := time.Now().Add(90 * 24 * time.Hour)
		var log strings.Builder
		h := NewHealth(e, Concerns{
			Logger: slog.New(slog.NewTextHandler(&log,
				&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey || a.Key == "detail" || a.Key == "remedy" {
						return slog.Attr{}
					}
					return a
				}})),
			Draining: func() (string, bool) { return draining, draining != "" },
			Expires:  func() time.Time { return expires },
		})
		check := func(want int, words string) {
			t.Helper()
			time.Sleep(2 * probeAge)
			if code, wrong := ask(t, h); code != want || !strings.Contains(wrong, words) || words == "" && wrong != "" {
				t.Errorf("%d: %q, want %d with %q", code, wrong, want, words)
			}
			if h.ready() != (want == 200) {
				t.Error("ready says otherwise")
			}
		}
		check(200, "")
		if e.left.Load() != e.attached.Load() {
			t.Error("a session was attached and not left")
		}
		broken := errors.New("the disk is full")
		e.err.Store(&broken)
		check(503, "the disk is full")
		e.err.Store(nil)
		check(200, "")
		draining = "new version"
		check(503, "draining broken: the server admits no new claims: new version")
		draining = ""
		expires = time.Now().Add(3*24*time.Hour + time.Hour)
		check(200, "certificate doubtful: valid for 3 more days")
		expires = time.Now()
		check(503, "certificate broken")
		expires = time.Now().Add(90 * 24 * time.Hour)
		check(200, "")
		expires = time.Time{}
		check(200, "")
		// What changed was logged, once each; that it drained is told by others.
		if want := `level=ERROR msg="not ready" check=engine
level=INFO msg=recovered check=engine
level=WARN msg=doubtful check=certificate
level=ERROR msg="not ready" check=certificate
level=INFO msg=recovered check=certificate
`; log.String() != want {
			t.Errorf("the log has\n%swant\n%s", log.String(), want)
		}
	})
}

// A node of a cluster that finds no leader is no matter of its disk.
func TestRemedyOfANodeIsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &sick{Engine: memlock.New()}
		broken := errors.New("no node of the cluster leads now")
		e.err.Store(&broken)
		for want, c := range map[string]Concerns{
			"see to the disk": {},
			"lk cluster ls":   {Cluster: func() lockkeeper.Finding { return lockkeeper.Finding{Check: "cluster"} }},
		} {
			if f := NewHealth(e, c).probe(); !strings.Contains(f.Remedy, want) {
				t.Errorf("remedy %q, want %q", f.Remedy, want)
			}
		}
	})
}

// However often it is asked, the engine is asked once a second.
func TestReadyIsNoLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &sick{Engine: memlock.New()}
		h := NewHealth(e, Concerns{})
		for range 100 {
			ask(t, h)
		}
		if n := e.attached.Load(); n != 1 {
			t.Errorf("the engine was asked %d times", n)
		}
	})
}

// An engine that hangs is not ready, is not asked again while it hangs, and what it
// says late does not count.
func TestReadyOfEngineThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &sick{Engine: memlock.New()}
		e.hangs.Store(true)
		h := NewHealth(e, Concerns{})
		for range 3 {
			began := time.Now()
			code, wrong := ask(t, h)
			if took := time.Since(began); code != 503 || took > probeTime || !strings.Contains(wrong, "no answer within 2s") {
				t.Errorf("%d after %s: %q", code, took, wrong)
			}
			time.Sleep(time.Minute)
		}
		if n := e.attached.Load(); n != 1 {
			t.Errorf("the engine was asked %d times while it hangs", n)
		}
		time.Sleep(time.Hour)
		if code, _ := ask(t, h); code != 503 {
			t.Error("a late answer counts as one")
		}
		e.hangs.Store(false)
		time.Sleep(2 * time.Hour)
		if code, wrong := ask(t, h); code != 200 {
			t.Errorf("it hangs no more, and is %q", wrong)
		}
	})
}

// What keeps the audit log from being written is told.
func TestReadyWithAudit(t *testing.T) {
	a, _ := auditFile(t)
	h := NewHealth(memlock.New(), Concerns{Audit: a})
	if code, wrong := ask(t, h); code != 200 {
		t.Error(wrong)
	}
	a.mu.Lock()
	a.failure = errors.New("no space left on device")
	a.mu.Unlock()
	if code, wrong := ask(t, h); code != 503 || !strings.Contains(wrong, "audit broken: no space left") {
		t.Errorf("%d: %q", code, wrong)
	}
}

func TestLive(t *testing.T) {
	w := httptest.NewRecorder()
	NewHealth(memlock.New(), Concerns{}).Live().ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
	if w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("%d: %q", w.Code, w.Body)
	}
}

// TestChangedTellsTheLog: when the engine says that it refuses claims, or takes them again, the log says so
// once, though nobody asks whether the server is ready.
func TestChangedTellsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		e := &sick{Engine: memlock.New()}
		defer e.Close()
		h := NewHealth(e, Concerns{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if why := h.ClaimsRefused(); why != "" {
			t.Errorf("claims are refused: %s", why)
		}
		full := error(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is full"})
		for _, now := range []*error{&full, nil} {
			e.err.Store(now)
			h.Changed()
			synctest.Wait()
			if why := h.ClaimsRefused(); (why != "") != (now != nil) {
				t.Errorf("claims are refused for %q, the engine's error %v", why, now)
			}
		}
		for _, said := range []string{"the disk is full", "recovered"} {
			if n := strings.Count(log.String(), said); n != 1 {
				t.Errorf("the log says %d times that %s:\n%s", n, said, log.String())
			}
		}
	})
}

// A server that was never ready is expected to become so for a while. After that, and once it was ready, a
// broken check is an error.
func TestStartIsNoErrorForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key != slog.LevelKey && a.Key != slog.MessageKey && a.Key != "check" {
				return slog.Attr{}
			}
			return a
		}}
		c := Concerns{Grace: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, options))}
		broken := errors.New("no node of the cluster leads now")
		for _, became := range []time.Duration{2 * time.Second, 7 * time.Second} {
			log.Reset()
			e := &sick{Engine: memlock.New()}
			e.err.Store(&broken)
			h := NewHealth(e, c)
			h.check()
			time.Sleep(became)
			synctest.Wait()
			e.err.Store(nil)
			h.Changed()
			synctest.Wait()
			e.err.Store(&broken)
			h.Changed()
			synctest.Wait()
			want := "level=WARN msg=\"not ready yet\" check=engine\n"
			if became > c.Grace {
				want += "level=ERROR msg=\"not ready\" check=engine\nlevel=INFO msg=recovered check=engine\n"
			} else {
				want += "level=INFO msg=ready check=engine\n"
			}
			want += "level=ERROR msg=\"not ready\" check=engine\n"
			if log.String() != want {
				t.Errorf("ready after %s: the log has\n%swant\n%s", became, &log, want)
			}
		}
		time.Sleep(time.Minute) // the checks after the grace
	})
}

// A server whose policy admits nobody is not ready, though its engine is.
func TestClosedServerIsNotReady(t *testing.T) {
	closed := "it needs --tokens"
	h := NewHealth(memlock.New(), Concerns{Closed: func() string { return closed }})
	if code, wrong := ask(t, h); code != 503 || !strings.Contains(wrong, "policy broken: nobody is admitted: "+closed) {
		t.Errorf("%d: %q", code, wrong)
	}
	closed = ""
	if code, wrong := ask(t, h); code != 200 || wrong != "" {
		t.Errorf("%d: %q", code, wrong)
	}
}
