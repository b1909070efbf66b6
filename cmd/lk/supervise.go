package main

import (
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// lease is what a supervisor needs of a hold.
type lease interface {
	Done() <-chan struct{}       // closed when it is lost, before anyone else can be granted
	Err() error                  // why
	Remaining() time.Duration    // until it is lost, if nothing renews it; Forever if it has no end
	Trouble() error              // why it was not renewed
	YieldAsked() <-chan struct{} // closed when somebody asks for it
	Asked() *lockkeeper.Asked    // who
}

// answer is what is done with the command when its lock is lost, or asked for.
type answer string

const (
	ignore    answer = "ignore" // tell the user, who reads stderr
	terminate answer = "term"   // ask it to stop, by TERM
	kill      answer = "kill"   // end it with the lock, unasked
	warn      answer = "warn"   // tell the user, and let it run on
)

// supervisor runs a child to its end, and stops it before its lease ends: it asks
// it to stop (TERM) when what remains falls to the grace, and ends it (KILL) when
// the lease is lost, unless onLost says otherwise. A guard does the same if lk
// can't.
type supervisor struct {
	lease   lease
	grace   time.Duration
	onLost  answer        // terminate, kill or warn
	onYield answer        // ignore or terminate
	maxHold time.Duration // 0: no bound
	tick    time.Duration // how often the lease is looked at, at least; 0: every second
	what    string        // is held, for messages
	note    func(string)  // tells the user
	stderr  *os.File      // for the guard; nil: it says nothing

	farewell []byte       // see guard.leaves; nil: the guard does not leave the session
	attached *attachments // of the session; nil without farewell

	child   *child
	guard   *guard
	yielded bool // the child was asked to stop because somebody asked for the lock
	ending  bool // lk passed on a signal that asks the child to end
}

// groupPoll is how often the child's group is looked at when it has to go: the
// kernel has no event for the end of a group.
const groupPoll = 20 * time.Millisecond

// unkillable is how long a killed group is waited for. What is left then is of
// another user, or deep in the kernel.
const unkillable = 5 * time.Second

// start starts the command, and before it the guard, which gets ready meanwhile:
// until it is told the group, the kernel ends the command should lk die.
func (s *supervisor) start(command, env []string, session *os.File) error {
	s.guard = newGuard(s.what, s.stderr, session, s.note)
	var lifeline *os.File
	if s.farewell != nil {
		lifeline = s.guard.leaves(s.farewell, s.attached.epoch.Load())
	}
	s.guard.start()
	child, err := startChild(command, env, session, lifeline)
	if lifeline != nil {
		lifeline.Close() // only the command may have it
	}
	if err != nil {
		s.guard.stop()
		return err
	}
	s.child = child
	grace := s.grace
	if s.onLost == kill {
		grace = 0
	}
	s.guard.watch(child.group, grace)
	s.tellEnd()
	return nil
}

// supervise passes signals on to the child and returns its exit code when it has
// ended. The error says why the lease was lost, if the child had to be stopped
// or ended after the loss; then nothing of its group is left, unless it was to
// run on.
func (s *supervisor) supervise(signals chan os.Signal) (code int, lost error) {
	var (
		done     = s.lease.Done()
		asked    = s.lease.YieldAsked()
		alarm    = time.NewTimer(s.untilGrace())
		attached <-chan struct{}
	)
	if s.attached != nil {
		attached = s.attached.changed
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
			s.tellEnd() // lk may stand still from here on
			if s.child.stopWithIt(by) {
				s.goOn()
			}
			notifyStops(signals)
		case <-asked:
			asked = nil
			s.yield()
			lost = s.look(lost)
			alarm.Reset(s.untilGrace())
		case <-alarm.C:
			if asked == nil && s.lease.Asked() == nil {
				asked = s.lease.YieldAsked() // that ask was withdrawn: the next is another one
			}
			lost = s.look(lost)
			alarm.Reset(s.untilGrace())
		case over := <-s.guard.left():
			s.guard.follow(over)
		case <-attached:
			s.guard.attached(s.attached.epoch.Load())
		case <-done:
			done = nil
			lost = s.lose()
		}
	}
}

// look asks the child to stop if the lease ends soon, and tells the guard of a new
// end: in this order, or the guard would ask too.
func (s *supervisor) look(lost error) error {
	ahead := s.lease.Remaining() <= s.grace && s.lease.Err() == nil // after the end, Done says what to do
	if ahead && lost == nil && s.onLost == terminate && !s.yielded {
		lost = s.lossAhead()
		s.stopChild()
	}
	s.tellEnd()
	return lost
}

// stopChild asks the child to stop, and sees to it that it is not asked twice.
func (s *supervisor) stopChild() {
	s.guard.saidStop()
	s.child.terminate()
}

// lose ends the child with its lease, or says that it runs on.
func (s *supervisor) lose() error {
	if s.onLost == warn {
		lost := s.loss("its command runs on")
		s.note(lost.Error())
		return lost
	}
	s.child.kill()
	return s.loss("its command was stopped")
}

