package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdPeer is the Mutex of etcd's own library, on one node.
type etcdPeer struct {
	process *process
	each    bool // a session for each worker, as where each is a program of its own
}

const (
	etcdVersion = "v3.7.3" // of the server, as etcd/go.mod has it, and of the client
	etcdLease   = 60       // seconds
)

func (p *etcdPeer) about() about {
	a := about{
		name:  "etcd, one session",
		kinds: []kind{distinct},
		lacks: etcdMissing,
		how:   "concurrency.Mutex, one node, one client, one session for all",
	}
	if p.each {
		// Mutexes of one session don't exclude each other: only with several
		// sessions there is a contended path.
		a.name, a.kinds = etcdName, []kind{distinct, contended, handoff}
		a.how = "concurrency.Mutex, one node, one client, a session each"
	}
	return a
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

func (p *etcdPeer) start(ctx context.Context, at place) error {
	program, err := etcdProgram()
	if err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	p.process, err = launch(exec.Command(program, "--name", "bench", "--data-dir", at.file("data"), "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "bench="+peer), at.log, false)
	if err != nil {
		return err
	}
	p.process.name = "etcd"
	p.process.addr = net.JoinHostPort("127.0.0.1", ports[0])
	return p.process.ready(ctx, func(ctx context.Context) error {
		c, err := p.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Get(ctx, "ready")
		return err
	})
}

func (p *etcdPeer) dial(ctx context.Context) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{p.process.addr},
		Context:   context.WithoutCancel(ctx),
		Logger:    zap.NewNop(),
	})
}

func (p *etcdPeer) server() *process { return p.process }
func (p *etcdPeer) stop()            { p.process.stop() }

func (p *etcdPeer) open(ctx context.Context, n int) (clients, error) {
	client, err := p.dial(ctx)
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
