package redlock

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

const (
	readPage  = 200                    // sessions that a server lists in one reply
	readBound = 2 * time.Second        // of one read of all servers
	readRest  = 500 * time.Millisecond // how long a majority waits for the servers that have not answered
)

// reading is what one server answered to a reader.
type reading struct {
	now      quorum.Micros // the clock of the server
	sessions map[string]*quorum.SessionState
	ends     []quorum.EndRecord
}

// read lists the sessions at all servers; only that one unless it is "". With ends it also lists the
// latest ends, and the servers keep those of the next seconds. The result has a nil for a
// server that did not answer in time. It fails with ErrUnavailable unless a majority answered.
//
// The servers answer at slightly different times, so a claim may change its state between two
// answers. Nevertheless no two claims have the votes of a majority for one path: each server names
// one.
func (e *Engine) read(ctx context.Context, only string, ends bool) ([]*reading, error) {
	if err := ctx.Err(); err != nil {
		return nil, e.unavailable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	type answer struct {
		server int
		*reading
	}
	answers := make(chan answer, len(e.servers))
	for i, s := range e.servers {
		go func() { answers <- answer{i, s.readAll(ctx, only, ends)} }()
	}
	all := make([]*reading, len(e.servers))
	var rest <-chan time.Time
	for answered, good := 0, 0; answered < len(all); answered++ {
		select {
		case a := <-answers:
			if all[a.server] = a.reading; a.reading != nil {
				good++
			}
		case <-rest:
			return all, nil
		}
		if good > len(all)/2 && rest == nil {
			rest = time.After(readRest)
		}
		if failed := answered + 1 - good; failed > (len(all)-1)/2 {
			return nil, e.unavailable(context.Cause(ctx))
		}
	}
	return all, nil
}

// readAll lists the sessions at one server, page by page; nil if the server did not answer.
func (s *server) readAll(ctx context.Context, only string, ends bool) *reading {
	r := &reading{sessions: make(map[string]*quorum.SessionState)}
	request := quorum.Request{Kind: quorum.List, Only: only, Limit: readPage, Ends: ends}
	for {
		reply, err := s.ask(ctx, request)
		if err != nil || reply.Outcome != quorum.Done {
			return nil
		}
		r.now, r.ends = reply.Now, reply.Ends
		for i := range reply.Listed {
			listed := &reply.Listed[i]
			r.sessions[listed.ID] = listed
		}
		if !reply.More || len(reply.Listed) == 0 {
			return r
		}
		request.After = reply.Listed[len(reply.Listed)-1].ID
	}
}

// ask sends one request of a reader and waits for the reply.
func (s *server) ask(ctx context.Context, q quorum.Request) (quorum.Reply, error) {
	done := make(chan readReply, 1)
	s.engine.mu.Lock()
	if s.engine.closed {
		s.engine.mu.Unlock()
		return quorum.Reply{}, errClosed
	}
	s.put(request{Request: q, reader: done})
	s.engine.mu.Unlock()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return quorum.Reply{}, ctx.Err()
	case <-s.engine.closing.Done():
		return quorum.Reply{}, errClosed
	}
}
