package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

const (
	idle  = 5 * time.Minute
	quiet = 10 * time.Minute
)

// world is a site on two web servers, and an operator.
type world struct {
	*testing.T
	engine  lockkeeper.Engine
	servers []*Site
	locks   []*lockkeeper.Client // of the servers
	began   time.Time
}

func inWorld(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, engine: memlock.New(), began: time.Now()}
		for range 2 {
			locks := lockkeeper.New(w.engine)
			w.locks = append(w.locks, locks)
			w.servers = append(w.servers, NewSite(locks, "shop", http.HandlerFunc(shop), idle))
		}
		test(w)
		time.Sleep(idle) // in fake time: every visit ends
		synctest.Wait()
		for _, s := range w.servers {
			if len(s.visits) > 0 {
				t.Errorf("%d visits never ended", len(s.visits))
			}
		}
		w.engine.Close()
	})
}

// visitor is a browser that keeps its cookie.
type visitor struct {
	*world
	server *Site
	cookie *http.Cookie
}

func (w *world) visitor(server int) *visitor { return &visitor{world: w, server: w.servers[server]} }

// get asks for a page.
func (v *visitor) get() *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(v.Context(), http.MethodGet, "/", nil)
	if v.cookie != nil {
		r.AddCookie(v.cookie)
	}
	answer := httptest.NewRecorder()
	v.server.ServeHTTP(answer, r)
	for _, c := range answer.Result().Cookies() {
		v.cookie = c
	}
	return answer
}

func (v *visitor) sees(text string) {
	v.Helper()
	if body := v.get().Body.String(); !strings.Contains(body, text) {
		v.Errorf("%s after the start: the page is %q, want %q", time.Since(v.began), body, text)
	}
}

// upgrade claims the site in the background and returns the channel that delivers its hold.
func (w *world) upgrade(how ...lockkeeper.Request) <-chan *lockkeeper.Hold {
	got := make(chan *lockkeeper.Hold, 1)
	operator := lockkeeper.New(w.engine)
	go func() {
		how = append(how, lockkeeper.Exclusive("shop"), lockkeeper.WithNote("New <shelves>."))
		hold, err := operator.Acquire(w.Context(), how...)
		if err != nil {
			w.Error(err)
		}
		got <- hold
	}()
	synctest.Wait()
	return got
}

// begins checks that the upgrade begins when that much time has passed, and not earlier.
func (w *world) begins(after time.Duration, got <-chan *lockkeeper.Hold) *lockkeeper.Hold {
	w.Helper()
	since := time.Now()
	hold := <-got
	if took := time.Since(since); took != after {
		w.Errorf("the upgrade began after %s, want %s", took, after)
	}
	return hold
}

const (
	open   = "Welcome"
	closed = "Back soon"
)

// TestHardUpgrade: no visit begins once the upgrade waits, and it begins when the last one has ended.
func TestHardUpgrade(t *testing.T) {
	inWorld(t, func(w *world) {
		early, late := w.visitor(0), w.visitor(1)
		early.sees(open)
		upgrade := w.upgrade()
		late.sees(closed)
		time.Sleep(idle - time.Second)
		early.sees(open) // the visit goes on
		late.sees(closed)
		hold := w.begins(idle, upgrade)
		early.sees(closed)
		late.sees("New &lt;shelves&gt;.")
		hold.Close()
		early.sees(open)
		late.sees(open)
	})
}

// TestSoftUpgrade: visits begin while the upgrade waits, and it begins when nobody is there.
func TestSoftUpgrade(t *testing.T) {
	inWorld(t, func(w *world) {
		early, late := w.visitor(0), w.visitor(1)
		early.sees(open)
		upgrade := w.upgrade(lockkeeper.WithSoft(0))
		time.Sleep(idle - time.Second)
		late.sees(open)
		hold := w.begins(idle, upgrade)
		early.sees(closed)
		hold.Close()
	})
}

// TestTimedSoftUpgrade: the upgrade begins when nobody has been there for the quiet period.
func TestTimedSoftUpgrade(t *testing.T) {
	inWorld(t, func(w *world) {
		early, late := w.visitor(0), w.visitor(1)
		early.sees(open)
		upgrade := w.upgrade(lockkeeper.WithSoft(quiet))
		time.Sleep(idle + quiet - time.Second)
		late.sees(open)
		hold := w.begins(idle+quiet, upgrade)
		late.sees(closed)
		hold.Close()
	})
}

// TestUnreachableIsNotClosed: a site that can't reach its locks does not say that it is being upgraded.
func TestUnreachableIsNotClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.locks[0].Close()
		w.visitor(0).sees("Out of order")
	})
}

// TestPageOfLostLock: the context of a page ends when the lock of the visit is lost.
func TestPageOfLostLock(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.servers[0]
		shown := make(chan error)
		s.pages = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			shown <- context.Cause(r.Context())
		})
		go w.visitor(0).get()
		synctest.Wait()
		for _, v := range s.visits {
			if err := w.locks[1].Revoke(w.Context(), v.hold.Ref(), true, lockkeeper.Label{As: "operator"}); err != nil {
				w.Error(err)
			}
		}
		if err := <-shown; err == nil || !strings.Contains(err.Error(), "revoked") {
			w.Errorf("the page ends with %v, want that the lock was revoked", err)
		}
	})
}

// TestTooManyVisitors: a server bounds its visits.
func TestTooManyVisitors(t *testing.T) {
	inWorld(t, func(w *world) {
		for range maxVisits {
			w.visitor(0).sees(open)
		}
		w.visitor(0).sees("Busy")
		w.visitor(1).sees(open)
	})
}
