package supervise

import (
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// Lease is the part of a hold that a supervisor needs.
type Lease interface {
	Done() <-chan struct{}       // closed when it is lost, before the engine grants it to anybody else
	Err() error                  // why it is lost; nil before
	Remaining() time.Duration    // until it is lost without a renewal; Forever if it has no end
	RenewError() error           // why the last renewal failed
	YieldAsked() <-chan struct{} // closed when somebody asks for it
	Asked() *lockkeeper.Asked    // the claim or operator that asks; nil if none does
}

// Action says what happens to the command when its lock is about to be lost, or when somebody
// asks for the lock.
type Action string

// The actions.
const (
	Ignore    Action = "ignore" // print a note
	Terminate Action = "term"   // send TERM; KILL follows at the end of the lease
	Kill      Action = "kill"   // send KILL at the end of the lease, and nothing before
	Warn      Action = "warn"   // print a note, and let the command run on without the lock
)

// Options say how to supervise a command.
type Options struct {
	Lease    Lease
	Grace    time.Duration     // TERM is sent so long before the end of the lease
	OnLost   Action            // Terminate, Kill or Warn
	OnYield  Action            // Ignore or Terminate
	MaxHold  time.Duration     // the bound of the hold, for messages; 0: none
	What     string            // names the locks in messages
	Note     func(text string) // prints a line for the user
	Stderr   *os.File          // of the guard; nil: the guard prints nothing
	Session  *os.File          // the file of the session that the command inherits; may be nil
	Farewell *Farewell         // nil: the guard does not leave the session

	// Suspend is called before this process stops itself, and resume when it is continued; nil: nothing has to be done.
	Suspend func() (resume func())
}

// Farewell has what a guard needs to leave the session of a killed lk.
type Farewell struct {
	Order   []byte          // one line, opaque to this package: for the leave function of [Guard]
	TTL     time.Duration   // of the session
	Epoch   func() uint64   // of the latest attach
	Changed <-chan struct{} // receives a value after a change of the epoch
}

// Exit says how a command ended.
type Exit struct {
	Code int // the exit code, or SignalCode plus the number of the signal that ended the command
	// Interrupt is the signal of the terminal that ended the command, if the terminal did not send
	// it to the process group of lk as well; else nil.
	Interrupt os.Signal
}

// A Supervisor runs one command until its end, and stops it before its lease ends: it sends TERM
// when the grace remains, and KILL when the lease is lost, unless Options.OnLost says otherwise.
// The guard does the same if this process can't.
type Supervisor struct {
	Options
	tick    time.Duration // the longest pause between two checks of the lease
	child   *child
	guard   *guard
	yielded bool // the child was sent TERM because somebody asked for the lock
	ending  bool // a signal that asks the child to end was passed on
}

// groupPoll is the pause between two checks whether the group runs: the kernel has no event for the
// end of a group.
const groupPoll = 20 * time.Millisecond

// unkillable bounds the wait for a killed group. Processes left then belong to another user, or
// hang in the kernel.
const unkillable = 5 * time.Second

// Start starts the guard and then the command. Until the guard knows the process group, the kernel
// ends the command if this process dies. Only the main goroutine may call Start, and it must be
// locked to its thread. An error is a [*StartError], or one of the system.
func Start(o Options, command, env []string) (*Supervisor, error) {
	s := &Supervisor{Options: o, tick: time.Second}
	s.guard = newGuard(s.What, s.Stderr, s.Session, s.Note)
	var lifeline *os.File
	if s.Farewell != nil {
		lifeline = s.guard.leaves(s.Farewell)
	}
	s.guard.start()
	child, err := startChild(command, env, s.Session, lifeline)
	if lifeline != nil {
		lifeline.Close() // only the command may have it
	}
	if err != nil {
		s.guard.stop()
		return nil, err
	}
	s.child = child
	grace := s.Grace
	if s.OnLost == Kill {
		grace = 0
	}
	s.guard.watch(child.group, grace)
	s.sendEnd()
	return s, nil
}

// Wait passes signals on to the child and returns when it has ended. The error says why the lease
// was lost, if the child had to be stopped or ended after the loss; then no process of its group
// runs, unless OnLost is Warn.
func (s *Supervisor) Wait(signals chan os.Signal) (Exit, error) {
	code, lost := s.wait(signals)
	end := Exit{Code: code}
	if s.child.interrupted(code) {
		end.Interrupt = s.child.signal(code)
	}
	return end, lost
}

func (s *Supervisor) wait(signals chan os.Signal) (code int, lost error) {
	var (
		done     = s.Lease.Done()
		asked    = s.Lease.YieldAsked()
		alarm    = time.NewTimer(s.untilGrace())
		attached <-chan struct{}
	)
	if s.Farewell != nil {
		attached = s.Farewell.Changed
	}
	defer alarm.Stop()
	notifyStops(signals)
	for {
		select {
		case <-s.child.exited:
			return s.end(lost, signals)
		case sig := <-signals:
			s.pass(sig)
		case by := <-s.child.stopped:
			s.sendEnd() // lk may stand still from here on
			if s.child.stopWithIt(by, s.Suspend) {
				s.goOn()
			}
			notifyStops(signals)
		case <-asked:
			asked = nil
			s.yield()
			lost = s.check(lost)
			alarm.Reset(s.untilGrace())
		case <-alarm.C:
			if asked == nil && s.Lease.Asked() == nil {
				asked = s.Lease.YieldAsked() // that ask was withdrawn: wait for the next
			}
			lost = s.check(lost)
			alarm.Reset(s.untilGrace())
		case over := <-s.guard.ended():
			s.guard.replace(over)
		case <-attached:
			s.guard.attached(s.Farewell.Epoch())
		case <-done:
			done = nil
			lost = s.lose()
		}
	}
}

// check sends TERM if the lease ends soon, and then the end of the lease to the guard. In the other
// order the guard could send TERM too.
func (s *Supervisor) check(lost error) error {
	ahead := s.Lease.Remaining() <= s.Grace && s.Lease.Err() == nil // after the end, Done decides
	if ahead && lost == nil && s.OnLost == Terminate && !s.yielded {
		lost = s.lossAhead()
		s.stopChild()
	}
	s.sendEnd()
	return lost
}

// stopChild sends TERM to the child, and makes sure that the guard does not send it again.
func (s *Supervisor) stopChild() {
	s.guard.termSent()
	s.child.terminate()
}

// lose kills the child with its lease, or prints that it runs on.
func (s *Supervisor) lose() error {
	if s.OnLost == Warn {
		lost := s.loss("its command runs on")
		s.Note(lost.Error())
		return lost
	}
	s.child.kill()
	return s.loss("its command was stopped")
}

// yield prints the request for the lock, and sends TERM if OnYield is Terminate.
func (s *Supervisor) yield() {
	asked := s.Lease.Asked()
	text := fmt.Sprintf("%s: %s", s.What, askedText(asked))
	end := ", and lost in "
	if asked != nil && asked.Reason == lockkeeper.Revoked {
		text, end = fmt.Sprintf("the operator %s asks for %s", asked.As, s.What), ". It is taken in "
		if asked.Note != "" {
			text += ": " + asked.Note
		}
	}
	if asked != nil && asked.Left != lockkeeper.Forever {
		text += end + duration.Remaining(asked.Left)
	}
	if s.OnYield == Terminate {
		text += "; its command is asked to stop"
	}
	s.Note(text)
	if s.OnYield == Terminate {
		s.yielded = true
		s.stopChild()
	}
}

// sendEnd sends the end of the lease to the guard. It reads the clock before the lease, so a pause
// of lk in between makes the end too early, never too late.
func (s *Supervisor) sendEnd() {
	if s.OnLost == Warn {
		return
	}
	now := bootTime()
	if remaining := s.Lease.Remaining(); remaining != lockkeeper.Forever {
		s.guard.until(now + remaining)
	}
}

// pass handles a signal that lk received.
func (s *Supervisor) pass(sig os.Signal) {
	if continues(sig) {
		s.goOn()
	} else {
		s.ending = s.ending || asksToEnd(sig)
		s.child.forward(sig)
	}
}

// goOn continues a stopped child if the lease is not over. If it is, Done ends the child.
func (s *Supervisor) goOn() {
	if s.Lease.Err() == nil || s.OnLost == Warn {
		s.child.goOn()
	}
}

// untilGrace returns the time until the rest of the lease may have fallen to the grace, a tick at
// most: the clock of the lease runs while the computer sleeps, and Go's timers do not.
func (s *Supervisor) untilGrace() time.Duration {
	return min(s.tick, max(s.Lease.Remaining()-s.Grace, s.Grace/10, time.Millisecond))
}

// end reaps the ended child. Without a loss its group may run on in the background, as under any
// shell, unless a signal asked it to end. Otherwise end waits until the group is gone, and kills
// the rest with the lease.
func (s *Supervisor) end(lost error, signals <-chan os.Signal) (code int, _ error) {
	if s.Lease.Err() != nil && lost == nil {
		lost = s.loss("its command has ended since")
	}
	if !s.ending && (lost == nil || s.OnLost == Warn) {
		s.guard.stop() // before the kernel can reuse the number of the group
	}
	code = s.child.reap()
	if lost == nil && (s.ending || code > SignalCode && asksToEnd(s.child.signal(code))) {
		s.linger(signals)
		if s.Lease.Err() != nil {
			lost = s.loss("its command was stopped")
		}
	}
	if lost != nil && s.OnLost != Warn {
		s.endGroup()
	}
	s.guard.stop()
	return code, lost
}

// linger waits until no process of the child's group runs, for the grace at most, or until another
// signal asks lk to end. The child ended because of a signal, and the rest of its group may take a
// moment longer to do the same.
func (s *Supervisor) linger(signals <-chan os.Signal) {
	tick, late := time.NewTicker(groupPoll), time.NewTimer(s.Grace)
	defer tick.Stop()
	defer late.Stop()
	for s.child.groupRuns() {
		select {
		case sig := <-signals:
			s.pass(sig)
			if asksToEnd(sig) {
				return
			}
		case <-s.Lease.Done():
			return
		case <-late.C:
			return
		case <-tick.C:
		}
	}
}

// endGroup waits until the child's group is gone. After the grace, or when the lease is lost, it
// kills the group.
func (s *Supervisor) endGroup() {
	tick, late := time.NewTicker(groupPoll), time.NewTimer(s.Grace)
	defer tick.Stop()
	defer late.Stop()
	done, killing := s.Lease.Done(), false
	for s.child.groupRuns() {
		select {
		case <-done:
			done, killing = nil, true
			late.Reset(unkillable)
		case <-late.C:
			if killing {
				return
			}
			killing = true
			late.Reset(unkillable)
		case <-tick.C:
		}
		if killing {
			s.child.kill()
		}
	}
}

// loss returns why the lease is lost, and what happened to the command.
func (s *Supervisor) loss(command string) error {
	err := s.Lease.Err()
	if err == nil {
		err = lockkeeper.ErrLost
	}
	return fmt.Errorf("%w; %s", err, command)
}

// lossAhead returns why the lease is about to be lost.
func (s *Supervisor) lossAhead() error {
	left := duration.Text(s.Lease.Remaining())
	if asked := s.Lease.Asked(); asked != nil {
		return fmt.Errorf("%s: its command was stopped %s before the end: %s", s.What, left, askedText(asked))
	}
	if s.MaxHold > 0 && s.Lease.RenewError() == nil { // nothing else ends it, and nobody had to ask yet
		return fmt.Errorf("%s was held as long as --max-hold allows, and its command was stopped", s.What)
	}
	why := ""
	if err := s.Lease.RenewError(); err != nil {
		why = fmt.Sprintf(" (%s)", err)
	}
	return fmt.Errorf("%s could not be renewed%s, and its command was stopped %s before the lock would have ended", s.What,
		why, left)
}

func askedText(asked *lockkeeper.Asked) string {
	if asked == nil {
		return "asked to yield"
	}
	return asked.String()
}
