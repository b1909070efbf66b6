package server

import "sync"

// shares is how much of the server each identity uses. Where nobody has to say who
// they are, all would be one, so it counts nothing.
type shares struct {
	mu sync.Mutex
	of map[string]share
}

type share struct{ connections, broad int }

// connect reports whether the identity may have one more connection, and counts it.
func (ss *shares) connect(identity string, most int) bool {
	return ss.change(identity, func(s *share) bool { s.connections++; return s.connections <= most })
}

func (ss *shares) disconnect(identity string) {
	ss.change(identity, func(s *share) bool { s.connections--; return true })
}

// list reports whether the identity may have one more broad list, and counts it.
func (ss *shares) list(identity string) bool {
	return ss.change(identity, func(s *share) bool { s.broad++; return s.broad <= maxBroadEach })
}

func (ss *shares) unlist(identity string) {
	ss.change(identity, func(s *share) bool { s.broad--; return true })
}

// change has do change what the identity uses, unless it reports false.
func (ss *shares) change(identity string, do func(*share) bool) bool {
	if identity == "" {
		return true
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.of[identity]
	if !do(&s) {
		return false
	}
	if s == (share{}) {
		delete(ss.of, identity)
	} else {
		ss.of[identity] = s
	}
	return true
}