// yield tells the user who asks for the lock, and has the child stop if that is
// what the user wants.
func (s *supervisor) yield() {
	asked := s.lease.Asked()
	text := fmt.Sprintf("%s: %s", s.what, askedText(asked))
	end := ", and lost in "
	if asked != nil && asked.Reason == lockkeeper.Revoked {
		text, end = fmt.Sprintf("the operator %s asks for %s", asked.As, s.what), ". It is taken in "
		if asked.Note != "" {
			text += ": " + asked.Note
		}
	}
	if asked != nil && asked.Left != lockkeeper.Forever {
		text += end + left(asked.Left)
	}
	if s.onYield == terminate {
		text += "; its command is asked to stop"
	}
	s.note(text)
	if s.onYield == terminate {
		s.yielded = true
		s.stopChild()
	}
}

// tellEnd tells the guard when the lease ends. The clock is read before the lease:
// should lk stand still between, the end is told too early, never too late.
func (s *supervisor) tellEnd() {
	if s.onLost == warn {
		return
	}
	now := bootTime()
	if remaining := s.lease.Remaining(); remaining != lockkeeper.Forever {
		s.guard.until(now + remaining)
	}
}

// pass gives the child a signal that lk got.
func (s *supervisor) pass(sig os.Signal) {
	if continues(sig) {
		s.goOn()
	} else {
		s.ending = s.ending || asksToEnd(sig)
		s.child.forward(sig)
	}
}

// goOn continues a stopped child, if the lease has outlived the time in which lk
// stood still with it. Else Done ends the child.
func (s *supervisor) goOn() {
	if s.lease.Err() == nil || s.onLost == warn {
		s.child.goOn()
	}
}

// untilGrace is how long to sleep until what remains may have fallen to the grace,
// but no longer than a tick: the lease's clock goes on while the computer sleeps,
// and Go's timers do not.
func (s *supervisor) untilGrace() time.Duration {
	tick := s.tick
	if tick == 0 {
		tick = time.Second
	}
	return min(tick, max(s.lease.Remaining()-s.grace, s.grace/10, time.Millisecond))
}

// end is called when the child has ended, and nobody has waited for it yet. Without
// a loss it may leave processes behind, as under any shell, unless it was asked to
// end. Else end waits until its group is gone, and ends what is left of it with the
// lease.
func (s *supervisor) end(lost error, signals <-chan os.Signal) (code int, _ error) {
	if s.lease.Err() != nil && lost == nil {
		lost = s.loss("its command has ended since")
	}
	if !s.ending && (lost == nil || s.onLost == warn) {
		s.guard.stop() // before the number of the group can be another's
	}
	code = s.child.reap()
	if lost == nil && (s.ending || code > exitSignal && asksToEnd(s.child.signal(code))) {
		s.linger(signals)
		if s.lease.Err() != nil {
			lost = s.loss("its command was stopped")
		}
	}
	if lost != nil && s.onLost != warn {
		s.endGroup()
	}
	s.guard.stop()
	return code, lost
}

// linger waits until nothing of the child's group runs any more, for the grace at
// most, or until somebody is impatient. The child ended because it was asked to,
// and what it had started may take a moment longer to heed the same.
func (s *supervisor) linger(signals <-chan os.Signal) {
	tick, late := time.NewTicker(groupPoll), time.NewTimer(s.grace)
	defer tick.Stop()
	defer late.Stop()
	for s.child.groupRuns() {
		select {
		case sig := <-signals:
			s.pass(sig)
			if asksToEnd(sig) {
				return
			}
		case <-s.lease.Done():
			return
		case <-late.C:
			return
		case <-tick.C:
		}
	}
}

// endGroup waits until the child's group is gone. When it has had its time, or the
// lease is lost, it is killed.
func (s *supervisor) endGroup() {
	tick, late := time.NewTicker(groupPoll), time.NewTimer(s.grace)
	defer tick.Stop()
	defer late.Stop()
	done, killing := s.lease.Done(), false
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

// loss says why the lease is lost, and what that meant for the command.
func (s *supervisor) loss(command string) error {
	err := s.lease.Err()
	if err == nil {
		err = lockkeeper.ErrLost
	}
	return fmt.Errorf("%w; %s", err, command)
}

// lossAhead says why the lease is about to be lost.
func (s *supervisor) lossAhead() error {
	left := human(s.lease.Remaining())
	if asked := s.lease.Asked(); asked != nil {
		return fmt.Errorf("%s: its command was stopped %s before the end: %s", s.what, left, askedText(asked))
	}
	if s.maxHold > 0 && s.lease.Trouble() == nil { // nothing else ends it, and nobody had to ask yet
		return fmt.Errorf("%s was held for as long as --max-hold allows, and its command was stopped", s.what)
	}
	why := ""
	if trouble := s.lease.Trouble(); trouble != nil {
		why = fmt.Sprintf(" (%s)", trouble)
	}
	return fmt.Errorf("%s could not be renewed%s, and its command was stopped %s before the lock would have ended", s.what,
		why, left)
}

func askedText(asked *lockkeeper.Asked) string {
	if asked == nil {
		return "asked to yield"
	}
	return asked.String()
}
