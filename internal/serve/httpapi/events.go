package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// keepAlive is the interval of comments on a stream without events.
const keepAlive = 15 * time.Second

// gather is the least time between two writes of changes to one stream: the first change of a burst is
// sent at once, and the others together, because a write costs more than a change.
const gather = 100 * time.Millisecond

// snapshotTimeout bounds the list at the beginning of a stream.
const snapshotTimeout = time.Minute

var eventRoutes = []route{
	{"GET /v1/events", false, (*call).events},
}

// maxPast is the largest number of earlier changes that a stream begins with.
const maxPast = 4096

// A stream sends changes to one client, as server-sent events.
type stream struct {
	*call
	query lockkeeper.Query
	past  bool // it begins with earlier changes
	mark  mark
	text  bytes.Buffer // not sent yet

	// After a snapshot that began before the feed followed the engine, changes may have been missed. Another
	// snapshot is due when one of the channels is closed: the feed follows, or some time has passed.
	begun, again <-chan struct{} // nil after another snapshot
	misses       int             // such snapshots in a row
}

// events is GET /v1/events. The stream is
//
//	(remembered past*)? snapshot* ready (change | reset snapshot* ready)*
//
// A past event is a change before the snapshot: with past=true the stream begins with those that the
// server remembers. Before them, remembered says of how many seconds they are all. A snapshot is a claim
// that exists when the stream begins. After a reset, which comes when changes may have been missed, the client
// must forget everything. Of two events of one claim, the one with the higher change is newer. The id of a
// change, or of ready, resumes the stream after that event.
func (c *call) events() error {
	var m mistakes
	values := c.query(&m, "path", "session", "last_event_id", "past")
	q := selection(values.Get("path"), values.Get("session"), &m)
	past := values.Get("past")
	if past != "" && past != "true" {
		m.addf("past is %s: write past=true, or leave it out", quoted(past))
	}
	if err := m.err(); err != nil {
		return err
	}
	if q.Session == "" { // a list of a session is never denied
		if err := c.deniedAt(q.Meets); err != nil {
			return err
		}
	}
	q.Brief = true // like the feed; clients request evidence separately
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
	s := &stream{call: c, query: q, past: past != "", mark: markOf(last)}
	_, _, known := c.api.feed.after(s.mark)
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // otherwise proxies buffer the stream
	c.answered = true
	c.w.WriteHeader(http.StatusOK)
	s.text.WriteString("retry: 2000\n\n")
	if !known {
		if last != "" {
			s.append("reset", "", nil)
		}
		err = s.snapshot()
	}
	if err == nil {
		err = s.run()
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTimeout)) // for the end of the answer
	if err != nil {
		s.text.WriteString(": " + lockkeeper.Visible(err.Error()) + "\n\n") // a comment, for people with curl
		_ = s.flush()
		c.api.logger.Debug("a stream of events ended", "identity", c.pass.Name(), "error", err)
	}
	return nil // the client reconnects and resumes
}

// append adds an event to the text.
func (s *stream) append(event, id string, st *lockkeeper.Status) {
	data := []byte("{}")
	if st != nil {
		text, err := st.MarshalJSON() // json.Marshal would read it again to check it
		if err != nil {
			return // every status can be encoded
		}
		data = text
	}
	s.appendData(event, id, data)
}

func (s *stream) appendData(event, id string, data []byte) {
	s.text.WriteString("event: " + event + "\n")
	if id != "" {
		s.text.WriteString("id: " + id + "\n")
	}
	s.text.WriteString("data: ")
	s.text.Write(data)
	s.text.WriteString("\n\n")
}

// flush sends the text. It disconnects a client that does not read it in time.
func (s *stream) flush() error {
	to := http.NewResponseController(s.w)
	_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only in tests
	_, err := s.w.Write(s.text.Bytes())
	s.text.Reset()
	if err == nil {
		err = to.Flush()
	}
	if err == nil {
		_ = to.SetWriteDeadline(time.Time{}) // an HTTP/2 stream would end at the deadline even without a write
	}
	return err
}

