package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/redlock"
)

// redlockPeer is our engine on independent Redis servers, which all clients of this process share,
// in one session.
type redlockPeer struct{ *redisServers }

func (p *redlockPeer) about() about {
	return about{
		name: redlockName + p.String(), kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: "our engine on Redis, Claim and End; one engine for all, and one session; each server has the lock and its " +
			"place in line",
	}
}

// missing is what is missing of Redis, or of our engine for it.
func (p *redlockPeer) missing() error {
	if err := redisMissing(); err != nil {
		return err
	}
	return lockkeeper.CheckURL("redis://127.0.0.1")
}

func (p *redlockPeer) open(ctx context.Context, n int) (clients, error) {
	opened, err := lockkeeper.Open(ctx, p.url())
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { opened.Close() }}}
	session, err := openSession(ctx, opened, fmt.Sprintf("bench-%03d", sessions.Add(1)))
	if err != nil {
		all.close()
		return nil, err
	}
	all.shut = append(all.shut, session.close)
	for range n {
		all.each = append(all.each, flatLocker{session.locker()})
	}
	return all, nil
}

// flatLocker locks in an engine whose paths have one segment.
type flatLocker struct{ *engineLocker }

func (l flatLocker) Acquire(ctx context.Context, path string) error {
	return l.engineLocker.Acquire(ctx, strings.ReplaceAll(path, "/", "."))
}
