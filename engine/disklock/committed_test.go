package disklock

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestCommitsAreReported: every commit is reported with all of its entries.
func TestCommitsAreReported(t *testing.T) {
	ctx := t.Context()
	opened, err := Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*Engine)
	told := make(chan int, 100)
	e.ReportCommits(func(entries int, took time.Duration) {
		if took <= 0 {
			t.Errorf("a commit took %s", took)
		}
		told <- entries
	})
	const sessions = 64
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			if _, err := e.Attach(ctx, lockkeeper.Session{ID: strconv.Itoa(i), TTL: time.Minute}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	close(told)
	sum := 0
	for n := range told {
		sum += n
	}
	if sum != sessions {
		t.Errorf("%d entries were told of, want %d", sum, sessions)
	}
}