// flushFull sends the text if it is long.
func (s *stream) flushFull() error {
	if s.text.Len() < 32<<10 {
		return nil
	}
	return s.flush()
}

// snapshot sends all claims, after the earlier changes that the client asked for. The id of a
// snapshot event cannot be resumed: a client that disconnects before ready starts again.
func (s *stream) snapshot() error {
	start := s.api.feed.awaitStart(s.r.Context())
	s.mark = start.mark // changes from here on follow, some of them a second time
	ctx, cancel := context.WithTimeout(s.r.Context(), snapshotTimeout)
	defer cancel()
	id := s.mark.String() + ".part"
	if s.past {
		s.past = false // a later snapshot follows changes that the client has
		events, since := s.api.past(s.mark)
		s.appendData("remembered", id, fmt.Appendf(nil, `{"age":%.3f}`, time.Since(since).Seconds()))
		for _, ev := range events {
			if st, shown := s.pass.Shows(ev.aged()); shown && s.query.Selects(&st) {
				s.append("past", id, &st)
			}
			if err := s.flushFull(); err != nil {
				return err
			}
		}
	}
	empty := true
	for st, err := range s.engine().List(ctx, s.query) {
		if err != nil {
			return err
		}
		empty = false
		s.append("snapshot", id, &st)
		if err := s.flushFull(); err != nil {
			return err
		}
	}
	s.begun, s.again = nil, nil
	if start.misses(empty) {
		again := make(chan struct{})
		time.AfterFunc(min(retry<<s.misses, time.Minute), func() { close(again) })
		s.begun, s.again, s.misses = start.begun, again, min(s.misses+1, 10)
	} else {
		s.misses = 0
	}
	s.append("ready", s.id(), nil)
	return s.flush()
}

// id returns the id that resumes the stream here. While changes may have been missed, a client that resumes
// starts again.
func (s *stream) id() string {
	if s.begun != nil {
		return s.mark.String() + ".part"
	}
	return s.mark.String()
}

// restart sends a snapshot, which replaces all that the client knows.
func (s *stream) restart() error {
	s.append("reset", "", nil)
	return s.snapshot()
}

// isDue reports whether another snapshot is due.
func (s *stream) isDue() bool {
	select {
	case <-s.begun:
	case <-s.again:
	default:
		return false
	}
	return true
}

// gather lets further changes come. It ends early with the client and with the server.
func (s *stream) gather() {
	timer := time.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.api.stopping:
	case <-s.r.Context().Done():
	}
}

// run sends changes until the client has gone, its credentials are withdrawn, or the server stops.
func (s *stream) run() error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		events, more, ok := s.api.feed.after(s.mark)
		if !ok && s.mark.life == s.api.feed.now().life {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
				Detail: "the client is too slow: the server has dropped events that the client has not read"}
		}
		if !ok || s.isDue() { // changes were missed, or may have been
			if err := s.restart(); err != nil {
				return err
			}
			continue
		}
		for i := range events {
			s.mark.number++
			if st, shown := s.pass.Shows(events[i].aged()); shown && s.query.Selects(&st) {
				s.append("change", s.mark.String(), &st)
			}
		}
		if s.text.Len() > 0 {
			if err := s.flush(); err != nil {
				return err
			}
			if len(events) < mostRead {
				s.gather()
			}
		}
		if len(events) > 0 {
			continue // there may be more
		}
		select {
		case <-more:
			continue
		case <-s.begun:
			continue
		case <-s.again:
			continue
		case <-alive.C:
			// The id lets a client resume that may see none of the changes.
			s.text.WriteString(": still here\nid: " + s.id() + "\n\n")
		case <-s.api.stopping:
			return nil
		case <-s.pass.Done():
			return credentialsWithdrawn()
		case <-s.browser.Done():
			return errLoggedOut()
		case <-s.r.Context().Done():
			return errGone
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}
