// Package script has the Lua script by which a Redis server takes part in redlock: [Encode] makes
// the call for one request or several, [Decode] reads its answers, and [DecodeMessage] reads what the
// server publishes. The script does what [quorum.Server] does; a test compares both with random requests.
// The servers are Redis from 6.2 on, and Valkey.
//
//	quorum.Request ── Encode ──> EVALSHA ──> script ── replies ──> Decode ────────> quorum.Reply
//	                                           └────── PUBLISH ──> DecodeMessage ─> quorum.Message
//
// A request is executed by the first of these parts that can:
//
//	batch.lua        Claims and Ends of one call: free paths, and paths that nobody waits for. Records
//	                 are read at once before them, and written at once after them.
//	claim.lua        a Claim of one path, free or with a queue
//	end.lua          an End of a vote for one path, which may hand it over
//	the other files  everything
//
// The script first compares the marker of the set, and refuses every other one. All keys begin with
// one prefix, all channels with another, so that an ACL can limit a user to them.
//
// Redis undoes nothing when a script fails. So the script reads and checks every record that a request may
// change before it writes anything for that request: wrong types and foreign bytes lead to an error that
// names the key, in the place of that one reply, and never to a vote.
//
// Lua counts in doubles, which are exact up to 2^53. Encode and Decode refuse numbers above it.
package script
