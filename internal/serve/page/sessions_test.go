package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func with(c *http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(c)
	return r
}

// TestSessionsAreBounded: one identity ends its own oldest session with a login too many, never that
// of another, and no login exceeds the bound of all.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions()
		_, other, err := s.Begin("other", "t", false)
		if err != nil {
			t.Fatal(err)
		}
		var cookies []*http.Cookie
		for range mostOfOne + 1 {
			_, c, err := s.Begin("one", "t", false)
			if err != nil {
				t.Fatal(err)
			}
			cookies = append(cookies, c)
			time.Sleep(time.Second)
		}
		if s.Of(with(cookies[0])) != nil || s.Of(with(cookies[1])) == nil || s.Of(with(other)) == nil {
			t.Error("not the oldest session of that identity alone has ended")
		}
		for i := 0; len(s.of) < mostSessions; i++ {
			if _, _, err := s.Begin(fmt.Sprint("many", i/mostOfOne), "t", false); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Begin("late", "t", false); err == nil {
			t.Error("a login exceeds the bound")
		}
		if _, _, err := s.Begin("one", "t", false); err != nil {
			t.Errorf("an identity cannot replace its own session: %v", err)
		}
		time.Sleep(SessionTime)
		synctest.Wait()
		if len(s.of) != 0 {
			t.Errorf("%d sessions outlive their hour", len(s.of))
		}
	})
}

// TestSessionEndsAfterAnHourOfUse: use does not lengthen a session.
func TestSessionEndsAfterAnHourOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions()
		n, c, err := s.Begin("one", "t", true)
		if err != nil {
			t.Fatal(err)
		}
		for range 59 {
			time.Sleep(time.Minute)
			r := with(c)
			r.TLS = httptest.NewRequest("GET", "https://x/", nil).TLS
			if s.Of(r) != n {
				t.Fatal("it has ended too early")
			}
		}
		time.Sleep(time.Minute)
		<-n.Done()
		n.End() // again, without effect
		if r := with(c); s.Of(r) != nil {
			t.Error("it goes on")
		}
	})
}
