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
	YieldAsked() <-chan struct{} // closed when somebody asks for it
	Asked() *lockkeeper.Asked    // who
}

// supervisor runs a child to its end, and stops it before its lease ends:
// asks it to stop (TERM) when what remains falls to the grace, and ends it
// (KILL) when the lease is lost.
type supervisor struct {
	child *child
	lease lease
	grace time.Duration
	what  string       // is held, for messages
	note  func(string) // tells the user
}

// groupPoll is how often the child's group is looked at when it has to go: the
// kernel has no event for the end of a group.
const groupPoll = 20 * time.Millisecond

// supervise passes signals on to the child and returns its exit code when it has
// ended. The error says why the lease was lost, if the child had to be stopped
// or ended after the loss; then nothing of its group is left.
func (s *supervisor) supervise(signals chan os.Signal) (code int, lost error) {
	var (
		done  = s.lease.Done()
		asked = s.lease.YieldAsked()
		alarm = time.NewTimer(s.untilGrace())
	)
	defer alarm.Stop()
	notifyStops(signals)
	for {
		select {
		case code := <-s.child.exited:
			return code, s.finish(lost)
		case sig := <-signals:
			s.pass(sig)
		case by := <-s.child.stopped:
			if s.child.stopWithIt(by) {
				s.goOn()
			}
			notifyStops(signals)
		case <-asked:
			asked = nil
			s.note(fmt.Sprintf("%s: %s", s.what, askedText(s.lease.Asked())))
		case <-alarm.C:
			if s.lease.Remaining() <= s.grace && lost == nil {
				lost = s.lossAhead()
				s.child.terminate()
			}
			alarm.Reset(s.untilGrace())
		case <-done:
			done = nil
			lost = s.loss("its command was stopped")
			s.child.kill()
		}
	}
}

// pass gives the child a signal that lk got.
func (s *supervisor) pass(sig os.Signal) {
	if continues(sig) {
		s.goOn()
	} else {
		s.child.forward(sig)
	}
}

// goOn continues a stopped child, if the lease has outlived the time in which lk
// stood still with it. Else Done ends the child.
func (s *supervisor) goOn() {
	if s.lease.Err() == nil {
		s.child.goOn()
	}
}

// untilGrace is how long to sleep until what remains may have fallen to the grace.
func (s *supervisor) untilGrace() time.Duration {
	remaining := s.lease.Remaining()
	if remaining == lockkeeper.Forever {
		return time.Hour
	}
	return max(remaining-s.grace, s.grace/10, time.Millisecond)
}

// finish waits, when the child had to be stopped, until its group is gone, and
// ends what is left of it with the lease. Without a loss the child may leave
// processes behind, as under any shell.
func (s *supervisor) finish(lost error) error {
	if lost == nil {
		if s.lease.Err() == nil {
			return nil
		}
		lost = s.loss("its command had not ended by then")
	}
	tick, late := time.NewTicker(groupPoll), time.NewTimer(s.grace)
	defer tick.Stop()
	defer late.Stop()
	for s.child.groupAlive() {
		select {
		case <-tick.C:
			continue
		case <-late.C:
		case <-s.lease.Done():
		}
		s.child.kill()
		break
	}
	return lost
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
	return fmt.Errorf("%s could not be renewed, and its command was stopped %s before the lock would have ended", s.what, left)
}

func askedText(asked *lockkeeper.Asked) string {
	if asked == nil {
		return "asked to yield"
	}
	return asked.String()
}
