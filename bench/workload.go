package main

import (
	"fmt"
	"sync/atomic"
)

// kind is what the clients do.
type kind string

const (
	distinct  kind = "distinct paths" // nobody wants what another has
	batches   kind = "batches"        // many paths of one's own at once
	contended kind = "one path"       // all want the same, again and again
	handoff   kind = "hand-off"       // all want the same, and each keeps it for a moment
)

// workload is one table of the result.
type workload struct {
	Kind      kind   `json:"kind"`
	Clients   int    `json:"clients"`
	Reference string `json:"reference"` // the peer that all are compared with
}

func (w workload) name() string {
	if w.Clients == 1 {
		return fmt.Sprintf("%s, 1 client", w.Kind)
	}
	return fmt.Sprintf("%s, %d clients", w.Kind, w.Clients)
}

// workloads are all that are run.
var workloads = []workload{
	{distinct, 1, echoName},
	{distinct, 16, muxName},
	{distinct, 128, muxName},
	{batches, 1, echoName},
	{batches, 16, echoName},
	{batches, 128, echoName},
	{contended, 128, relayName},
	{handoff, 128, relayName},
}

// ownPaths is how many each worker of distinct paths uses in turn.
const ownPaths = 16

var hotPaths atomic.Int64

// hotPath is a path that nobody has used yet, as long as those of pathsOf.
func hotPath() string { return fmt.Sprintf("bench/contended/path-%05d", hotPaths.Add(1)) }

// pathsOf are the paths of the i-th worker alone. They are as long as paths of
// users are, and equally long.
func pathsOf(i, n int) []string {
	paths := make([]string, n)
	for k := range paths {
		paths[k] = fmt.Sprintf("bench/worker-%05d/path-%04d", i, k)
	}
	return paths
}
