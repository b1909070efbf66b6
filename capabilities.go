package lockkeeper

import (
	"context"
	"errors"
	"os"
	"time"
)

// The optional abilities of engines. An engine has an ability by implementing its interface;
// callers assert the interface on the engine that Open returned, because an engine that wraps
// another one, such as a traced engine, has only the methods of [Engine].

// An Examiner is an [Engine] that can check its own set-up. Examine changes nothing that a user
// of the engine could notice. It reports every check, passed ones too, in a fixed order. A check
// that it can't make is a finding, not an error.
type Examiner interface {
	Examine(ctx context.Context) []Finding
}

// A Noticer is an [Engine] that may have found problems when it was opened. It works in spite of
// them; a person should look at each.
type Noticer interface {
	Notices() []Finding
}

// A RefusalNotifier is an [Engine] that knows when it begins to refuse claims because it can't
// make them durable, such as on a full disk, and when it accepts claims again. It calls changed
// at both moments. changed must return quickly. It replaces the function given before.
type RefusalNotifier interface {
	NotifyRefusal(changed func())
}

// A CommitReporter is an [Engine] that makes calls durable in groups. It calls report after every
// commit, with the number of calls in it and its duration. report must return quickly and may be
// called by several goroutines. ReportCommits is called before the engine is used.
type CommitReporter interface {
	ReportCommits(report func(calls int, took time.Duration))
}

// A GroupCommitter is an [Engine] that decides calls out of memory and makes the answers durable in
// groups. A caller that has many calls, such as a server, needs no goroutine for each: the methods
// below are those of Engine, but they do not wait. They return the decision, and the [Commit] that
// makes it durable. Commits end in the order in which they were returned.
//
//	Begin… ─┬─ ErrNotBegun ──────> nothing has happened: call the method of Engine
//	        ├─ no commit ────────> the decision is the answer
//	        └─ commit ── Done ─┬─> Finish returns nil: the decision is the answer
//	                           └─> Finish returns an error: that is the answer
//
// A decision is a status, a lease, or a refusal. Nobody may learn of it before its commit has ended,
// because a crash can undo it until then. ctx has no effect after the method has returned.
type GroupCommitter interface {
	// BeginOpen opens a session together with its first claim: an Attach by which the session begins,
	// and a Claim under the key of its lease. No other call comes between the two, and the claim
	// acknowledges the lease, which showed no other claim. BeginOpen returns that lease, with the
	// status of the claim added to Lease.Claims.
	//
	// A refusal leaves neither the claim nor the session. If the session is open, BeginOpen changes
	// nothing and returns the ErrSession of an Attach without an epoch; s.Epoch has no effect. A crash
	// before the commit has ended can leave the session without the claim; then it ends with its TTL.
	BeginOpen(ctx context.Context, s Session, w Want, notify func([]Status)) (Lease, Commit, error)
	BeginClaim(ctx context.Context, k Key, w Want) (Status, Commit, error)
	BeginRenew(ctx context.Context, k Key) (Lease, Commit, error)
	BeginEnd(ctx context.Context, k Key, e Ending) (Commit, error)
	// BeginLeave is BeginEnd with Leave. The status is that which the session's claim id had before,
	// without the reasons why it waits; its State is 0 if the engine did not know the claim. It has a
	// commit if the claim had ended and that end is not durable yet.
	BeginLeave(ctx context.Context, k Key, id uint64) (Status, Commit, error)
}

// A Commit makes one decision of a [GroupCommitter] durable.
type Commit interface {
	// Done is closed when the commit has ended. Every commit ends at last, though not before a full
	// disk has room again.
	Done() <-chan struct{}
	// Finish returns nil if the decision is durable, and else an ErrUnavailable. The caller calls it
	// once, after the commit has ended or when it stops waiting for that.
	Finish() error
}

// ErrNotBegun is what the methods of a [GroupCommitter] return if the call would have to wait for
// more than a commit. It is never the answer to a user.
var ErrNotBegun = errors.New("the call would have to wait")

// A Starter is an [Engine] that can't answer at once, such as a node of a cluster. A caller that has
// many calls, such as a server, needs no goroutine for each: the methods below are those of Engine, but
// they do not wait. They pass the answer to a function.
//
//	Start… ─┬─ false ──> nothing has happened, and answer is not called: call the method of Engine
//	        └─ true ───> answer is called once, maybe before Start… returns
//
// Answers come in any order, from any goroutine. answer must return quickly and must not call the
// engine. ctx has no effect after the method has returned: a call is answered even if nobody waits for
// it.
type Starter interface {
	StartClaim(ctx context.Context, k Key, w Want, answer func(Status, error)) bool
	StartEnd(ctx context.Context, k Key, e Ending, answer func(error)) bool
}

// A Suspender is an [Engine] for which others have to wait while it makes a call, such as one that
// writes to a file that others write to, too. Suspend returns when it makes none, or after a second;
// then it begins none until resume is called. A process that is about to stop itself, as for Ctrl-Z,
// calls it: others would wait until it is continued.
type Suspender interface {
	Suspend() (resume func())
}

