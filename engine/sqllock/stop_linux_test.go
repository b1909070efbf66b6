package sqllock

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// stop stops a process where it is, and returns when it stands. One that the end of the
// test kills meanwhile stands too.
func (p *process) stop() error {
	err := syscall.Kill(p.Cmd.Process.Pid, syscall.SIGSTOP)
	for err == nil {
		var status syscall.WaitStatus
		_, err = syscall.Wait4(p.Cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil {
			return nil
		}
		if err == syscall.EINTR {
			err = nil
		}
	}
	if err == syscall.ESRCH || err == syscall.ECHILD {
		return nil
	}
	return err
}

func (p *process) cont() { syscall.Kill(p.Cmd.Process.Pid, syscall.SIGCONT) }

// stopAt has p stopped when its nth request from now was done. The channel is closed
// when it stands and has not got the answer.
func (p *process) stopAt(proxy *testdb.Proxy, n int) <-chan struct{} {
	stopped := make(chan struct{})
	proxy.Call(n, func() {
		if err := p.stop(); err != nil {
			p.t.Error(err)
		}
		close(stopped)
	})
	return stopped
}

// A process is stopped at every request of a transaction. Claims of a path that it has latched go
// on soon; claims of a path beside it and renewals are not delayed; and when it goes on, nothing is
// granted twice.
func TestStoppedAtEveryRequest(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		url := k.shared(t).Database(t)
		proxy := testdb.NewProxy(t, k.shared(t))
		e := openEngine(t, url)
		s := &stopping{
			T: t, idle: k.idle, proxy: proxy, process: start(t, proxy.URL(databaseName(url)), longest),
			same: join(t, e, "same", cutTTL), beside: join(t, e, "beside", cutTTL), renewed: join(t, e, "renewed", cutTTL),
		}
		s.process.Read("open")
		// Background queries of the engine count as requests too, and one can take the place of the
		// request with the latches: then the test goes through the requests again.
		const mostRounds = 10
		for range mostRounds {
			for n := 1; s.at(n); n++ {
			}
			if s.blocked > 0 {
				break
			}
		}
		if s.blocked == 0 || s.delayed > s.stops/3 {
			t.Errorf("of %d stops the same path felt %d, and others %d; want some of the former", s.stops, s.blocked, s.delayed)
		}
	})
}

// stopping is a test in which a process takes a path and gives it back, and is stopped
// meanwhile.
type stopping struct {
	*testing.T
	idle    time.Duration
	proxy   *testdb.Proxy
	process *process
	same    *member // wants the same path
	beside  *member // wants one beside it
	renewed *member // only renews
	stops   int     // how often it was stopped, or should have been
	blocked int     // how often its latches were felt there
	delayed int     // and elsewhere
}

// at stops the process at its nth request, and reports whether there was one.
func (s *stopping) at(n int) bool {
	s.Helper()
	s.stops++
	path, id := fmt.Sprintf("tree/%d", s.stops), uint64(s.stops)
	stopped := s.process.stopAt(s.proxy, n)
	answered := make(chan uint64, 2) // the fence, and 0 when it is given back
	s.process.Send("lock", path)
	s.process.Send("release")
	go func() {
		defer close(answered)
		if word, rest := s.process.ReadLine(); word == "granted" {
			answered <- number(s.T, rest)
		}
		if word, _ := s.process.ReadLine(); word == "released" {
			answered <- 0
		}
	}()
	var first, theirs uint64 // our fence, if it was the first, and theirs
	told := 0                // how many of the two answers it has printed
	for open := true; open; {
		select {
		case <-stopped:
			open = false
		case fence, more := <-answered:
			if !more {
				if told < 2 {
					s.Fatalf("it ended before its request %d", n)
				}
				return false
			}
			theirs += fence
			told++
		}
	}
	st := s.meanwhile(path, id)
	if st.State == lockkeeper.Held {
		if theirs == 0 {
			first = st.Fence
		}
		s.same.release(id)
	}
	s.process.cont()
	for fence := range answered {
		theirs += fence
		told++
	}
	if theirs <= first || told < 2 {
		s.Fatalf("stopped at %s: it has fence %d, after %d, and gave %d answers", end(s.proxy.Struck()), theirs, first, told)
	}
	if st.State == lockkeeper.Waiting {
		st = s.same.await(id, lockkeeper.Held)
		s.same.release(id)
	}
	if first == 0 && st.Fence <= theirs {
		s.Errorf("stopped at %s: fence %d after %d", end(s.proxy.Struck()), st.Fence, theirs)
	}
	return true
}

// meanwhile does what others do while the process stands.
func (s *stopping) meanwhile(path string, id uint64) lockkeeper.Status {
	began := time.Now()
	var took [2]time.Duration
	var running sync.WaitGroup
	running.Go(func() {
		s.beside.claim(exclusive(id, 0, path+"beside"), lockkeeper.Held)
		took[0] = time.Since(began)
	})
	running.Go(func() {
		if _, err := s.renewed.Renew(bounded(s), s.renewed.key); err != nil {
			s.Error(err)
		}
		took[1] = time.Since(began)
	})
	st, err := s.same.Claim(bounded(s), s.same.key, exclusive(id, lockkeeper.Forever, path))
	same := time.Since(began)
	if err != nil || same > s.idle+lockkeeper.MinTTL {
		s.Errorf("%s, %v after it was stopped at %s", same, err, end(s.proxy.Struck()))
	}
	running.Wait()
	s.Logf("the same path took %s, one beside it %s, a renewal %s", same, took[0], took[1])
	if same > idleFirst/2 {
		s.blocked++
	}
	if took[0] > idleFirst || took[1] > idleFirst {
		s.delayed++
	}
	return st
}

// end is the last part of a request.
func end(words string) string {
	words = strings.Join(strings.Fields(words), " ")
	return "..." + words[max(0, len(words)-150):]
}

// A holder is stopped at every request of its renewal, until another session has its path: it knows
// its loss before it does anything else.
func TestStoppedHolderKnowsItsLoss(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		e := openEngine(t, url)
		var running sync.WaitGroup
		for n := 1; n <= 4; n++ {
			proxy := testdb.NewProxy(t, k.shared(t))
			p := start(t, proxy.URL(databaseName(url)), lockkeeper.MinTTL)
			p.Read("open")
			m := join(t, e, fmt.Sprint("m", n), cutTTL)
			running.Go(func() {
				path := fmt.Sprintf("tree/%d", n)
				p.Send("lock", path)
				_, fence := p.ReadLine()
				// Its next operation is the renewal of its session.
				<-p.stopAt(proxy, n)
				m.claim(exclusive(1, lockkeeper.Forever, path), lockkeeper.Waiting)
				if st := m.await(1, lockkeeper.Held); st.Fence <= number(t, fence) {
					t.Errorf("fence %d after %s", st.Fence, fence)
				}
				p.cont()
				p.Send("state")
				if word, rest := p.ReadLine(); word != "lost" {
					t.Errorf("stopped at %s: it is %s %s, and another has it", end(proxy.Struck()), word, rest)
				}
				m.release(1)
			})
		}
		running.Wait()
		noLatches(t, e)
	})
}
