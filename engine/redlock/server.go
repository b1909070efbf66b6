package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// Bounds of the requests to one server.
const (
	maxPipeline = 256             // requests in one pipeline
	maxQueued   = 1 << 14         // requests that wait for a pipeline; more are refused as unsent
	doBound     = 3 * time.Second // a server that needs longer for a pipeline counts as down
)

var (
	errConnecting = errors.New("it has not answered yet")
	errQueueFull  = errors.New("too many requests wait for the server")
)

// request is a request that waits for the next pipeline: of the Party, by its number, or of a
// reader.
type request struct {
	quorum.Request
	number uint64
	reader chan<- readReply // has room for the reply
}

// readReply is the answer of a server to a reader.
type readReply struct {
	server int
	reply  quorum.Reply
	err    error
}

// server has the requests for one server. One goroutine gathers the requests that have come since
// the last pipeline and sends them as the next one; so the busier the server, the longer the
// pipelines.
type server struct {
	engine *Engine
	number int
	link   link.Link
	wakeup chan struct{} // filled when queue gets a request

	// Of the goroutine that sends: the latest pipeline. Their memory is used again.
	batch    []request
	failed   bool // the server is up nevertheless
	requests []quorum.Request

	// Guarded by Engine.mu.
	up      bool
	why     error // why it is not up
	losses  int   // how often it lost its data
	queue   []request
	sending bool
}

func newServer(e *Engine, number int, l link.Link) *server {
	return &server{engine: e, number: number, link: l, why: errConnecting, wakeup: make(chan struct{}, 1)}
}

// put adds a request to the queue. The caller holds Engine.mu.
func (s *server) put(r request) {
	if r.reader != nil && len(s.queue) >= maxQueued {
		r.reader <- readReply{server: s.number, err: errQueueFull}
		return
	}
	s.queue = append(s.queue, r)
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// busy reports whether the server has requests that may still be executed. The caller holds
// Engine.mu.
func (s *server) busy() bool { return s.sending || s.up && len(s.queue) > 0 }

// failedPause is the pause after a pipeline that failed while the link stays up. The Party may send its
// requests again at once.
const failedPause = 10 * time.Millisecond

// work sends pipelines until the engine is closed.
func (s *server) work() {
	for {
		for s.engine.closing.Err() == nil && s.sendNext() {
			if !s.failed {
				continue
			}
			select {
			case <-time.After(failedPause):
			case <-s.engine.closing.Done():
			}
		}
		select {
		case <-s.wakeup:
		case <-s.engine.closing.Done():
			s.failReaders()
			return
		}
	}
}

// sendNext sends the next pipeline, and passes the replies on. It returns false if there are no
// requests.
func (s *server) sendNext() bool {
	e := s.engine
	e.mu.Lock()
	n := min(len(s.queue), maxPipeline)
	if !s.up {
		n = len(s.queue)
	}
	clear(s.batch)
	batch := append(s.batch[:0], s.queue[:n]...)
	s.batch = batch
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	up, losses := s.up, s.losses
	s.sending = up && n > 0
	e.mu.Unlock()
	if n == 0 {
		return false
	}
	var replies []quorum.Reply
	err := link.ErrUnsent
	sent := e.clock() // before the first byte leaves
	if up {
		replies, err = s.do(batch)
	}
	e.step(func(now time.Duration) {
		s.sending = false
		if err == nil && s.losses != losses {
			err = link.ErrLost // the replies are older than the loss, which the Party knows already
		}
		s.failed = err != nil && s.up
		for i, r := range batch {
			s.finish(now, sent, r, replies, i, err)
		}
		e.noteIdle()
	})
	return true
}

// do sends one pipeline.
func (s *server) do(batch []request) ([]quorum.Reply, error) {
	clear(s.requests)
	requests := s.requests[:0]
	for i := range batch {
		requests = append(requests, batch[i].Request)
	}
	s.requests = requests
	ctx, cancel := context.WithTimeout(s.engine.closing, doBound)
	defer cancel()
	replies, err := s.link.Do(ctx, requests)
	if err == nil && len(replies) != len(requests) {
		err = errors.New("the number of replies is wrong")
	}
	return replies, err
}

// finish passes the reply of a request on, or its failure. The caller holds Engine.mu.
func (s *server) finish(now, sent time.Duration, r request, replies []quorum.Reply, i int, err error) {
	switch {
	case r.reader != nil && err != nil:
		r.reader <- readReply{server: s.number, err: err}
	case r.reader != nil:
		r.reader <- readReply{server: s.number, reply: replies[i]}
	case err != nil:
		s.engine.party.Failed(now, r.number, errors.Is(err, link.ErrUnsent))
	default:
		s.engine.party.Reply(now, r.number, sent, replies[i])
	}
}

// failReaders answers the readers whose requests were not sent.
func (s *server) failReaders() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, r := range s.queue {
		if r.reader != nil {
			r.reader <- readReply{server: s.number, err: errClosed}
		}
	}
	s.queue = nil
}

// events returns what the link of the server calls.
func (s *server) events() link.Events {
	e := s.engine
	return link.Events{
		Up: func() {
			e.step(func(now time.Duration) {
				s.up, s.why = true, nil
				e.party.Up(now, s.number)
				e.noteUsable()
			})
			e.poller.Wake()
		},
		Down: func(why error) {
			e.step(func(now time.Duration) {
				s.setDown(why)
				e.party.Down(now, s.number)
			})
		},
		Lost: func(why error) {
			e.step(func(now time.Duration) {
				s.setDown(why)
				s.losses++
				e.party.Lost(now, s.number)
			})
		},
		Message: func(m quorum.Message) {
			e.step(func(now time.Duration) { e.party.Message(now, s.number, m) })
			e.poller.Wake()
		},
	}
}

// setDown notes that the server can't be used. The worker fails the requests in the queue. The
// caller holds Engine.mu.
func (s *server) setDown(why error) {
	s.up, s.why = false, why
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
	s.engine.noteIdle()
}

// noteUsable closes usable if a majority of servers is up. The caller holds mu.
func (e *Engine) noteUsable() {
	up := 0
	for _, s := range e.servers {
		if s.up {
			up++
		}
	}
	select {
	case <-e.usable:
	default:
		if up > len(e.servers)/2 {
			close(e.usable)
		}
	}
}
