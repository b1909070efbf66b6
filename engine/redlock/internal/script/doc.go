// Package script has the Lua scripts by which a Redis server takes part in redlock: [Encode] makes
// the call for a request, [Decode] reads its answer, and [DecodeMessage] reads what the server
// publishes. A script does what [quorum.Server] does; a test compares both with random requests.
// The servers are Redis from 6.2 on, and Valkey.
//
//	quorum.Request ── Encode ──> EVALSHA ──> script ── reply ────> Decode ────────> quorum.Reply
//	                                           └────── PUBLISH ──> DecodeMessage ─> quorum.Message
//
// Each script first compares the marker of the set, and refuses every other one. All keys begin with
// one prefix, all channels with another, so that an ACL can limit a user to them.
//
// Redis undoes nothing when a script fails. So a script reads and checks every record that it may
// change before its first write: wrong types and foreign bytes lead to an error that names the key,
// never to a vote.
//
// Lua counts in doubles, which are exact up to 2^53. Encode and Decode refuse numbers above it.
package script
