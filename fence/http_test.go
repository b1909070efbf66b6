package fence

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// nameByPath names a resource as the path of the request does.
func nameByPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func request(h http.Handler, method, path string, fences ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for _, f := range fences {
		r.Header.Add(HeaderName, f)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandlerAnswers(t *testing.T) {
	calls := 0
	h := Handler(&Memory{MaxResources: 2}, nameByPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		name, number, ok := FromContext(r.Context())
		if ok != (r.Header.Get(HeaderName) != "") || ok && (name != nameByPath(r) || number == 0) {
			t.Errorf("admitted as %q, %d, %t", name, number, ok)
		}
	}))
	for _, c := range []struct {
		method, path string
		fences       []string
		status       int
		says         string
	}{
		{"PUT", "/db", []string{"5"}, 200, ""},
		{"PUT", "/db", []string{"7"}, 200, ""},
		{"PUT", "/db", []string{"7"}, 200, ""},
		{"PUT", "/db", []string{"6"}, 412, `"db" refuses fence 6: a later holder, with fence 7, has been here`},
		{"GET", "/db", []string{"6"}, 412, "a later holder"},
		{"GET", "/db", nil, 200, ""},
		{"HEAD", "/db", nil, 200, ""},
		{"OPTIONS", "/db", nil, 200, ""},
		{"PUT", "/db", nil, 428, "Lock-Fence"},
		{"DELETE", "/db", nil, 428, "Lock-Fence"},
		{"PROPFIND", "/db", nil, 428, "Lock-Fence"},
		{"PUT", "/db", []string{""}, 400, "from 1 to 2^63-1"},
		{"PUT", "/db", []string{"x"}, 400, "from 1 to 2^63-1"},
		{"PUT", "/db", []string{"-1"}, 400, "from 1 to 2^63-1"},
		{"PUT", "/db", []string{"0"}, 400, "from 1 to 2^63-1"},
		{"PUT", "/db", []string{"9223372036854775808"}, 400, "from 1 to 2^63-1"},
		{"PUT", "/db", []string{"7", "8"}, 400, "2 times"},
		{"PUT", "/", []string{"7"}, 400, "empty"},
		{"PUT", "/b", []string{"1"}, 200, ""},
		{"PUT", "/c", []string{"1"}, 503, "too many resources"},
	} {
		before := calls
		w := request(h, c.method, c.path, c.fences...)
		if w.Code != c.status || (calls > before) != (c.status == 200) {
			t.Errorf("%s %s %q: %d %s, want %d; %d calls", c.method, c.path, c.fences, w.Code, w.Body, c.status, calls-before)
			continue
		}
		if c.status == 200 {
			continue
		}
		var said struct {
			Status        int
			Title, Detail string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || said.Status != c.status || said.Title == "" ||
			!strings.Contains(said.Detail, c.says) || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %q: %s, %v; it should say %q", c.method, c.path, c.fences, w.Body, err, c.says)
		}
		if highest := w.Header().Get(HeaderName); (highest == "7") != (c.status == 412) {
			t.Errorf("%s %s %q: the highest fence is %q", c.method, c.path, c.fences, highest)
		}
	}
}

// A handler that was admitted, and then stopped, ends before one with a higher fence begins.
func TestHandlerDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		h := Handler(&Memory{}, nameByPath, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, number, _ := FromContext(r.Context())
			if number == 1 {
				<-r.Context().Done() // until a later holder comes
				if !errors.Is(context.Cause(r.Context()), ErrStale) {
					t.Error(context.Cause(r.Context()))
				}
				order = append(order, "late")
				panic(http.ErrAbortHandler) // ends the work, as a return does
			}
			order = append(order, "next")
		}))
		late := make(chan any)
		go func() {
			defer func() { late <- recover() }()
			request(h, "PUT", "/db", "1")
		}()
		synctest.Wait()
		if w := request(h, "PUT", "/db", "2"); w.Code != 200 {
			t.Error(w.Code, w.Body)
		}
		if p := <-late; p != http.ErrAbortHandler {
			t.Errorf("the panic became %v", p)
		}
		if strings.Join(order, " ") != "late next" {
			t.Error(order)
		}
	})
}

func TestHandlerWithDatabase(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d Dialect, db *sql.DB) {
		for _, want := range []struct {
			fence  string
			status int
		}{{"5", 200}, {"6", 200}, {"5", 412}, {"6", 200}} {
			// another handler each time: what it knows is in the database
			h := Handler(Database(db, d), nameByPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if w := request(h, "PUT", "/db", want.fence); w.Code != want.status {
				t.Errorf("fence %s: %d %s", want.fence, w.Code, w.Body)
			}
		}
		db.Close()
		h := Handler(Database(db, d), nameByPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("it passes although the database did not answer")
		}))
		if w := request(h, "PUT", "/db", "9"); w.Code != 503 || strings.Contains(w.Body.String(), "closed") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
