package peers

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// A queue has the messages that wait for one connection. It is safe for concurrent use.
type queue struct {
	transport *Transport

	mu       sync.Mutex
	open     bool // a connection exists, or is being made
	messages []queued
	spare    []queued // room for the next messages
	bytes    int      // of messages
	large    *queued  // a large message, which waits or is being sent
}

type queued struct {
	replica.Message
	size int // of the bytes of the message, about
}

// put adds a message. It reports false if the message has no room, or no connection.
func (q *queue) put(m replica.Message) bool {
	one := queued{m, sizeOf(&m)}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.transport
	switch {
	case !q.open:
		return false
	case one.isLarge():
		if q.large != nil || !t.largeSends.take(one.size) {
			return false
		}
		q.large = &one
		return true
	case len(q.messages) >= t.bounds.messages || q.bytes+one.size > t.bounds.bytes || !t.queued.take(one.size):
		return false
	}
	q.messages = append(q.messages, one)
	q.bytes += one.size
	return true
}

// take removes the first messages, up to about most bytes, and at least one if there is any. They are
// valid until the next call.
func (q *queue) take(most int) []queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	count, bytes := 0, 0
	for count < len(q.messages) && (bytes < most || count == 0) {
		bytes += q.messages[count].size
		count++
	}
	taken := q.messages[:count]
	rest := append(q.spare[:0], q.messages[count:]...)
	q.messages, q.spare = rest, q.messages
	q.bytes -= bytes
	q.transport.queued.release(bytes)
	return taken
}

// start returns the large message that waits, if there is one. It stays in the queue.
func (q *queue) start() *queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.large
}

// finish removes the large message.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.large != nil {
		q.transport.largeSends.release(q.large.size)
		q.large = nil
	}
}

// begin opens the queue for messages.
func (q *queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = true
}

// end closes the queue, and returns how many messages it drops.
func (q *queue) end() (dropped int) {
	q.mu.Lock()
	dropped = len(q.messages)
	if q.large != nil {
		dropped++
	}
	q.transport.queued.release(q.bytes)
	q.open, q.messages, q.spare, q.bytes = false, nil, nil, 0
	q.mu.Unlock()
	q.finish()
	return dropped
}

// length returns how much waits, without a large message.
func (q *queue) length() (messages, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages), q.bytes
}

// sizeOf returns the number of bytes of a message, or a little more.
func sizeOf(m *replica.Message) int {
	const numbers = 32 // the kind and three varints
	if m.Kind == 0 {
		return numbers + proto.Size(m.Raft)
	}
	return numbers + len(m.Request) + len(m.Text)
}

// isLarge reports whether a message goes in pieces.
func (q *queued) isLarge() bool {
	return q.Kind == 0 && q.Raft.GetType() == pb.MsgSnap || q.size > maxFrame-maxHead
}
