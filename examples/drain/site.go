package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// maxVisits bounds the visits of one web server. A session of a shared lock server may hold 10,000
// claims.
const maxVisits = 5_000

const cookieName = "visit"

var errFull = errors.New("too many visitors at once")

// A Site shows pages to visitors, each of whom holds a shared lock of path during the visit. A visit
// begins with a visitor's first request and ends when no request has come for idle. The holder
// of an exclusive lock of path has the site for itself: a request that would begin a visit gets the
// page "back soon" instead.
//
// How an upgrade waits is its own choice: an exclusive claim stops new visits and waits until the
// visits under way have ended; a soft claim lets visits begin until the site happens to be empty; a
// soft claim with a quiet period waits until the site has been empty for that long.
//
// A Site is safe for concurrent use. Several web servers may serve one site: all their visits share
// the lock.
type Site struct {
	locks *lockkeeper.Client
	path  string
	pages http.Handler
	idle  time.Duration

	mu     sync.Mutex
	visits map[string]*visit
}

// visit is one visitor on this server.
type visit struct {
	hold     *lockkeeper.Hold
	requests int // under way
	leave    *time.Timer
}

// NewSite returns a site whose visits end when no request has come for idle.
func NewSite(locks *lockkeeper.Client, path string, pages http.Handler, idle time.Duration) *Site {
	return &Site{locks: locks, path: path, pages: pages, idle: idle, visits: make(map[string]*visit)}
}

// ServeHTTP serves a page to a visitor, whose visit it begins if it can.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := ""
	if c, err := r.Cookie(cookieName); err == nil {
		id = c.Value
	}
	v := s.find(id)
	if v == nil {
		id = rand.Text() // a visitor can't choose the name of a visit
		var err error
		if v, err = s.begin(r.Context(), id); err != nil {
			refuse(w, err)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteLaxMode})
	}
	defer s.requestEnds(id, v)
	// The page is given up if the lock is lost: an upgrade may have begun.
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(v.hold.Context(), func() { cancel(context.Cause(v.hold.Context())) })()
	s.pages.ServeHTTP(w, r.WithContext(ctx))
}

// find returns the visit of that id, with one more request, or nil if it has ended or its lock was lost.
func (s *Site) find(id string) *visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[id]
	if v == nil || v.hold.Err() != nil {
		return nil
	}
	v.leave.Stop()
	v.requests++
	return v
}

// begin begins a visit with one request. It never waits for the lock.
func (s *Site) begin(ctx context.Context, id string) (*visit, error) {
	s.mu.Lock()
	full := len(s.visits) >= maxVisits
	s.mu.Unlock()
	if full {
		return nil, errFull
	}
	hold, err := s.locks.Acquire(ctx, lockkeeper.Shared(s.path), lockkeeper.WithWait(0))
	if err != nil {
		return nil, err
	}
	v := &visit{hold: hold, requests: 1}
	v.leave = time.AfterFunc(s.idle, func() { s.end(id, v) })
	v.leave.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits[id] = v
	return v, nil
}

// requestEnds ends one request of a visit. The last one begins the time after which the visit ends.
func (s *Site) requestEnds(id string, v *visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.requests--
	if v.requests == 0 {
		v.leave.Reset(s.idle)
	}
}

// end ends a visit, unless a request came at the last moment.
func (s *Site) end(id string, v *visit) {
	s.mu.Lock()
	busy := v.requests > 0
	if !busy {
		delete(s.visits, id)
	}
	s.mu.Unlock()
	if !busy {
		_ = v.hold.Close() // a hold that can't be released ends with its lease
	}
}
