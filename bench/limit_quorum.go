package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// quorumPeer is the limit of durable clusters: the multiplexed echo of a leader that answers when two of
// three processes have the requests on their disks. Requests that arrive meanwhile are the next group.
type quorumPeer struct {
	muxPeer
	followers []*process
}

func (p *quorumPeer) about() about {
	return about{
		name: quorumName, kinds: []kind{distinct},
		how: "mux echo of a leader that sends the requests to two others; answered when two of the three have them on " +
			"the disk (fdatasync); those that arrive meanwhile are the next group",
	}
}

func (p *quorumPeer) start(_ context.Context, at place) error {
	for range 2 {
		f, err := launchSelf("follower", at)
		if err != nil {
			return err
		}
		p.followers = append(p.followers, f)
	}
	if err := p.launch("quorum", at); err != nil {
		return err
	}
	for _, f := range p.followers {
		if _, err := fmt.Fprintln(p.process.in, f.addr); err != nil {
			return err
		}
	}
	return nil
}

func (p *quorumPeer) server() *process {
	return &process{name: quorumName, parts: append([]*process{p.process}, p.followers...)}
}

func (p *quorumPeer) stop() {
	p.process.stop()
	for _, f := range p.followers {
		f.stop()
	}
}

// A groupLog is a file of constant length, which is written again from its beginning.
type groupLog struct {
	file *os.File
	at   int64
}

const groupLogLength = 4 << 20

func openGroupLog(dir string) (*groupLog, error) {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("group-%d", os.Getpid())))
	if err == nil {
		_, err = f.Write(make([]byte, groupLogLength))
	}
	return &groupLog{file: f}, err
}

func (l *groupLog) add(group []byte) error {
	if l.at+int64(len(group)) > groupLogLength {
		l.at = 0
	}
	if _, err := l.file.WriteAt(group, l.at); err != nil {
		return err
	}
	l.at += int64(len(group))
	return unix.Fdatasync(int(l.file.Fd()))
}

// serveFollower has each group on its disk before it acknowledges it.
func serveFollower(l net.Listener, dir string, _ <-chan string) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	log, err := openGroupLog(dir)
	in := bufio.NewReaderSize(conn, 64<<10)
	var head [4]byte
	for err == nil {
		if _, err = io.ReadFull(in, head[:]); err != nil {
			break
		}
		group := make([]byte, binary.LittleEndian.Uint32(head[:]))
		if _, err = io.ReadFull(in, group); err == nil {
			err = log.add(group)
		}
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
	}
	return err
}

// A group is the requests of one write, behind their length, and the answers to them.
type group struct {
	requests []byte
	answers  []groupAnswer
}

type groupAnswer struct {
	conn  net.Conn
	bytes []byte
}

// A groupLeader makes groups, one after the other.
type groupLeader struct {
	copies  [3]chan []byte // requests for each of the three
	durable chan int       // the one of them that has its next group on its disk; -1: one has failed
	more    chan struct{}

	mu   sync.Mutex
	next *group
}

// serveQuorum leads two followers, whose addresses it is told.
func serveQuorum(l net.Listener, dir string, ask <-chan string) error {
	g := &groupLeader{next: new(group), durable: make(chan int, 1), more: make(chan struct{}, 1)}
	log, err := openGroupLog(dir)
	if err != nil {
		return err
	}
	adds := []func([]byte) error{log.add}
	for range 2 {
		conn, err := net.Dial("tcp", <-ask)
		if err != nil {
			return err
		}
		adds = append(adds, func(group []byte) error {
			if _, err := conn.Write(group); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, make([]byte, 1))
			return err
		})
	}
	for i, add := range adds {
		g.copies[i] = make(chan []byte, 256)
		go func() {
			for group := range g.copies[i] {
				if add(group) != nil {
					g.durable <- -1
					return
				}
				g.durable <- i
			}
		}()
	}
	go func() {
		g.lead()
		l.Close()
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = g.read(conn) // ends when the client goes
		}()
	}
}

// read adds the requests of a client that have arrived together to the next group.
func (g *groupLeader) read(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	var requests, answers []byte
	for {
		if len(answers) > 0 && (in.Buffered() < echoHeader || in.Buffered() < frameLength(in)) {
			g.mu.Lock()
			g.next.requests = append(g.next.requests, requests...)
			g.next.answers = append(g.next.answers, groupAnswer{conn, answers})
			g.mu.Unlock()
			requests, answers = requests[:0], nil
			select {
			case g.more <- struct{}{}:
			default:
			}
		}
		head, err := in.Peek(echoHeader)
		if err != nil {
			return err
		}
		frame := make([]byte, binary.LittleEndian.Uint32(head))
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		answer := make([]byte, binary.LittleEndian.Uint32(frame[4:]))
		putFrame(answer, 0, binary.LittleEndian.Uint32(frame[8:]))
		requests, answers = append(requests, frame...), append(answers, answer...)
	}
}

// lead brings one group after the other to a majority, and answers it, until one of the three fails.
func (g *groupLeader) lead() {
	var have [3]int // groups that each of the three has on its disk
	for n := 1; ; {
		<-g.more
		g.mu.Lock()
		now := g.next
		g.next = new(group)
		g.mu.Unlock()
		if len(now.answers) == 0 {
			continue
		}
		copied := binary.LittleEndian.AppendUint32(nil, uint32(len(now.requests)))
		copied = append(copied, now.requests...)
		for _, c := range g.copies {
			c <- copied
		}
		for least := have; ; least = have {
			slices.Sort(least[:])
			if least[1] >= n { // the second best of three is what a majority has
				break
			}
			i := <-g.durable
			if i < 0 {
				return
			}
			have[i]++
		}
		for _, a := range now.answers {
			_, _ = a.conn.Write(a.bytes)
		}
		n++
	}
}
