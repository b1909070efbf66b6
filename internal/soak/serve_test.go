package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// serving is a process that serves an engine to clients.
type serving struct {
	dir     string
	engine  lockkeeper.Engine
	node    *quorumlock.Engine // if the engine is a node of a cluster
	server  *server.Server
	ended   chan error
	address string
}

// serveMemory is the role of a server with locks in memory.
func serveMemory([]string) error {
	s := &serving{engine: memlock.New()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.serve(l, server.Options{})
	return obey(s.do)
}

// serveNode is the role of a node of a cluster, and of its server: args are its folder, its name and a
// token to join with. Without a token it founds a cluster.
func serveNode(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clients, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &serving{dir: args[0]}
	c := quorumlock.Config{Name: args[1], ClientAddress: clients.Addr().String(), Rank: quorumlock.DefaultRank}
	if c.Listen, err = freeAddress(); err != nil {
		return err
	}
	if len(args) < 3 {
		err = quorumlock.Found(s.dir, c, nil)
	} else {
		var token quorumlock.Token
		if token, err = quorumlock.ParseToken(args[2]); err == nil {
			err = quorumlock.Join(ctx, s.dir, token, c)
		}
	}
	if err != nil {
		return err
	}
	if s.node, err = quorumlock.Open(ctx, s.dir, c); err != nil {
		return err
	}
	s.engine = s.node
	s.serve(clients, server.Options{Cluster: s.node})
	return obey(s.do)
}

// freeAddress returns an address of this computer that hardly anybody else uses.
func freeAddress() (string, error) {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *serving) serve(l net.Listener, o server.Options) {
	s.server, s.ended, s.address = server.New(s.engine, o), make(chan error, 1), l.Addr().String()
	go func() { s.ended <- s.server.Serve(l) }()
}

func (s *serving) do(command string) (any, error) {
	verb, argument, _ := strings.Cut(command, " ")
	switch verb {
	case "address":
		return s.address, nil
	case "token":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		token, err := s.node.CreateToken(ctx, quorumlock.DefaultTokenLife)
		return token.String(), err
	case "await":
		voters, err := strconv.Atoi(argument)
		return nil, joined(err, s.await(voters))
	case "sample":
		p, err := Self()
		if err == nil && s.dir != "" {
			p.Disk, err = Folder(s.dir)
		}
		return p, err
	case "end":
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.server.Shutdown(now) // its clients have left
		return nil, joined(<-s.ended, s.engine.Close())
	}
	return nil, errors.New("unknown command")
}

// await returns when the cluster has so many voters.
func (s *serving) await(voters int) error {
	late := time.After(time.Minute)
	for {
		status := s.node.Cluster()
		if status.State == lockkeeper.NodeReady && status.Live == voters && len(status.Alarms) == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			return fmt.Errorf("the cluster has not %d voters: %+v", voters, status)
		}
	}
}
