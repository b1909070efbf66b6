// Package transactions is an example: work in steps, of which each runs only while a lock is held,
// and which may lose the lock to a more urgent transaction in between. It uses nothing but a
// [lockkeeper.Client], so it runs on every engine with the features that its requests need. Copy it
// and change it.
//
// After a loss the transaction itself decides what becomes of it, each time with new conditions for
// its next claim if it wants:
//
//	          granted                     all steps are done
//	waiting ───────────► holding ─────────────────────────────► result
//	   ▲                    │  the lock is lost, or the holder was asked to yield and did
//	   │                    ▼
//	   │ Resume:  from the step that is not done      Reject: the loss, or another error
//	   │ Restart: from the first step            OnLoss ─────────────────────────► error
//	   └ Replace: another transaction ◄─────────────┘
//
// A step counts as done if it returned without an error and the lock was still held then. So a step
// that lost its lock runs again after Resume: it must bear that. A resource that must not be changed
// by a step that is too late compares [lockkeeper.Hold.Fence].
//
// A transaction yields between two steps, never within one, and after each grant it does at least
// one step before it yields. A step that takes long can look at [lockkeeper.Hold.YieldAsked]. If the
// claim that asks has a bound (WithStealAfter), the engine ends the hold at that bound, and the
// context of the step ends before that.
//
// Transactions nest. In the context of a step, a transaction on a path that the step's transaction
// holds enters that hold: several of them run at the same time, and only the outer one yields. A
// transaction on another path, or of another client, takes its own lock. Its steps end with the
// context of the step around it.
package transactions

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
)

// A Step gets the result of the step before, and returns its own. Its context ends when the lock is
// lost or the caller gives up, with the cause.
type Step[T any] func(ctx context.Context, hold *lockkeeper.Hold, before T) (T, error)

// A Transaction is steps under one lock.
type Transaction[T any] struct {
	Requests []lockkeeper.Request // the lock: its targets, and conditions such as a priority
	Start    T                    // what the first step gets
	Steps    []Step[T]            // the result of the last one is that of the transaction

	// OnLoss decides what becomes of the transaction after it lost its lock. loss is an
	// ErrLost with the reason; if the transaction yielded, the reason is that of the request to
	// yield. nil stands for Reject(nil).
	OnLoss func(loss error) Decision[T]
}

// A Decision is the answer of OnLoss: Resume, Restart, Replace or Reject. The zero Decision is none,
// and Run returns ErrUndecided.
type Decision[T any] struct {
	what     kind
	requests []lockkeeper.Request
	with     Transaction[T]
	err      error
}

type kind uint8

const (
	undecided kind = iota
	resume
	restart
	replace
	reject
)

// ErrUndecided is the error of a transaction whose OnLoss decided nothing.
var ErrUndecided = errors.New("transactions: the lock was lost, and OnLoss decided nothing: " +
	"return Resume, Restart, Replace or Reject")

// Resume goes on with the first step that is not done, once the lock is held again. The requests
// are added to those of the transaction, and of two conditions of one kind the later counts.
func Resume[T any](requests ...lockkeeper.Request) Decision[T] {
	return Decision[T]{what: resume, requests: requests}
}

// Restart begins with the first step again. The requests are as for Resume.
func Restart[T any](requests ...lockkeeper.Request) Decision[T] {
	return Decision[T]{what: restart, requests: requests}
}

// Replace runs another transaction instead. If it has no Requests, it has those of the transaction
// that it replaces. The requests are added to them.
func Replace[T any](with Transaction[T], requests ...lockkeeper.Request) Decision[T] {
	return Decision[T]{what: replace, with: with, requests: requests}
}

// Reject ends the transaction with err; nil stands for the loss.
func Reject[T any](err error) Decision[T] {
	return Decision[T]{what: reject, err: err}
}
