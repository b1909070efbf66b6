package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// heard empties a channel of events: "snapshot a held" and the like, and the last id.
func heard(t *testing.T, from <-chan said) (text, last string) {
	t.Helper()
	var texts []string
	for {
		select {
		case s, open := <-from:
			if !open {
				return strings.Join(append(texts, "end"), ", "), last
			}
			if s.id != "" && !strings.HasSuffix(s.id, ".part") {
				last = s.id
			}
			switch s.event {
			case "":
			case "past", "snapshot", "change":
				var st lockkeeper.Status
				if err := json.Unmarshal([]byte(s.data), &st); err != nil {
					t.Fatalf("%v: %s", err, s.data)
				}
				texts = append(texts, s.event+" "+st.As+" "+st.State.String())
			default:
				texts = append(texts, s.event)
			}
		default:
			return strings.Join(texts, ", "), last
		}
	}
}

// TestEvents: what is, then what changes; resumed after the last id without a gap,
// and from the beginning if what was missed is not known.
func TestEvents(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		for i := range 50 { // of which the first stream's follower is told, and no stream
			w.holds(fmt.Sprintf(`{"path":"db","limit":%d,"ttl":"95s"}`, i+1))
		}
		a := w.holds(`{"path":"db/a","as":"a"}`)
		ctx, cancel := context.WithCancel(w.Context())
		stream := w.listen(ctx, "/v1/events?path=db")
		w.pass(time.Second)
		text, _ := heard(t, stream)
		if strings.Count(text, "snapshot  held") != 50 || !strings.HasSuffix(text, "snapshot a held, ready") ||
			strings.Contains(text, "change") {
			t.Errorf("at first: %s", text)
		}
		w.holds(`{"path":"elsewhere","as":"e"}`)
		b := w.holds(`{"path":"db/b","as":"b"}`)
		w.pass(0)
		text, last := heard(t, stream)
		if text != "change b held" {
			t.Errorf("then: %s", text)
		}
		cancel()
		w.pass(0)
		w.want(w.ask("DELETE", a.header.Get("Location"), ""), 204, "")
		w.pass(30 * time.Second)
		ctx, cancel = context.WithCancel(w.Context())
		stream = w.listen(ctx, "/v1/events?path=db", "Last-Event-ID: "+last)
		w.pass(0)
		if text, last = heard(t, stream); text != "change a ended, change b ended" {
			t.Errorf("resumed: %s", text)
		}
		cancel()
		w.pass(2 * linger)
		w.holds(`{"path":"db/c","as":"c"}`)
		ctx, cancel = context.WithCancel(w.Context())
		defer cancel()
		stream = w.listen(ctx, "/v1/events?path=db&last_event_id="+last)
		w.pass(time.Second)
		if text, _ = heard(t, stream); text != "reset, snapshot c held, ready" {
			t.Errorf("resumed too late: %s", text)
		}
		w.apis[0].stop()
		w.pass(0)
		if text, _ = heard(t, stream); text != "end" {
			t.Errorf("the server stops: %s", text)
		}
		_ = b
	})
}

