package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/lockkeeper/lockkeeper"
)

// lkCluster is a cluster of three nodes of ours, each a process of "lk serve" on the disk of the run's
// folder, with mutual TLS between them. Peers share it: only one of them is at work at a time. The first
// peer that starts it does so, and the first that stops it too.
type lkCluster struct {
	lk      string // the program
	running []*process
}

// clusterNodes are the names of the nodes. The first one leads: a leader stays until it fails.
var clusterNodes = []string{"one", "two", "three"}

func (c *lkCluster) start(ctx context.Context, at place) error {
	if c.running != nil {
		return nil
	}
	c.lk = at.file("lk")
	if err := build(ctx, "..", c.lk, "./cmd/lk"); err != nil {
		return err
	}
	ports, err := freePorts(2 * len(clusterNodes))
	if err != nil {
		return err
	}
	for i, name := range clusterNodes {
		if err := c.startNode(ctx, at, name, "127.0.0.1:"+ports[2*i], "127.0.0.1:"+ports[2*i+1]); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts a node, and returns when it is ready; the last one, when all nodes vote. The first node
// makes the cluster, and the others join it.
func (c *lkCluster) startNode(ctx context.Context, at place, name, peers, listen string) error {
	folder := at.file(name)
	serve := []string{"serve", "--data", folder, "--peers", peers, "--listen", listen, "--insecure"}
	if len(c.running) == 0 {
		if _, err := c.tell(ctx, "init", "--data", folder, "--name", name, "--peers", peers); err != nil {
			return err
		}
	} else {
		token := at.file(name + ".token")
		if _, err := c.tell(ctx, "token", "--data", at.file(clusterNodes[0]), "--out", token); err != nil {
			return err
		}
		serve = append(serve, "--join", token, "--name", name)
	}
	node, err := launch(exec.Command(c.lk, serve...), at.log, false)
	if err != nil {
		return err
	}
	node.name, node.addr = "the node "+name, listen
	c.running = append(c.running, node)
	last := len(c.running) == len(clusterNodes) // then all vote; of two nodes one does
	return node.ready(ctx, func(ctx context.Context) error {
		out, err := c.tell(ctx, "ls", "--json", "--data", folder)
		var s lockkeeper.ClusterStatus
		if err == nil {
			err = json.Unmarshal(out, &s)
		}
		if err == nil && (s.State != lockkeeper.NodeReady || last && s.Live < len(clusterNodes)) {
			err = errors.New(string(out))
		}
		return err
	})
}

// tell runs a verb of lk cluster.
func (c *lkCluster) tell(ctx context.Context, words ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, c.lk, append([]string{"cluster"}, words...)...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("lk cluster %s: %w\n%s", words[0], err, failed.Stderr)
	}
	return out, err
}

func (c *lkCluster) server() *process { return &process{name: "lk cluster", parts: c.running} }

func (c *lkCluster) stop() {
	for _, node := range c.running {
		node.stop()
	}
	c.running = nil
}
