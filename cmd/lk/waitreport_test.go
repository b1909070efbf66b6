package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// Holders that come and go all the time before a waiter do not flood its output.
func TestWaitReportIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lockkeeper.New(memlock.New())
		defer client.Close()
		lines := 0
		r := newWaitReport(contest{wanted: []lockkeeper.Path{"db"}}, func(string) { lines++ }, client)
		defer r.stop()
		change := func(holder string) {
			r.changed(t.Context(), lockkeeper.Status{
				State:    lockkeeper.Waiting,
				Blockers: []lockkeeper.Blocker{{Path: "db", Ref: lockkeeper.Ref{Session: holder, ID: 1}}},
			})
		}
		for i := range 100 {
			change(fmt.Sprint("ci-", i))
		}
		if lines != promptLines {
			t.Errorf("%d lines for 100 changes at once, want %d", lines, promptLines)
		}
		time.Sleep(changeEvery)
		change("next")
		change("next but one")
		if lines != promptLines+1 {
			t.Errorf("%d lines after a pause, want one more than %d", lines, promptLines)
		}
	})
}
