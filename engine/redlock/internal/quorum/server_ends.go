package quorum

import (
	"cmp"
	"slices"
	"strings"
)

// Bounds of what servers keep for followers.
const (
	// MaxEnds is how many ends a server keeps: the latest ones.
	MaxEnds = 1000

	// FollowedFor is how long a server keeps ends after a List that asked for them. So it costs nothing
	// while nobody follows.
	FollowedFor Micros = 5_000_000

	// EndsShown is the age at which an end is not listed any more. Until then every reader sees it in
	// several reads: the servers end a claim one after the other, and a majority of ends counts.
	EndsShown Micros = 10_000_000
)

// keepEnd adds the end of c to the latest ends, if somebody follows.
func (s *Server) keepEnd(c *serverClaim) {
	if s.last >= s.followed || c.want.Paths == nil {
		return
	}
	s.ends = append(s.ends, EndRecord{At: s.last, Ref: c.ref, Reason: c.reason, Text: c.text})
	slices.SortFunc(s.ends, compareEnds)
	s.ends = slices.Compact(s.ends)
	s.ends = s.ends[max(0, len(s.ends)-MaxEnds):]
}

func compareEnds(a, b EndRecord) int {
	return cmp.Or(
		cmp.Compare(a.At, b.At),
		strings.Compare(a.Ref.Session, b.Ref.Session),
		cmp.Compare(a.Ref.ID, b.Ref.ID),
		cmp.Compare(a.Reason, b.Reason),
		strings.Compare(a.Text, b.Text),
	)
}

// listEnds answers the part of a List that is for followers. A claim that ended in this request may be
// forgotten already, so the reply has its end too.
func (s *Server) listEnds(r *Request, reply *Reply) {
	if !r.Ends {
		return
	}
	s.followed = s.last + FollowedFor
	if reply.More {
		return
	}
	for _, e := range s.ends {
		if e.At >= s.last-EndsShown && (r.Only == "" || e.Ref.Session == r.Only) {
			reply.Ends = append(reply.Ends, e)
		}
	}
}
