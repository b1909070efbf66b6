package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// SessionTime is how long a session lives after its login, however much it is used.
const SessionTime = time.Hour

// Limits of sessions. At mostOfOne the oldest session of the same identity ends; at mostSessions a
// login is refused, so that one identity can't end the sessions of others.
const (
	mostSessions = 4096
	mostOfOne    = 32
)

// Names of cookies. A browser accepts the first one only over TLS, for this host alone and for all
// its paths, so that no other host of the domain can set it.
const (
	secureCookie = "__Host-lockkeeper"
	plainCookie  = "lockkeeper"
)

// ActionHeader is the header that has the action token in requests that change something.
const ActionHeader = "Lockkeeper-Action"

// Sessions are the sessions of one server. It is safe for concurrent use.
type Sessions struct {
	mu sync.Mutex
	of map[key]*Session
}

// A key is the hash of a cookie, so that the time of a lookup says nothing about cookies.
type key [sha256.Size]byte

// A Session is a browser that logged in. It is safe for concurrent use.
type Session struct {
	all      *Sessions
	key      key
	identity string
	token    string
	action   string
	began    time.Time
	life     context.Context
	end      context.CancelFunc
}

// NewSessions returns no sessions yet.
func NewSessions() *Sessions { return &Sessions{of: make(map[key]*Session)} }

// Begin begins a session of the identity that the token belongs to, and returns the cookie for its
// browser. secure says that the browser speaks TLS. The error is an ErrUnavailable.
func (s *Sessions) Begin(identity, token string, secure bool) (*Session, *http.Cookie, error) {
	secret := rand.Text()
	n := &Session{
		all: s, key: sha256.Sum256([]byte(secret)), identity: identity, token: token, action: rand.Text(), began: time.Now(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(identity)
	if len(s.of) >= mostSessions {
		return nil, nil, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Detail: "too many browsers are logged in at this server: log out elsewhere, or come back later"}
	}
	n.life, n.end = context.WithTimeout(context.Background(), SessionTime)
	context.AfterFunc(n.life, n.forget)
	s.of[n.key] = n
	return n, cookie(secret, secure, int(SessionTime/time.Second)), nil
}

// makeRoom ends the oldest session of an identity that has too many. s.mu is held.
func (s *Sessions) makeRoom(identity string) {
	var oldest *Session
	n := 0
	for _, o := range s.of {
		if o.identity != identity {
			continue
		}
		n++
		if oldest == nil || o.began.Before(oldest.began) {
			oldest = o
		}
	}
	if n >= mostOfOne {
		delete(s.of, oldest.key)
		oldest.end()
	}
}

// Of returns the session that a request's cookie names; nil if it names none, or several.
func (s *Sessions) Of(r *http.Request) *Session {
	name := plainCookie
	if r.TLS != nil {
		name = secureCookie
	}
	given := r.CookiesNamed(name)
	if len(given) != 1 { // of two, another host of the domain has set one
		return nil
	}
	s.mu.Lock()
	n := s.of[sha256.Sum256([]byte(given[0].Value))]
	s.mu.Unlock()
	if n == nil || n.life.Err() != nil {
		return nil
	}
	if n.Left() <= 0 { // timers stand still while the computer sleeps
		n.End()
		return nil
	}
	return n
}

// Forgotten returns the cookie that makes a browser forget its session.
func Forgotten(secure bool) *http.Cookie { return cookie("", secure, -1) }

func cookie(value string, secure bool, seconds int) *http.Cookie {
	c := &http.Cookie{
		Name: plainCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: secure,
		SameSite: http.SameSiteStrictMode,
	}
	if secure {
		c.Name = secureCookie
	}
	return c
}

// Token returns the token that the browser logged in with.
func (s *Session) Token() string { return s.token }

// Action returns the action token.
func (s *Session) Action() string { return s.action }

// Permits reports whether a request with the session's cookie comes from the page itself: not from a
// page of another origin, and, if it can change something, with the action token.
func (s *Session) Permits(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return true
	}
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(ActionHeader)), []byte(s.action)) == 1
}

// Left returns how long the session still lives. It counts by the wall clock, which passes while
// the computer sleeps; the session's timer ends it even if that clock is set back.
func (s *Session) Left() time.Duration {
	return SessionTime - time.Now().Round(0).Sub(s.began.Round(0))
}

// End ends the session.
func (s *Session) End() {
	s.end()
	s.forget()
}

// Done returns a channel that is closed when the session has ended. That of nil is never closed.
func (s *Session) Done() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.life.Done()
}

func (s *Session) forget() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	delete(s.all.of, s.key)
}
