package join

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory are the settings of a cluster in memory.
type memory struct {
	mu      sync.Mutex
	now     time.Duration
	all     map[string]Setting
	last    uint64
	removed uint64
	lose    int // answers of that many Puts are lost, after the change
}

func newMemory() *memory { return &memory{all: map[string]Setting{}} }

type memoryView struct {
	now     time.Duration
	all     map[string]Setting
	removed uint64
}

func (m *memory) Read(context.Context) (View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := memoryView{m.now, map[string]Setting{}, m.removed}
	for key, s := range m.all {
		v.all[key] = s
	}
	return v, nil
}

func (m *memory) Put(_ context.Context, s Setting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, there := m.all[s.Key]
	if there && before.Revision != s.Revision || !there && s.Revision != m.removed {
		return ErrRevision
	}
	m.last++
	if len(s.Value) == 0 {
		delete(m.all, s.Key)
		m.removed = m.last
	} else {
		m.all[s.Key] = Setting{s.Key, slices.Clone(s.Value), m.last}
	}
	if m.lose > 0 {
		m.lose--
		return errors.New("the answer was lost")
	}
	return nil
}

func (m *memory) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += d
}

func (v memoryView) Now() time.Duration { return v.now }

func (v memoryView) Setting(key string) Setting {
	if s, ok := v.all[key]; ok {
		return s
	}
	return Setting{Key: key, Revision: v.removed}
}

