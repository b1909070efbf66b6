package priorities

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

const (
	restartJobs   = 100
	restartHold   = time.Minute      // of a job of low priority, which begins again if it is interrupted
	restartUrgent = 10 * time.Second // of a job of high priority
	restartTries  = 40               // of one job at most, so that the test ends
)

// The figures of docs/priorities.md about jobs that begin again. Urgent jobs come at random while
// jobs of low priority are done one after the other. Urgent jobs that only wait for their turn delay
// a job; urgent jobs that steal make it begin again, the more often the less time there is between
// them.
func TestStealsStarveLongJobsOfLowPriority(t *testing.T) {
	var tries, waited []float64
	for _, mean := range []time.Duration{5 * time.Minute, 2 * time.Minute, time.Minute, 30 * time.Second} {
		politely, byForce := runRestartingJobs(t, mean, false), runRestartingJobs(t, mean, true)
		t.Logf("urgent jobs every %3.0fs | waiting: %4.2f tries, done after %4.0fs (99%%: %4.0fs), urgent waits %4.1fs | "+
			"stealing: %5.2f tries, done after %5.0fs (99%%: %5.0fs), urgent waits %4.1fs", mean.Seconds(),
			politely.tries, politely.took, politely.most, politely.urgent, byForce.tries, byForce.took, byForce.most,
			byForce.urgent)
		if politely.tries != 1 {
			t.Errorf("every %s: jobs that nobody steals from took %f tries", mean, politely.tries)
		}
		if byForce.urgent >= politely.urgent {
			t.Errorf("every %s: urgent jobs wait %fs with steals, %fs without", mean, byForce.urgent, politely.urgent)
		}
		tries, waited = append(tries, byForce.tries), append(waited, politely.took)
	}
	if !slices.IsSorted(tries) || tries[len(tries)-1] < 3 || !slices.IsSorted(waited) {
		t.Errorf("with more urgent jobs: tries %v, seconds without steals %v", tries, waited)
	}
}

// restarted is what came of the jobs: means, and the 99th percentile of a job's time, in seconds.
type restarted struct{ tries, took, most, urgent float64 }

// runRestartingJobs runs the jobs in a bubble, where time costs nothing.
func runRestartingJobs(t *testing.T, mean time.Duration, steal bool) (result restarted) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New()
		client := lockkeeper.New(engine)
		defer client.Close()
		random := rand.New(rand.NewPCG(1, uint64(mean)))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		var waits []float64
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(mean)))
				all.Go(func() {
					requests := []lockkeeper.Request{lockkeeper.Exclusive("site"), lockkeeper.WithPriority(5)}
					if steal {
						requests = append(requests, lockkeeper.WithSteal())
					}
					asked := time.Now()
					hold, err := client.Acquire(ctx, requests...)
					if err != nil {
						return // the test is over
					}
					defer hold.Close()
					mu.Lock()
					waits = append(waits, time.Since(asked).Seconds())
					mu.Unlock()
					time.Sleep(restartUrgent)
				})
			}
		})
		var tries int
		var took []float64
		for range restartJobs {
			began := time.Now()
			tries += restartingJob(t, client)
			took = append(took, time.Since(began).Seconds())
		}
		cancel()
		all.Wait()
		slices.Sort(took)
		result = restarted{float64(tries) / restartJobs, average(took), took[len(took)*99/100], average(waits)}
	})
	return result
}

// restartingJob does one job, and returns how often it began. It yields when it is asked to, as
// "lk run --on-yield term" does.
func restartingJob(t *testing.T, client *lockkeeper.Client) (tries int) {
	for tries < restartTries {
		tries++
		hold, err := client.Lock(t.Context(), "site")
		if err != nil {
			t.Fatal(err)
		}
		done := time.NewTimer(restartHold)
		select {
		case <-done.C:
			hold.Close()
			return tries
		case <-hold.YieldAsked():
			hold.Close()
		}
	}
	return tries
}

func average(all []float64) (mean float64) {
	for _, v := range all {
		mean += v / float64(len(all))
	}
	return mean
}