// A RepeatReporter is an [Engine] that repeats transactions that its database could not complete.
// It calls report before every repetition, with the reason in a few fixed words. report must
// return quickly and may be called by several goroutines. ReportRepeats is called before the engine is
// used.
type RepeatReporter interface {
	ReportRepeats(report func(why string))
}

// A HandshakeReporter is an [Engine] that measures polite steals: from the moment when the holders
// had been asked to yield until the thief was granted because they released. It calls report for
// each. report must return quickly and may be called by several goroutines. ReportHandshakes is called
// before the engine is used.
type HandshakeReporter interface {
	ReportHandshakes(report func(took time.Duration))
}

// An OverdueReporter is an [Engine] whose sessions may outlast their TTL, because something else,
// such as a lock in its database, keeps it from ending them. Overdue returns for how long the most
// overdue session has been past its end; 0 if none is. It queries the store of the claims.
type OverdueReporter interface {
	Overdue(ctx context.Context) (time.Duration, error)
}

// A ProcessWatcher is an [Engine] that learns from the kernel when the last process of a session
// has ended. SessionFile returns the open file by which it learns that; nil if the session has
// none. A child process that inherits the file keeps the session alive after its parent was
// killed, for at most the TTL. The file belongs to the engine: the caller must not close it.
type ProcessWatcher interface {
	SessionFile(session string) *os.File
}

// A ClusterNode is an [Engine] that is one node of a cluster. All nodes keep the same claims, so a
// client that goes from one node to another keeps its sessions, holds and positions.
type ClusterNode interface {
	// Nodes returns what clients have to know of the cluster, and a channel that is closed when that
	// has changed. It returns at once.
	Nodes() (ClusterNodes, <-chan struct{})
	// Cluster returns the cluster as this node knows it, for operators. It returns at once.
	Cluster() ClusterStatus
}

// ClusterNodes is what a node of a cluster states to its clients.
type ClusterNodes struct {
	// ID is that of the cluster. It never changes, and no other cluster has it. By it a client knows
	// that an address still leads to its cluster.
	ID string
	// Addresses are those of all nodes for clients, with this one: "HOST:PORT". A server states at
	// most 64 of them, and none that a client could not dial.
	Addresses []string
	Self      string // which of the addresses is this node's; "" if none is
	Suspended string // why this node can perform no calls at present; "" if it can
	Outage    bool   // Suspended for longer than an election takes, so that nobody expects an end soon
	// QuorumLost: it is Suspended because no leader of the cluster is in contact with it. Otherwise the cause
	// is its own, such as its disk, and the cluster may go on without it.
	QuorumLost bool
}

// An OutageReporter is an [Engine] that may know that no call will be answered soon.
type OutageReporter interface {
	// Outage returns the ErrUnavailable of a call that would be made now, if its end can't be expected
	// soon; nil if calls are answered, or if the engine does not know. It returns at once. Calls still
	// wait for the end of an outage: a caller with a short bound does better not to call.
	Outage() error
}

// OutageOf returns the outage of an engine, as [OutageReporter] does; nil if the engine is none.
func OutageOf(e Engine) error {
	if r, ok := e.(OutageReporter); ok {
		return r.Outage()
	}
	return nil
}

// A ServerClient is an [Engine] whose claims are kept by a Lockkeeper server.
type ServerClient interface {
	// About returns the state of the server, and the identity that it gives the caller. It returns
	// ErrInvalid if the server is too old to answer.
	About(ctx context.Context) (ServerState, error)

	// Drain makes the server refuse new claims, and exit once no claim is held or waits. reason is
	// for people. Drain returns at once. If the server has the version unlessVersion, Drain changes
	// nothing and sets ServerState.Already; "" matches no version. It returns ErrDenied if the
	// caller may not drain the server.
	Drain(ctx context.Context, reason, unlessVersion string) (ServerState, error)

	// Expiry returns when the certificates end by which the server and the client authenticate
	// each other; the zero time if there is none. It connects if necessary.
	Expiry(ctx context.Context) (server, own time.Time, err error)

	// Trace makes every request carry the span that it belongs to, so that the server's work
	// becomes part of its trace. parent returns that span as W3C Trace Context writes it; "" for
	// none. Trace is called before the engine is used.
	Trace(parent func(context.Context) string)
}

// ServerState is the state of a server, as it reports it.
type ServerState struct {
	Version       string        // of the server's program
	Uptime        time.Duration // since the server began
	Draining      string        // why it accepts no new claims; "" if it does
	Held          int64         // claims; while the server drains, those that keep it alive
	Waiting       int64         // claims; likewise
	Sessions      int64
	Connections   int64
	Engine        string // name of the engine that it serves
	Identity      string // the identity of the caller; "" if every caller may do everything
	ClaimsRefused string // why its engine can accept no claims at present; "" if it can
	Already       bool   // of Drain: the server has the version that was named, so nothing changed
	Began         bool   // of Drain: this request began it
	// Cluster is the one to which the server belongs; nil without one, and for callers that may not
	// look at everything.
	Cluster *ClusterStatus
}