// TestStreamBeginsWithThePast: with past=true a stream first has the changes that an earlier one had,
// with their ages, as far as its filter and its rights show them.
func TestStreamBeginsWithThePast(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"db","as":"before","limit":2,"ttl":"1h"}`)
		ctx, cancel := context.WithCancel(w.Context())
		w.listen(ctx, "/v1/events?past=true")
		w.pass(time.Second)
		a := w.holds(`{"path":"db","as":"a","limit":2,"ttl":"1h"}`)
		w.holds(`{"path":"elsewhere","as":"e","ttl":"1h"}`)
		w.want(w.ask("DELETE", a.header.Get("Location"), ""), 204, "")
		cancel()
		w.pass(linger / 2)
		ctx, cancel = context.WithCancel(w.Context())
		defer cancel()
		stream := w.listen(ctx, "/v1/events?path=db&past=true")
		first := <-stream
		for first.event != "past" {
			first = <-stream
		}
		var st struct{ Age float64 }
		if err := json.Unmarshal([]byte(first.data), &st); err != nil || st.Age != (linger/2).Seconds() {
			t.Errorf("the age is %v (%v)", st.Age, err)
		}
		w.pass(time.Second)
		if text, _ := heard(t, stream); first.event != "past" || text != "past a ended, snapshot before held, ready" {
			t.Errorf("%s, %s", first.event, text)
		}
		w.want(w.ask("GET", "/v1/events?past=1", ""), 400, "invalid")
		f := w.apis[0].feed
		if events, _ := f.until(f.now(), 2); len(events) != 2 {
			t.Errorf("the latest 2 of 3 changes are %d", len(events))
		}
		if events, _ := f.until(mark{f.life, f.first}, 2); len(events) != 1 {
			t.Errorf("the changes until the first are %d", len(events))
		}
	})
}

// TestEventsByHTTP2: a stream on which nothing happens goes on by HTTP/2 too, where a
// deadline that is over ends it.
func TestEventsByHTTP2(t *testing.T) {
	inMemory(t, 0, func(w *world) {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		w.serveBy(protocols)
		w.client.Transport.(*witness).next.(*http.Transport).Protocols = protocols
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		stream := w.listen(ctx, "/v1/events?path=db")
		w.pass(3 * time.Minute)
		if text, _ := heard(t, stream); text != "ready" {
			t.Errorf("at first: %s", text)
		}
		w.holds(`{"path":"db","as":"a"}`)
		w.pass(0)
		if text, _ := heard(t, stream); text != "change a held" {
			t.Errorf("after minutes: %s", text)
		}
		w.apis[0].stop()
		w.pass(0)
		if text, _ := heard(t, stream); text != "end" {
			t.Errorf("the server stops: %s", text)
		}
	})
}

// TestBurstIsSentTogether: a stream sends the first change at once, and those that follow within a moment
// together.
func TestBurstIsSentTogether(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		stream := w.listen(ctx, "/v1/events")
		w.pass(time.Second)
		for _, step := range []struct {
			as   string
			wait time.Duration
			want string
		}{
			{"a", 0, "ready, change a held"},
			{"b", gather / 2, ""},
			{"c", gather/2 - 1, ""},
			{"d", 1, "change b held, change c held, change d held"},
			{"e", gather, "change e held"},
		} {
			w.holds(`{"path":"` + step.as + `","as":"` + step.as + `"}`)
			w.pass(step.wait)
			if text, _ := heard(t, stream); text != step.want {
				t.Errorf("after %s: %q, want %q", step.as, text, step.want)
			}
		}
	})
}

// TestInitialListIsNoChange: the list at the beginning of following is not sent as changes.
func TestInitialListIsNoChange(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		var asked string
		for i := range 50 {
			asked = w.holds(fmt.Sprintf(`{"path":"db/%d"}`, i)).header.Get("Location")
		}
		w.want(w.ask("PUT", "/v1/freezes/cold", `{"for":60}`), 200, "")
		e := &trap{Engine: w.engine, at: 1} // after its first list
		f := newFeed(access.New(e, nil, access.Options{}))
		e.do = func() { w.want(w.ask("POST", asked+"/revoke", ""), 200, "") }
		f.join()
		w.pass(time.Second)
		if n := f.now().number; n != 1 {
			t.Errorf("%d changes, want the one that there was", n)
		}
		f.close()
	})
}

// TestEventsAreBounded: a client that does not read is cut off, and costs no more
// than the ring of what is kept.
func TestEventsAreBounded(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		f := newFeed(w.apis[0].gate)
		f.join()
		f.awaitStart(w.Context())
		start := f.now()
		for i := range maxEvents + 10 {
			f.add(w.Context(), lockkeeper.Status{Ref: lockkeeper.Ref{Session: "s", ID: uint64(i)}}, false)
		}
		if _, _, ok := f.after(start); ok || f.latest.count != maxEvents {
			t.Errorf("%d are kept, and the first is known: %t", f.latest.count, ok)
		}
		big := lockkeeper.Status{Text: strings.Repeat("x", 1<<20)}
		for range 40 {
			f.add(w.Context(), big, false)
		}
		if f.latest.bytes > maxEventBytes || f.latest.count > 16 {
			t.Errorf("%d bytes in %d events are kept", f.latest.bytes, f.latest.count)
		}
		f.leave()
		w.pass(2 * linger)
		if f.end != nil || f.latest.ring != nil {
			t.Error("it goes on without streams")
		}
	})
}

// TestSlowReader: a stream whose client takes nothing is cut off in time.
func TestSlowReader(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		here, err := w.dial(w.Context(), "", "server0")
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		if _, err := here.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: server0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		open := func() int { return w.apis[0].gate.Ledger().Used(limits.Streams) }
		if open() != 1 {
			t.Fatal("no stream")
		}
		w.pass(writeTimeout + time.Second)
		if n := open(); n != 0 {
			t.Errorf("%d streams go on", n)
		}
		w.pass(2 * linger)
	})
}

// TestEventsResetAfterEngineFailure: when the engine could not be followed for a while, streams
// start again by themselves with a snapshot, which has the changes since.
func TestEventsResetAfterEngineFailure(t *testing.T) {
	inMemory(t, 0, func(w *world) {
		e := &brittle{Engine: w.engine, breaks: make(chan struct{})}
		w.engine = e
		w.serve()
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		stream := w.listen(ctx, "/v1/events")
		w.pass(time.Second)
		w.holds(`{"path":"db","as":"a"}`)
		w.pass(0)
		if text, _ := heard(t, stream); text != "ready, change a held" {
			t.Errorf("at first: %s", text)
		}
		close(e.breaks)
		w.pass(0)
		e.breaks = make(chan struct{})
		w.holds(`{"path":"site","as":"b"}`)
		w.pass(2 * time.Second)
		if text, _ := heard(t, stream); text != "reset, snapshot a held, snapshot b held, ready" {
			t.Errorf("after the break: %s", text)
		}
		w.holds(`{"path":"snmp","as":"c"}`)
		w.pass(0)
		if text, _ := heard(t, stream); text != "change c held" {
			t.Errorf("from then on: %s", text)
		}
	})
}

// A brittle engine can be made to fail its followers.
type brittle struct {
	lockkeeper.Engine
	breaks chan struct{}
}

func (e *brittle) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if !q.Follow {
		return e.Engine.List(ctx, q)
	}
	return func(yield func(lockkeeper.Status, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		breaks := e.breaks
		go func() {
			select {
			case <-breaks:
			case <-ctx.Done():
			}
			cancel()
		}()
		for st, err := range e.Engine.List(ctx, q) {
			if !yield(st, err) {
				return
			}
		}
		yield(lockkeeper.Status{}, lockkeeper.ErrUnavailable)
	}
}
