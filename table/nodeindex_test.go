package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// TestNodeIndex: an index finds exactly its nodes while it grows and shrinks, and has at most as many
// buckets as it had nodes, and twice as many as it has.
func TestNodeIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 0))
	var x nodeIndex
	want := make(map[lockkeeper.Path]*node)
	check := func() {
		t.Helper()
		buckets := 0
		for _, segment := range x.segments {
			buckets += len(segment)
		}
		if x.length != len(want) || x.buckets != buckets || buckets > max(2*x.length+1, 1) || x.length > buckets {
			t.Fatalf("%d nodes in %d buckets, counted %d and %d", x.length, x.buckets, len(want), buckets)
		}
		count := 0
		for path, n := range x.all() {
			if count++; want[path] != n {
				t.Fatalf("node %s is there, want another one or none", path)
			}
		}
		if count != len(want) {
			t.Fatalf("it yields %d nodes, want %d", count, len(want))
		}
	}
	for _, most := range []int{3, 3000, 0, 700, 1, 257, 0} {
		for i := 0; len(want) != most || i < 100; i++ {
			path := lockkeeper.Path(fmt.Sprintf("db/%d", random.IntN(5000)))
			n := x.find(path)
			if n != want[path] {
				t.Fatalf("%s is found: %t, want %t", path, n != nil, want[path] != nil)
			}
			switch {
			case n != nil && len(want) >= most:
				x.remove(n)
				delete(want, path)
			case n == nil && len(want) < most:
				n = &node{path: path}
				x.add(n)
				want[path] = n
			}
			if i%200 == 0 {
				check()
			}
		}
		check()
	}
}
