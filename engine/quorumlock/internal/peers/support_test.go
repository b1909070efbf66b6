package peers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// maxWait bounds every wait.
const maxWait = 60 * time.Second

// connected is a part of the line in the log of a node that connects to a peer.
const connected = `msg="connected to a peer"`

// A ca signs the certificates of the nodes of a cluster: the name in a certificate is node-ID.CLUSTER.
type ca struct {
	*testca.Authority
	t testing.TB
}

func newCA(t testing.TB) *ca { return &ca{testca.New(t), t} }

func (a *ca) node(cluster string, id uint64) testca.Pair {
	return a.Issue(fmt.Sprintf("node-%d.%s", id, cluster), time.Now().Add(time.Hour))
}

// credentials reads the pair at each call.
func (a *ca) credentials(p testca.Pair) func() (tls.Certificate, *x509.CertPool, error) {
	return func() (tls.Certificate, *x509.CertPool, error) {
		pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		if err != nil {
			return pair, nil, err
		}
		pool := x509.NewCertPool()
		text, err := os.ReadFile(a.File)
		pool.AppendCertsFromPEM(text)
		return pair, pool, err
	}
}

func identify(c *x509.Certificate) (cluster string, id uint64, err error) {
	name := strings.Join(c.DNSNames, " ")
	_, err = fmt.Sscanf(name, "node-%d.%s", &id, &cluster)
	if err != nil {
		err = fmt.Errorf("%q is no node", name)
	}
	return cluster, id, err
}

// A node is a Transport with its messages and its log.
type node struct {
	*Transport
	t        testing.TB
	address  string
	messages chan replica.Message
	log      *journal
	pair     testca.Pair
}

// newNode returns a node of cluster "alpha" that listens at no address. change may be nil.
func (a *ca) newNode(id uint64, change func(*Settings, *bounds)) *node {
	a.t.Helper()
	n := &node{t: a.t, messages: make(chan replica.Message, 10_000), log: newJournal(), pair: a.node("alpha", id)}
	s := Settings{
		Cluster:     "alpha",
		ID:          id,
		Credentials: a.credentials(n.pair),
		Identify:    identify,
		Receive:     each(func(m replica.Message) { n.messages <- m }),
		Log:         slog.New(slog.NewTextHandler(n.log, nil)),
	}
	b := usualBounds
	if change != nil {
		change(&s, &b)
	}
	var err error
	if n.Transport, err = newTransport(s, b); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// start starts a node at a loopback port.
func (a *ca) start(id uint64, change func(*Settings, *bounds)) *node {
	a.t.Helper()
	n := a.newNode(id, change)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	n.serve(l)
	return n
}

// serve serves l until the end of the test.
func (n *node) serve(l net.Listener) {
	n.address = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := n.Serve(l); err != nil {
			n.t.Errorf("Serve: %v", err)
		}
	})
	n.t.Cleanup(func() { n.Close(); serving.Wait() })
}

// next returns the next message.
func (n *node) next() replica.Message {
	n.t.Helper()
	select {
	case m := <-n.messages:
		return m
	case <-time.After(maxWait):
		n.t.Fatalf("node %d gets no message; its log:\n%s", n.settings.ID, n.log)
		return replica.Message{}
	}
}

// status returns the status of one peer.
func (n *node) status(id uint64) Status {
	n.t.Helper()
	for _, s := range n.Status() {
		if s.ID == id {
			return s
		}
	}
	n.t.Fatalf("node %d does not know node %d", n.settings.ID, id)
	return Status{}
}

// connect lets n send to to, and waits for the connection.
func (n *node) connect(to *node) {
	n.t.Helper()
	n.Set(to.settings.ID, to.address)
	n.log.wait(n.t, connected, fmt.Sprintf("node=%016x", to.settings.ID))
}

// call returns a message with a number and contents that follow from it.
func call(from, to, number uint64) replica.Message {
	return replica.Message{
		From: from, To: to, Kind: 1, Incarnation: 7, Call: replica.CallID(number), Attempt: 1, Request: contents(number),
	}
}

// contents returns between 0 and about 20,000 bytes that follow from the number.
func contents(number uint64) []byte {
	size := number * number * 31 % 200
	if number%50 == 0 {
		size *= 100
	}
	return bytes.Repeat([]byte{byte(number)}, int(size))
}

// heartbeat returns a message of raft.
func heartbeat(from, to, term uint64) replica.Message {
	return replica.Message{From: from, To: to, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(from), To: new(to), Term: new(term),
	}}
}

// snapshot returns a message with that many bytes of data.
func snapshot(from, to uint64, bytes int) replica.Message {
	data := make([]byte, bytes)
	for i := range data {
		data[i] = byte(i >> 10)
	}
	return replica.Message{From: from, To: to, Raft: &pb.Message{
		Type: pb.MsgSnap.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Snapshot: &pb.Snapshot{Data: data},
	}}
}

// A journal has the lines of a log.
type journal struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed with the next line
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(line))
	close(j.more)
	j.more = make(chan struct{})
	return len(line), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "")
}

// clear forgets the lines so far.
func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = nil
}

// wait waits for a line with all these texts.
func (j *journal) wait(t testing.TB, texts ...string) {
	t.Helper()
	timeout := time.After(maxWait)
	for {
		j.mu.Lock()
		lines, more := j.lines, j.more
		j.mu.Unlock()
		for _, line := range lines {
			if hasAll(line, texts) {
				return
			}
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("no line with %q in the log:\n%s", texts, j)
		}
	}
}

func hasAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// each returns a Settings.Receive for one message at a time.
func each(receive func(replica.Message)) func([]replica.Message) {
	return func(messages []replica.Message) {
		for _, m := range messages {
			receive(m)
		}
	}
}
