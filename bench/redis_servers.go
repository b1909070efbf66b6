package main

import (
	"context"
	"fmt"
	"strings"
)

// redisServers are independent Redis servers, which the peers that stand on as many of them share:
// only one peer is at work at a time. The first peer that starts them does so, and the first that
// stops them too.
type redisServers struct {
	n       int
	running []*redisServer
}

func (s *redisServers) start(ctx context.Context, at place) error {
	if s.running != nil {
		return nil
	}
	for range s.n {
		one := &redisServer{}
		s.running = append(s.running, one)
		if err := one.start(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

func (s *redisServers) stop() {
	for _, one := range s.running {
		one.stop()
	}
	s.running = nil
}

func (s *redisServers) server() *process {
	all := &process{name: s.String()}
	for _, one := range s.running {
		all.parts = append(all.parts, one.process)
	}
	return all
}

// addrs are the addresses of all servers.
func (s *redisServers) addrs() (addrs []string) {
	for _, one := range s.running {
		addrs = append(addrs, one.process.addr)
	}
	return addrs
}

// url is how our engine names them.
func (s *redisServers) url() string { return "redis://" + strings.Join(s.addrs(), ",") }

func (s *redisServers) String() string {
	if s.n == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", s.n)
}

// redisLockPeers lock in Redis by a library, or by our engine. The servers of our engine are its
// own, since it wants them empty at its first start.
func redisLockPeers() []peer {
	one, three, five := &redisServers{n: 1}, &redisServers{n: 3}, &redisServers{n: 5}
	return []peer{
		&redislockPeer{one},
		&rueidislockPeer{redisServers: one, keys: 1},
		&rueidislockPeer{redisServers: one, keys: 3},
		&redsyncPeer{one},
		&redsyncPeer{three},
		&redsyncPeer{five},
		&redlockPeer{&redisServers{n: 1}},
		&redlockPeer{&redisServers{n: 3}},
		&redlockPeer{&redisServers{n: 5}},
	}
}
