// Package history records what the clients of a lock engine observe, and judges the record.
//
// # Use
//
// A [Recorder] collects the [Event] values of many goroutines:
//
//	recorder := history.NewRecorder(nil, nil)
//	recorder.Add(history.Event{Kind: history.Ask, Client: "a", Claim: "a.1", Targets: targets})
//	hold, err := client.Acquire(ctx, …)
//	recorder.Add(history.Event{Kind: history.Granted, Client: "a", Claim: "a.1", Fence: hold.Fence(),
//		Grants: hold.Grants()})
//	…
//	for _, fault := range history.Judge(recorder.Events(), history.RulesOf(engine.Guarantees())) {
//		t.Error(fault)
//	}
//
// Processes write their events as JSON lines, for [Read] and [Merge]. [Judge] returns one line for
// each fault. It knows nothing of the engine: it uses only what callers observed, and when.
//
// # Certain holds
//
// A client cannot observe the instant of a grant, which is between the request and its answer. So
// the judge uses the interval in which a hold is certain:
//
//	Ask ───────── Granted ═════════ certain ═════════ Release, Lost or Gone ───────── Released
//	     granted here                                                        ended here
//
// # Places in line
//
// Order is judged only between claims whose places in line are certain. The engine decides a place
// when a request arrives, which is after its Sent and before its answer:
//
//	a: Ask ─── Sent ─── (its place) ─── Waits                                     Granted, fence 8
//	b:                                         Ask ─── Sent ─── (its place) ─── Granted, fence 7
//
// A client sends a waiting claim again if its session ended at the engine, and the claim then gets a
// new place. So a Sent makes every earlier Waits of the claim void. Requests and answers may also
// overtake each other, so a wait without a grant is not judged: the engine may have granted the
// claim and ended it again, while its client was about to give up, without a word that reached it. A
// claim without a Sent, in a record that has none, counts as sent when it was asked for.
//
// # Judgements
//
//   - Exclusion: certain intervals of two holds that exclude each other, by modes and hierarchy (R2,
//     R3), do not overlap.
//   - Permits: the units certainly held are at most the largest limit of their holders; no grant
//     exceeds its own limit; no slot is held twice (R7).
//   - Fences, if the engine guarantees them: no fence occurs twice. If one grant was answered before
//     another was requested, its fence is lower; of two holds that exclude each other, the earlier one
//     has the lower fence (R13). If fences rise on each path by itself, this is judged only between
//     grants whose paths meet.
//   - Order, if the engine guarantees it: if a client knew that claim a waits before another client
//     sent claim b, and a conflicts with b and has at least its priority, the engine does not grant
//     b before it grants a (R4, R5). See "Places in line".
//   - Answers: every request gets exactly one final answer (R16, R17).
//   - Notified in time: a holder that lost its hold knew so before the engine answered the next
//     conflicting grant, unless that grant is marked unconfirmed (R12).
//   - Linearizability of locks, permits and guarded counters, for each path.
package history