func (v memoryView) Settings(prefix string) (all []Setting) {
	for key, s := range v.all {
		if strings.HasPrefix(key, prefix) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// A testCluster is the first node of a cluster, which answers new nodes at an address.
type testCluster struct {
	*memory
	t           *testing.T
	credentials *Credentials
	address     string
	server      *Server
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	folder := t.TempDir()
	identity, err := Found(folder, "first")
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{memory: newMemory(), t: t}
	if c.credentials, err = OpenCredentials(folder, identity); err != nil {
		t.Fatal(err)
	}
	if err := Enrol(t.Context(), c, c.credentials, Node{Address: netip.MustParseAddrPort("10.0.0.1:7430")}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	c.server = &Server{Settings: c, Credentials: c.credentials}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := c.server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return c
}

func (c *testCluster) token() Token {
	c.t.Helper()
	token, err := CreateToken(c.t.Context(), c, c.credentials, time.Hour, []string{c.address})
	if err != nil {
		c.t.Fatal(err)
	}
	return token
}

// joiner returns a new node with an empty folder.
func (c *testCluster) joiner(name string, token Token) *Joiner {
	j := &Joiner{Token: token, Folder: c.t.TempDir()}
	j.Node = Node{Name: name, Rank: 3, Address: netip.MustParseAddrPort("10.0.0.2:7430"), Clients: "db2:7420"}
	j.Store = func(id Identity) error {
		j.Stored = &id
		return nil
	}
	return j
}

func (c *testCluster) join(j *Joiner) (*Credentials, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	return j.Join(ctx)
}

func (c *testCluster) members() string {
	c.t.Helper()
	v, _ := c.Read(c.t.Context())
	nodes, err := Nodes(v)
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

// refusedAs fails the test unless err is a refusal with that code.
func refusedAs(t *testing.T, err error, code Code) {
	t.Helper()
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal.Code != code {
		t.Errorf("got %v, want the refusal %q", err, code)
	}
}

func TestNodeJoins(t *testing.T) {
	c := newCluster(t)
	j := c.joiner("second", c.token())
	credentials, err := c.join(j)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.members(); got != "first second" {
		t.Errorf("the members are %q", got)
	}
	v, _ := c.Read(t.Context())
	n, _, err := nodeNamed(v, "second")
	id := credentials.Identity()
	if err != nil || n.ID != id.ID || n.Key != credentials.Key() || n.Rank != 3 || n.Clients != "db2:7420" ||
		n.Random != id.Random || n.Address != j.Node.Address || id.Name != "second" || *j.Stored != id ||
		id.Cluster != c.credentials.Identity().Cluster || id.ID == c.credentials.Identity().ID {
		t.Errorf("the cluster has %+v, the node is %+v, its log is that of %+v: %v", n, id, j.Stored, err)
	}
	if credentials.Authority() != c.credentials.Authority() {
		t.Error("the node has another CA")
	}
	j.Token = Token{} // a member needs no token
	again, err := c.join(j)
	if err != nil || again.Identity() != id {
		t.Errorf("after a restart: %v", err)
	}
}

// A node that stopped between the steps goes on with the same token and key.
func TestJoinGoesOnAfterACrash(t *testing.T) {
	c := newCluster(t)
	j := c.joiner("second", c.token())
	store, crash := j.Store, errors.New("crash")
	var first Identity
	j.Store = func(id Identity) error {
		first = id
		return crash
	}
	if _, err := c.join(j); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if got := c.members(); got != "first" {
		t.Errorf("the members are %q before the node has a log", got)
	}
	j.Store = store
	c.lose = 1 // the change is made, and the first request of the new node hears of no answer
	credentials, err := c.join(j)
	if err != nil {
		t.Fatal(err)
	}
	if credentials.Identity() != first {
		t.Errorf("it got the identity %+v, and before the crash %+v", credentials.Identity(), first)
	}
}

func TestTokenAdmitsOneNode(t *testing.T) {
	c := newCluster(t)
	token := c.token()
	if _, err := c.join(c.joiner("second", token)); err != nil {
		t.Fatal(err)
	}
	_, err := c.join(c.joiner("third", token))
	refusedAs(t, err, TokenUsed)
	if got := c.members(); got != "first second" {
		t.Errorf("the members are %q", got)
	}
}

func TestTokenEnds(t *testing.T) {
	c := newCluster(t)
	token := c.token()
	c.pass(time.Hour - 1)
	early := c.joiner("second", token)
	if _, err := c.join(early); err != nil {
		t.Error(err)
	}
	token = c.token()
	c.pass(time.Hour)
	_, err := c.join(c.joiner("third", token))
	refusedAs(t, err, TokenEnded)
	c.token() // removes tokens that ended
	_, err = c.join(c.joiner("third", token))
	refusedAs(t, err, TokenUnknown)
}

func TestWithdrawnTokenAdmitsNobody(t *testing.T) {
	c := newCluster(t)
	token := c.token()
	v, _ := c.Read(t.Context())
	tokens, err := Tokens(v)
	if err != nil || len(tokens) != 1 || tokens[0].Digest != sha256.Sum256(token.Secret[:]) {
		t.Fatalf("%+v, %v", tokens, err)
	}
	if err := WithdrawToken(t.Context(), c, tokens[0].ID()); err != nil {
		t.Fatal(err)
	}
	_, err = c.join(c.joiner("second", token))
	refusedAs(t, err, TokenUnknown)
	if WithdrawToken(t.Context(), c, tokens[0].ID()) == nil {
		t.Error("a token that is not there was withdrawn")
	}
}

func TestTakenNameIsRefusedUntilItsNodeIsExpelled(t *testing.T) {
	c := newCluster(t)
	old, err := c.join(c.joiner("second", c.token()))
	if err != nil {
		t.Fatal(err)
	}
	token := c.token()
	other := c.joiner("second", token)
	_, err = c.join(other)
	refusedAs(t, err, NameTaken)
	if err := Expel(t.Context(), c, old.Identity().ID, "its disk is lost"); err != nil {
		t.Fatal(err)
	}
	credentials, err := c.join(other) // with the same token: the refusal did not use it
	if err != nil {
		t.Fatal(err)
	}
	v, _ := c.Read(t.Context())
	if n, _, _ := nodeNamed(v, "second"); n.ID != credentials.Identity().ID || n.ID == old.Identity().ID {
		t.Errorf("the node is %+v", n)
	}
	if err := Expel(t.Context(), c, 12345, "unknown"); err == nil {
		t.Error("an id that is no node's was expelled")
	}
}

// A folder that has lost its log must not get an empty one under the same id.
func TestNodeThatLostItsLogIsRefused(t *testing.T) {
	c := newCluster(t)
	j := c.joiner("second", c.token())
	if _, err := c.join(j); err != nil {
		t.Fatal(err)
	}
	j.Stored = nil
	if _, err := c.join(j); !errors.Is(err, ErrLogLost) {
		t.Errorf("with joined.json: %v", err)
	}
	removeFile(t, j.Folder, joinedFile)
	_, err := c.join(j)
	refusedAs(t, err, Joined)
	v, _ := c.Read(t.Context())
	n, _, _ := nodeNamed(v, "second")
	if err := Expel(t.Context(), c, n.ID, "its disk is lost"); err != nil {
		t.Fatal(err)
	}
	_, err = c.join(j)
	refusedAs(t, err, Expelled)
}

// A copy of a node's folder must not become a second node with the same key.
func TestCopiedKeyIsRefused(t *testing.T) {
	c := newCluster(t)
	j := c.joiner("second", c.token())
	if _, err := c.join(j); err != nil {
		t.Fatal(err)
	}
	clone := c.joiner("third", c.token())
	copyFile(t, j.Folder, clone.Folder, keyFile)
	_, err := c.join(clone)
	refusedAs(t, err, KeyTaken)
}

// A new node gives its token to nobody but the cluster that the token pins.
func TestTokenIsNotGivenToAnotherCluster(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	j := c.joiner("second", c.token())
	_, folder := founded(t)
	own, err := selfSigned(keyIn(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	const want = "this is no node of the cluster"
	if _, err = j.try(t.Context(), other.address, own, &request{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another cluster: %v", err)
	}
	chain := func(leaf, ca *x509.Certificate) tls.ConnectionState {
		return tls.ConnectionState{NegotiatedProtocol: Protocol, PeerCertificates: []*x509.Certificate{leaf, ca}}
	}
	ca, leaf := c.credentials.authority.Certificate(), valid(t, c.credentials)
	if err := j.verify(chain(leaf, ca)); err != nil {
		t.Error(err)
	}
	forger, _ := founded(t)
	forger.identity = c.credentials.identity
	forged, err := forger.sign(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if j.verify(chain(forged.Leaf, ca)) == nil {
		t.Error("a certificate that another CA signed is trusted beside the right CA")
	}
	if j.verify(chain(ca, ca)) == nil {
		t.Error("a copy of the CA's certificate is trusted")
	}
	j.Token.Cluster = other.credentials.Identity().Cluster
	if j.verify(chain(leaf, ca)) == nil {
		t.Error("a node of another cluster of the same CA is trusted")
	}
}

// A token all of whose addresses are those of another cluster by now will never be of use.
func TestJoinEndsAtAnotherCluster(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	token := c.token()
	token.Addresses = []string{other.address, other.address}
	if _, err := c.joiner("second", token).Join(ctx); !errors.Is(err, ErrOtherCluster) || ctx.Err() != nil {
		t.Errorf("no address belongs to the cluster: %v", err)
	}
	token.Addresses = []string{other.address, c.address}
	j := c.joiner("second", token)
	if _, err := c.join(j); err != nil {
		t.Errorf("the second address belongs to the cluster: %v", err)
	}
	if err := CheckJoined(j.Folder, other.token()); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("the folder's node is one of another cluster: %v", err)
	}
	if err := errors.Join(CheckJoined(j.Folder, token), CheckJoined(t.TempDir(), token)); err != nil {
		t.Error(err)
	}
}

func TestJoinerAsksTheNextAddress(t *testing.T) {
	c := newCluster(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there
	token := c.token()
	token.Addresses = []string{l.Addr().String(), c.address}
	if _, err := c.join(c.joiner("second", token)); err != nil {
		t.Error(err)
	}
}

func TestTwoNodesWithOneTokenAtATime(t *testing.T) {
	c := newCluster(t)
	token := c.token()
	var joining sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		j := c.joiner([]string{"a", "b", "c", "d"}[i], token)
		joining.Go(func() { _, errs[i] = c.join(j) })
	}
	joining.Wait()
	joined := 0
	for _, err := range errs {
		if err == nil {
			joined++
		} else {
			refusedAs(t, err, TokenUsed)
		}
	}
	if joined != 1 {
		t.Errorf("%d nodes joined with one token: %v", joined, errs)
	}
}
