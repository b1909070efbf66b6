// Package httpapi is Lockkeeper for whoever speaks HTTP and JSON.
//
// The resource is the claim. One POST takes a lock: the server makes a session for
// it, in which it is the only claim, and whose id says what a server must know to
// renew it. Nothing about locks depends on a connection or on this process: any
// server of the same engine answers for any claim, also several at a time.
//
// # What is left
//
// All times are durations. The ttl of an answer, and what is left until an enforced
// end, count from when the server received the request, so a client may count from
// when it sent it: what it then believes is never longer than what the engine
// promised (R12). It should stop a little before, since its clock is another one.
// While a request is open the server renews the claim; so the ttl of an answer that
// came late is longer than that of the claim.
//
// # What gets lost
//
// A claim of which the client can't know, since it went away before it was answered,
// is given back at once. If the request had an Idempotency-Key, the claim lives for
// its TTL, and the same request with the same key finds it; such a key is remembered
// for a TTL after the claim has ended. A server that dies leaves claims that end with
// their TTL.
//
// Whoever renews says with change=N that it has seen the answer with that change.
// Only then does the engine count on the client knowing of an end that was told
// (Key.Acked): a client that never says so may see later grants marked unconfirmed.
package httpapi
