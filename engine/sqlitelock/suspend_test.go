package sqlitelock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A suspended engine is in no transaction, whatever it is asked: nobody waits for its file. It goes on when it is
// resumed.
func TestSuspendedEngineLeavesTheFileAlone(t *testing.T) {
	path := file(t)
	e, other := openReal(t, path), openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	resume := e.Suspend()
	renewed := make(chan error, 1)
	go func() {
		_, err := e.Renew(bounded(t), k)
		renewed <- err
	}()
	own := attach(t, other, "b", time.Minute, nil)
	for id := range uint64(20) {
		claim(t, other, own, exclusive(id+1, "db"))
		if err := other.End(bounded(t), own, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id + 1}); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-renewed:
		t.Errorf("a suspended engine has made a call: %v", err)
	default:
	}
	resume()
	if err := <-renewed; err != nil {
		t.Error(err)
	}
}
