package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdPeer is the Mutex of etcd's own library, on a cluster of its own.
type etcdPeer struct {
	nodes   int
	each    bool // a session for each worker, as where each is a program of its own
	running []*process
}

const (
	etcdVersion = "v3.7.3" // of the server, as etcd/go.mod has it, and of the client
	etcdLease   = 60       // seconds
)

func (p *etcdPeer) about() about {
	name := fmt.Sprintf("etcd, %d nodes", p.nodes)
	if p.nodes == 1 {
		name = etcdName
	}
	if !p.each {
		// Mutexes of one session don't exclude each other: only with several
		// sessions there is a contended path.
		return about{
			name: name + ", one session", kinds: []kind{distinct}, lacks: etcdMissing,
			how: "concurrency.Mutex, one client, one session for all",
		}
	}
	return about{
		name: name, kinds: []kind{distinct, contended, handoff}, lacks: etcdMissing,
		how: "concurrency.Mutex, one client that knows all nodes, a session each",
	}
}

// etcdProgram is where -setup puts the server.
func etcdProgram() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "lockkeeper-bench", "etcd-"+etcdVersion), err
}

func etcdMissing() error {
	program, err := etcdProgram()
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return errors.New("etcd is not built: run with -setup")
	}
	return nil
}

// start starts all nodes, each of which knows the others from the beginning.
func (p *etcdPeer) start(ctx context.Context, at place) error {
	program, err := etcdProgram()
	if err != nil {
		return err
	}
	ports, err := freePorts(2 * p.nodes)
	if err != nil {
		return err
	}
	var cluster []string
	for i := range p.nodes {
		cluster = append(cluster, fmt.Sprintf("node%d=http://127.0.0.1:%s", i, ports[2*i]))
	}
	for i, member := range cluster {
		name, peer, _ := strings.Cut(member, "=")
		client := "http://127.0.0.1:" + ports[2*i+1]
		node, err := launch(exec.Command(program, "--name", name, "--data-dir", at.file(name), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(cluster, ",")), at.log, false)
		if err != nil {
			return err
		}
		node.name = "etcd, " + name
		node.addr = net.JoinHostPort("127.0.0.1", ports[2*i+1])
		p.running = append(p.running, node)
	}
	for _, node := range p.running {
		if err := node.ready(ctx, func(ctx context.Context) error { return etcdAnswers(ctx, node.addr) }); err != nil {
			return err
		}
	}
	return nil
}

// etcdAnswers reads a key, which needs a leader.
func etcdAnswers(ctx context.Context, addr string) error {
	c, err := dialEtcd(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = c.Get(ctx, "ready")
	return err
}

func dialEtcd(ctx context.Context, addrs ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs,
		Context:   context.WithoutCancel(ctx),
		Logger:    zap.NewNop(),
	})
}

func (p *etcdPeer) server() *process { return &process{name: "etcd", parts: p.running} }

func (p *etcdPeer) stop() {
	for _, node := range p.running {
		node.stop()
	}
	p.running = nil
}

func (p *etcdPeer) open(ctx context.Context, n int) (clients, error) {
	var addrs []string
	for _, node := range p.running {
		addrs = append(addrs, node.addr)
	}
	client, err := dialEtcd(ctx, addrs...)
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { client.Close() }}}
	var session *concurrency.Session
	for range n {
		if session == nil || p.each {
			session, err = concurrency.NewSession(client, concurrency.WithTTL(etcdLease))
			if err != nil {
				all.close()
				return nil, fmt.Errorf("etcd session: %w", err)
			}
			opened := session
			all.shut = append(all.shut, func() { opened.Close() })
		}
		all.each = append(all.each, &etcdClient{session: session})
	}
	return all, nil
}

type etcdClient struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (c *etcdClient) Acquire(ctx context.Context, path string) error {
	c.mutex = concurrency.NewMutex(c.session, path)
	return c.mutex.Lock(ctx)
}

func (c *etcdClient) Release(ctx context.Context, _ string) error { return c.mutex.Unlock(ctx) }
