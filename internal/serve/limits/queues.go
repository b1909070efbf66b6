package limits

import (
	"hash/maphash"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// queues counts waiting claims by path.
type queues struct {
	seed   maphash.Seed
	shards [64]queueShard // by path, so that claims on different paths seldom share a mutex
}

type queueShard struct {
	mu sync.Mutex
	of map[lockkeeper.Path]int
}

func (q *queues) init() {
	q.seed = maphash.MakeSeed()
	for i := range q.shards {
		q.shards[i].of = make(map[lockkeeper.Path]int)
	}
}

func (q *queues) shard(p lockkeeper.Path) *queueShard {
	return &q.shards[maphash.String(q.seed, string(p))%uint64(len(q.shards))]
}

// join counts a claim that waits for all the paths. If one of them has most waiting claims already,
// join counts nothing and returns that path. 0 is no bound.
func (q *queues) join(paths []lockkeeper.Path, most int) (full lockkeeper.Path, ok bool) {
	for i, p := range paths {
		s := q.shard(p)
		s.mu.Lock()
		if most > 0 && s.of[p] >= most {
			s.mu.Unlock()
			q.leave(paths[:i])
			return p, false
		}
		s.of[p]++
		s.mu.Unlock()
	}
	return "", true
}

// leave is the reverse of join.
func (q *queues) leave(paths []lockkeeper.Path) {
	for _, p := range paths {
		s := q.shard(p)
		s.mu.Lock()
		if s.of[p]--; s.of[p] == 0 {
			delete(s.of, p)
		}
		s.mu.Unlock()
	}
}
