// Package membership decides which Redis servers belong to a set, and which life of each. It is
// conditions 1 and 2 of the protocol that the package comment of engine/redlock describes: a set is
// made once, and a server that lost its data stays out until nothing depends on the lost data.
//
// Each server keeps a record in one hash:
//
//	gen      its generation: a number that no other life of a server has
//	run_id   the process that this record was last verified with (INFO server)
//	durable  1 if the server then wrote each change to disk before it answered: it must go on so
//	n index names   the number of servers, the place of this one, the addresses of all
//	marker   "SETID:g1.g2.g3": the set, and the generation of every server. Only a member has it
//	out      of a server that lost its data: when it may become a member, on its own clock
//
// A server moves through these states:
//
//	        tag                 commit (all servers tagged; first use)
//	empty ──────> tagged ─────────────────────────────────────────────────> member
//	  ^             │ barrier, then ends of a majority      join (out passed)  │
//	  │             └──────────────────────> out ──────────────────────────────┤
//	  └── the record is gone, or it has another run_id and was not durable, ────┘
//	      or it was durable, and the server is not set to be any more
//
// First use. Every party that finds a server empty tags it; the first tag stays. When all servers
// answer and all are tagged, the set's id is a hash of their generations. So parties that do this at
// the same time write the same markers, and a party that stops in the middle is continued by the
// next. A tag of a slow party on a server that has since lost its data is a new generation, and
// belongs to no marker.
//
// Loss. A server whose generation is not the one that the markers of the others state has lost its
// data. A party tags it with a higher generation and raises this generation in the markers of the
// members (merge: the higher generation of each server wins). This is a barrier: each script that
// uses data compares the whole marker, so a member gives no promise anymore to a party that still
// counts promises and votes of the lost life. When the markers of a majority of members have the
// generation, a party reads at that majority the time until the last session ends, and the highest
// fence. The server takes part again when that time has passed, with that fence as its floor.
//
// A restart is noticed by the run id. A restarted server that was durable before, and is durable now,
// has lost nothing: it began with its append-only file. If it is not durable now, it began with an
// older snapshot, or will do so next time.
package membership
