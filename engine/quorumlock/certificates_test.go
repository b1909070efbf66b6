package quorumlock

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	processes "github.com/lockkeeper/lockkeeper/internal/roles"
)

// playNode runs the node of a folder, with certificates of a lifetime, and does what the lines of its
// input say.
func playNode(args []string) error {
	life, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := Open(ctx, args[0], Config{Listen: args[1], certificateLife: life})
	if err != nil {
		return err
	}
	defer e.Close()
	fmt.Println("open")
	client := lockkeeper.New(e)
	var held *lockkeeper.Hold
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, path, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "lock":
			if held, err = client.Lock(ctx, path); err != nil {
				return err
			}
			fmt.Println("held", held.Fence())
		case "held":
			fmt.Println("held", held.Fence(), held.Err())
		case "all":
			if _, err := e.node.Await(ctx, func(s replica.Status) bool { return s.Contact && len(s.Voters) == 3 }); err != nil {
				return err
			}
			fmt.Println("all")
		}
	}
	return nil
}

// presented returns the certificate that a node presents to those who connect to it.
func (ms *machines) presented(m *machine) *x509.Certificate {
	ms.Helper()
	var leaf *x509.Certificate
	ms.until("a node presents its certificate", func() bool {
		c, err := (&tls.Dialer{Config: &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{join.Protocol},
		}}).DialContext(ms.ctx(), "tcp", m.config.Listen)
		if err != nil {
			return false
		}
		defer c.Close()
		leaf = c.(*tls.Conn).ConnectionState().PeerCertificates[0]
		return true
	})
	return leaf
}

// Real processes outlive their certificates: when the first ones have expired, all nodes connect to each
// other again, and locks go on. Without the renewal no node would accept another one by then.
func TestClusterOutlivesItsCertificates(t *testing.T) {
	t.Parallel()
	const life = 6 * time.Second
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	for _, m := range ms.all {
		m.stop()
	}
	running := make([]*processes.Process, 3)
	start := func(i int) {
		m := ms.all[i]
		running[i] = processes.Start(t, "node", m.folder, m.config.Listen, life.String())
		running[i].Read("open")
	}
	ask := func(i int, line, want string) string {
		t.Helper()
		running[i].Send(line)
		return running[i].Read(want)
	}
	for i := range running {
		start(i)
	}
	fence := ask(0, "lock db", "held")
	first := ms.presented(ms.all[0])
	if left := time.Until(first.NotAfter); left > life {
		t.Fatalf("the certificate is valid for %s, want at most %s", left, life)
	}
	ms.until("the first certificates have expired", func() bool {
		return time.Now().After(first.NotAfter.Add(time.Second))
	})
	for _, i := range []int{1, 2} { // one after the other: a majority runs at all times
		running[i].Kill()
		start(i)
		ask(i, "all", "all")
		ask(i, fmt.Sprint("lock other/", i), "held")
	}
	if got := ask(0, "held", "held"); got != fence+" <nil>" {
		t.Errorf("the hold of the node that went on is %q, want fence %s and no error", got, fence)
	}
	second := ms.presented(ms.all[0])
	if second.SerialNumber.Cmp(first.SerialNumber) == 0 || time.Now().After(second.NotAfter) {
		t.Errorf("the node that went on presents a certificate that ends at %s, at first %s", second.NotAfter, first.NotAfter)
	}
}

// The CA is replaced as docs/engines/cluster-certificates.md says: sessions and holds outlive it, and a
// node that still has the old one gets no connection.
func TestClusterGoesOnWithAnotherAuthority(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	fence := ms.all[0].lock("db").Fence()
	for _, m := range ms.all {
		m.crash() // the session stays, as after kill -9
	}
	other := t.TempDir()
	if _, err := join.Found(other, "other"); err != nil {
		t.Fatal(err)
	}
	for i, m := range ms.all {
		if i < 2 {
			ms.must(os.Remove(filepath.Join(m.folder, "ca.pem")))
			ms.must(os.Remove(filepath.Join(m.folder, "ca-key.pem")))
			ms.must(join.CopyAuthority(other, m.folder))
		}
		m.start()
	}
	for _, m := range ms.all[:2] {
		m.await("two nodes with the new CA are a majority", func(s replica.Status) bool { return s.Contact })
	}
	found := false
	for st, err := range ms.all[1].engine.List(ms.ctx(), lockkeeper.Query{Meets: "db"}) {
		if err != nil {
			t.Fatal(err)
		}
		found = found || st.State == lockkeeper.Held && st.Fence == fence
	}
	if !found {
		t.Error("the hold is gone")
	}
	if s := ms.all[2].engine.node.Status(); s.Contact {
		t.Errorf("the node with the old CA has contact: %+v", s)
	}
}
