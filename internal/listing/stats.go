package listing

import (
	"cmp"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// MaxRows bounds the paths and the owners that a [Stats] names.
const MaxRows = 10_000

// Stats are counts of claims at one moment. In JSON, durations are seconds.
type Stats struct {
	Held         int                `json:"held"`
	Waiting      int                `json:"waiting"`
	Frozen       int                `json:"frozen"`   // paths
	Sessions     int                `json:"sessions"` // with claims
	LongestQueue *Queue             `json:"longest_queue,omitempty"`
	LongestHold  *lockkeeper.Status `json:"longest_hold,omitempty"`
	LongestWait  *lockkeeper.Status `json:"longest_wait,omitempty"`
	Paths        []Count            `json:"paths"`  // the longest queue first, at most MaxRows
	Owners       []Count            `json:"owners"` // the owner of most holds first, at most MaxRows
}

// Queue is the queue of the waiting claims at one path.
type Queue struct {
	Path    lockkeeper.Path   `json:"path"`
	Waiting int               `json:"waiting"`
	First   lockkeeper.Status `json:"first"`
}

// Count is the number of claims that hold and wait at one path, or of one owner.
type Count struct {
	Path    lockkeeper.Path `json:"path,omitempty"`
	As      string          `json:"as,omitempty"`
	Held    int             `json:"held"`
	Waiting int             `json:"waiting"`
}

// StatsOf counts the claims in a list.
func StatsOf(all []lockkeeper.Status) *Stats {
	s := &Stats{Paths: []Count{}, Owners: []Count{}}
	paths, owners, sessions := map[lockkeeper.Path]*Count{}, map[string]*Count{}, map[string]bool{}
	first := map[lockkeeper.Path]lockkeeper.Status{}
	for _, st := range all {
		if st.State == lockkeeper.Freezing {
			s.Frozen++
			continue
		}
		sessions[st.Ref.Session] = true
		name := OwnerName(st.Label, st.Ref)
		if owners[name] == nil {
			owners[name] = &Count{As: name}
		}
		s.add(st, owners[name])
		for _, g := range st.Grants {
			c := paths[g.Path]
			if c == nil {
				c = &Count{Path: g.Path}
				paths[g.Path] = c
			}
			c.add(st)
			if _, known := first[g.Path]; !known && Waits(st) {
				first[g.Path] = st
			}
		}
	}
	s.Sessions = len(sessions)
	s.rank(paths, owners)
	if len(s.Paths) > 0 && s.Paths[0].Waiting > 0 {
		top := s.Paths[0]
		s.LongestQueue = &Queue{top.Path, top.Waiting, first[top.Path]}
	}
	return s
}

// rank sorts and bounds the counts.
func (s *Stats) rank(paths map[lockkeeper.Path]*Count, owners map[string]*Count) {
	for _, c := range paths {
		s.Paths = append(s.Paths, *c)
	}
	for _, c := range owners {
		s.Owners = append(s.Owners, *c)
	}
	slices.SortFunc(s.Paths, func(a, b Count) int {
		return cmp.Or(b.Waiting-a.Waiting, b.Held-a.Held, cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(s.Owners, func(a, b Count) int {
		return cmp.Or(b.Held-a.Held, b.Waiting-a.Waiting, cmp.Compare(a.As, b.As))
	})
	s.Paths, s.Owners = s.Paths[:min(len(s.Paths), MaxRows)], s.Owners[:min(len(s.Owners), MaxRows)]
}

// add counts a claim, and keeps it if it is the oldest so far.
func (s *Stats) add(st lockkeeper.Status, owner *Count) {
	owner.add(st)
	if st.State == lockkeeper.Held {
		s.Held++
		if s.LongestHold == nil || st.Age > s.LongestHold.Age {
			s.LongestHold = &st
		}
	}
	if Waits(st) {
		s.Waiting++
	}
	if st.State == lockkeeper.Waiting && (s.LongestWait == nil || st.Age > s.LongestWait.Age) {
		s.LongestWait = &st
	}
}

func (c *Count) add(st lockkeeper.Status) {
	if st.State == lockkeeper.Held {
		c.Held++
	}
	if Waits(st) {
		c.Waiting++
	}
}
