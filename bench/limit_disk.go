package main

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// diskPeer is the limit of durable servers: 128 bytes appended and brought to
// the disk, for the acquire and again for the release. It has no server, since
// nothing but the disk is of interest.
type diskPeer struct {
	noServer
	group bool // callers that arrive while the disk works share the next write
	path  string
}

const recordLength = 128

func (p *diskPeer) about() about {
	a := about{
		name:  "limit: fdatasync",
		kinds: []kind{distinct},
		how:   "in this process: append 128 bytes and fdatasync, one after the other",
	}
	if p.group {
		a.name, a.how = "limit: group fdatasync", "in this process: callers that arrive while the disk works "+
			"share the next write and fdatasync"
	}
	return a
}

func (p *diskPeer) start(_ context.Context, at place) error {
	p.path = at.file("log")
	return nil
}

func (p *diskPeer) open(_ context.Context, n int) (clients, error) {
	f, err := os.Create(p.path)
	if err != nil {
		return nil, err
	}
	log := &diskLog{file: f, next: &round{done: make(chan struct{})}, wake: make(chan struct{}, 1)}
	if p.group {
		go log.work()
	}
	all := &lockers{shut: []func(){func() { close(log.wake); f.Close() }}}
	for range n {
		all.each = append(all.each, &diskClient{log, p.group})
	}
	return all, nil
}

type diskLog struct {
	file *os.File
	wake chan struct{} // somebody waits for the next round

	mu   sync.Mutex
	next *round
}

// round is one write for all who share it.
type round struct {
	records []byte
	done    chan struct{} // closed when it is on the disk, or failed
	err     error         // read after done
}

func (l *diskLog) sync(records []byte) error {
	if _, err := l.file.Write(records); err != nil {
		return err
	}
	return unix.Fdatasync(int(l.file.Fd()))
}

// work does one round after the other, each with all who came during the former.
func (l *diskLog) work() {
	for range l.wake {
		l.mu.Lock()
		r := l.next
		l.next = &round{done: make(chan struct{})}
		l.mu.Unlock()
		if len(r.records) > 0 {
			r.err = l.sync(r.records)
		}
		close(r.done)
	}
}

type diskClient struct {
	log   *diskLog
	group bool
}

func (c *diskClient) Acquire(context.Context, string) error { return c.record() }
func (c *diskClient) Release(context.Context, string) error { return c.record() }

func (c *diskClient) record() error {
	var record [recordLength]byte
	l := c.log
	l.mu.Lock()
	if !c.group {
		defer l.mu.Unlock()
		return l.sync(record[:])
	}
	r := l.next
	r.records = append(r.records, record[:]...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake, and will see the round
	}
	<-r.done
	return r.err
}
