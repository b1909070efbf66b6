package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// keepAlive is how often a stream says that it is there.
const keepAlive = 15 * time.Second

// longestSnapshot bounds how long the list of all that there is may take.
const longestSnapshot = time.Minute

var eventRoutes = []route{
	{"GET /v1/events", false, (*call).events},
}

// A stream tells one client what changes, as server-sent events.
type stream struct {
	*call
	query lockkeeper.Query
	mark  mark
	text  bytes.Buffer // not written yet
}

// events is GET /v1/events: all that there is, and then what changes.
//
// An event is "snapshot", "ready" after the last of those, "change", or "reset":
// forget what you know, a snapshot follows. Of two events of one claim the one with
// the higher change is true. The id of a change, or of ready, resumes the stream
// after it.
func (c *call) events() error {
	var m mistakes
	values := c.query(&m, "path", "session", "last_event_id")
	q := selection(values.Get("path"), values.Get("session"), &m)
	if err := m.err(); err != nil {
		return err
	}
	q.Brief = true // as in the feed: clients request evidence separately
	if c.r.Method == http.MethodHead {
		c.w.Header().Set("Content-Type", "text/event-stream")
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	leave, err := c.take(limits.Streams)
	if err != nil {
		return err
	}
	defer leave()
	c.api.feed.join()
	defer c.api.feed.leave()
	last := c.r.Header.Get("Last-Event-ID")
	if last == "" {
		last = values.Get("last_event_id")
	}
	s := &stream{call: c, query: q, mark: markOf(last)}
	_, _, known := c.api.feed.after(s.mark)
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies hold streams back otherwise
	c.answered = true
	c.w.WriteHeader(http.StatusOK)
	s.text.WriteString("retry: 2000\n\n")
	if !known {
		if last != "" {
			s.say("reset", "", nil)
		}
		err = s.snapshot()
	}
	if err == nil {
		err = s.run()
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTimeout)) // to take the end
	if err != nil {
		c.api.logger.Debug("a stream of events ended", "identity", c.pass.Name(), "error", err)
	}
	return nil // the client comes back, and begins where it was
}

// say puts an event into the text.
func (s *stream) say(event, id string, st *lockkeeper.Status) {
	data := []byte("{}")
	if st != nil {
		text, err := json.Marshal(st)
		if err != nil {
			return // no status is like that
		}
		data = text
	}
	s.text.WriteString("event: " + event + "\n")
	if id != "" {
		s.text.WriteString("id: " + id + "\n")
	}
	s.text.WriteString("data: ")
	s.text.Write(data)
	s.text.WriteString("\n\n")
}

// flush sends what was said. A client that does not take it in time is cut off.
func (s *stream) flush() error {
	to := http.NewResponseController(s.w)
	_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines is a test's
	_, err := s.w.Write(s.text.Bytes())
	s.text.Reset()
	if err == nil {
		err = to.Flush()
	}
	if err == nil {
		_ = to.SetWriteDeadline(time.Time{}) // by HTTP/2 it ends a stream even if nothing is to be written
	}
	return err
}

// snapshot tells all that there is. Its events have an id with which nothing can be
// resumed: who breaks off in the midst of it begins anew.
func (s *stream) snapshot() error {
	s.api.feed.settle(s.r.Context())
	s.mark = s.api.feed.now() // what changes from here on comes after it, if it is told twice
	ctx, cancel := context.WithTimeout(s.r.Context(), longestSnapshot)
	defer cancel()
	id := s.mark.String() + ".part"
	for st, err := range s.engine().List(ctx, s.query) {
		if err != nil {
			return err
		}
		s.say("snapshot", id, &st)
		if s.text.Len() > 32<<10 {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	s.say("ready", s.mark.String(), nil)
	return s.flush()
}

// run tells what changes until the client, the pass or the server is gone.
func (s *stream) run() error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		events, more, ok := s.api.feed.after(s.mark)
		if !ok {
			if s.mark.life == s.api.feed.now().life {
				return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
					Detail: "the client is too slow: what it has not read is not kept any more"}
			}
			s.say("reset", "", nil) // the engine could not be followed for a while
			if err := s.snapshot(); err != nil {
				return err
			}
			continue
		}
		for i := range events {
			s.mark.number++
			if st, shown := s.pass.Shows(events[i].Status); shown && s.query.Selects(&st) {
				s.say("change", s.mark.String(), &st)
			}
		}
		if s.text.Len() > 0 {
			if err := s.flush(); err != nil {
				return err
			}
		}
		if len(events) > 0 {
			continue // there may be more
		}
		select {
		case <-more:
			continue
		case <-alive.C:
			// With the id, who sees nothing of what changes can resume too.
			s.text.WriteString(": still here\nid: " + s.mark.String() + "\n\n")
		case <-s.api.stopping:
			return nil
		case <-s.pass.Done():
			return withdrawn()
		case <-s.r.Context().Done():
			return errGone
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}
