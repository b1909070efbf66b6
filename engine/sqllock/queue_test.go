package sqllock

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestParkedJobsStartInTime: jobs that wait for latches have different times to retry them. Each
// starts at its time, even if nothing else happens in the process.
func TestParkedJobsStartInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		first, second := &job{session: "a"}, &job{session: "b"}
		q.Add(first)
		q.Add(second)
		jobs := q.take()
		began := time.Now()
		first.notUntil = began
		second.notUntil = began.Add(latchPatience)
		q.finish(jobs, jobs)
		for i, j := range []*job{first, second} {
			started := q.take()
			if len(started) != 1 || started[0] != j || !time.Now().Equal(j.notUntil) {
				t.Fatalf("%d jobs start after %s, want job %d after %s", len(started), time.Since(began), i+1,
					j.notUntil.Sub(began))
			}
			q.finish(started, nil)
		}
	})
}
