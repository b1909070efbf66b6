// Package httpapi is Lockkeeper's API for HTTP and JSON.
//
// # Claims
//
// The resource is the claim. One POST takes a lock: the server opens a session with that one claim,
// and the id of the session contains what a server needs to renew it. Locks depend on no connection
// and on no process: any server of the engine can answer for any claim, several at the same time.
// The states of such a session are in internal/solo.
//
// # Durations
//
// All times are durations. The ttl of an answer and the time left until an enforced end count from
// when the server received the request:
//
//	ttl  = renewal sent - request received + TTL that the engine promised
//	left = status requested - request received + time left in that status
//
// So a client may count from when it sent the request, and never believes in a hold for longer than
// the engine promised (R12). It should stop a little earlier, because its clock may differ. While a
// request is open, the server renews the claim; therefore the ttl of a late answer is longer than
// that of the claim.
//
// # Lost answers
//
// If a client goes away before it has its answer, the server ends the claim at once. With an
// Idempotency-Key the claim lives for its TTL instead, and a repeat of the request with the same
// key finds it; the key is remembered for a TTL after the claim has ended. If a server dies, its
// claims end with their TTL.
//
// A client that renews with change=N states that it has seen the answer with that change. Only then
// does the engine assume that the client knows of an announced end (Key.Acked). Grants that follow
// the end of a hold whose client never states a change may be marked as unconfirmed.
package httpapi
