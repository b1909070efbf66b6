// Package history records what happened to locks, and judges it.
//
// A [Recorder] collects [Event]s of many goroutines; processes write theirs as
// JSON lines, which [Read] and [Merge] bring together. [Judge] then says what
// was wrong, without knowing anything of the engine that was used: it looks at
// what callers saw, and when.
//
// # What is judged
//
// A hold is certain from the moment when its grant came back until the moment
// when its release was called or its holder knew that it was lost. Whatever the
// engine did, the grant itself happened between the request and its answer.
//
//   - Exclusion: no two certain holds that are incompatible, over modes and
//     hierarchy (R2, R3), overlap.
//   - Permits: the units held for certain are never above the largest limit of
//     those who hold them; no grant exceeds its own limit; no slot is given twice
//     (R7).
//   - Fences: no fence is given twice; a grant that came back before another one
//     was asked for has the smaller fence, and so has the earlier of two
//     incompatible holds (R13).
//   - Order, where the engine claims it: a claim of no lower priority that was known
//     to wait before another was asked for, and that is in the other's way, goes
//     first (R4, R5).
//   - Answers: every request gets exactly one final answer (R16, R17).
//   - Told in time: a holder knew of its loss before the next incompatible grant
//     came back, unless that grant says that it is unconfirmed (R12).
//   - Linearizability of locks, permits and guarded counters, path by path.
package history
