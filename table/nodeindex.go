package table

import (
	"hash/maphash"
	"iter"
	"math/bits"

	"github.com/lockkeeper/lockkeeper"
)

// A nodeIndex finds nodes by their paths. It is a hash table with chains, whose links are in the nodes,
// and grows and shrinks by linear hashing (Litwin, Linear Hashing, 1980): with m the largest power of two
// up to the number of buckets, a node is in the bucket
//
//	hash mod 2m     if there is such a bucket
//	hash mod m      otherwise
//
// So one more bucket takes its nodes from one other bucket, and no step pays for the growth of a large
// table. There are as many buckets as nodes: a node takes 8 bytes here. Go's map has each path and a
// reserve too, and takes five times as much.
type nodeIndex struct {
	length   int
	buckets  int
	segments [][]*node // the first nodes of the chains, bucketsOfSegment in each segment but the last
}

const bucketsOfSegment = 256

// pathSeed is secret, so that nobody can choose paths which all are in one bucket.
var pathSeed = maphash.MakeSeed()

// bucket returns the bucket of a path; there must be buckets.
func (x *nodeIndex) bucket(path lockkeeper.Path) **node {
	hash := maphash.String(pathSeed, string(path))
	m := uint64(1) << (bits.Len(uint(x.buckets)) - 1)
	i := hash & (2*m - 1)
	if i >= uint64(x.buckets) {
		i &= m - 1
	}
	return x.at(int(i))
}

func (x *nodeIndex) at(i int) **node {
	return &x.segments[i/bucketsOfSegment][i%bucketsOfSegment]
}

// find returns the node of a path; nil if there is none.
func (x *nodeIndex) find(path lockkeeper.Path) *node {
	if x.buckets == 0 {
		return nil
	}
	n := *x.bucket(path)
	for n != nil && n.path != path {
		n = n.link
	}
	return n
}

// add adds n; there must be no node of its path.
func (x *nodeIndex) add(n *node) {
	if x.length++; x.length > x.buckets {
		x.grow()
	}
	n.link = nil
	x.put(n)
}

// remove removes n, which must be there.
func (x *nodeIndex) remove(n *node) {
	b := x.bucket(n.path)
	for *b != n {
		b = &(*b).link
	}
	*b, n.link = n.link, nil
	x.length--
	for x.length < x.buckets/2 { // at most twice
		x.shrink()
	}
}

// grow adds a bucket, and moves the nodes that belong there.
func (x *nodeIndex) grow() {
	if last := len(x.segments) - 1; last < 0 || len(x.segments[last]) == bucketsOfSegment {
		room := bucketsOfSegment
		if last < 0 {
			room = 1
		}
		x.segments = append(x.segments, make([]*node, 0, room))
	}
	last := &x.segments[len(x.segments)-1]
	*last = append(*last, nil)
	if x.buckets++; x.buckets > 1 {
		x.empty(x.at(twin(x.buckets - 1)))
	}
}

// shrink removes the last bucket, and moves its nodes to where they belong then.
func (x *nodeIndex) shrink() {
	x.buckets--
	x.empty(x.at(x.buckets))
	last := len(x.segments) - 1
	if x.segments[last] = x.segments[last][:x.buckets%bucketsOfSegment]; len(x.segments[last]) == 0 {
		x.segments[last] = nil
		x.segments = x.segments[:last]
	}
}

// twin returns the bucket that has the nodes of the last bucket, i > 0, before that is added.
func twin(i int) int { return i - 1<<(bits.Len(uint(i))-1) }

// empty moves the nodes of a bucket to where they belong now, perhaps to the same one.
func (x *nodeIndex) empty(from **node) {
	chain := *from
	*from = nil
	x.put(chain)
}

// put puts the nodes of a chain where they belong.
func (x *nodeIndex) put(chain *node) {
	for chain != nil {
		n := chain
		chain = n.link
		b := x.bucket(n.path)
		n.link, *b = *b, n
	}
}

// all yields all nodes with their paths, in any order.
func (x *nodeIndex) all() iter.Seq2[lockkeeper.Path, *node] {
	return func(yield func(lockkeeper.Path, *node) bool) {
		for _, segment := range x.segments {
			for _, n := range segment {
				for ; n != nil; n = n.link {
					if !yield(n.path, n) {
						return
					}
				}
			}
		}
	}
}
