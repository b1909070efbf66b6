package keeper

import (
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/watching"
	"github.com/lockkeeper/lockkeeper/table"
)

// A publisher shows a table to sessions and watchers: lists with evidence, watchers, notifications.
// A [Keeper] also steps the table; a [View] shows a table that others step.
type publisher struct {
	clock func() time.Duration // never goes back

	explaining chan struct{} // semaphore of one: its holder computes evidence; acquired before mu
	staleList  sync.Mutex    // held while a list reads the log's safe table

	mu        sync.Mutex // guards the fields below; never held while a notify runs
	table     *table.Table
	sessions  attached.Sessions[struct{}]
	watchers  watching.Index[*watcher]
	changes   uint64 // the number of the latest change
	index     uint64 // Step.Index of the latest step; 0 in a Keeper
	allowance allowance
	closed    bool

	log    Log // nil: all that the table has may be shown
	record logState
}

// newPublisher returns a publisher of an empty table.
func newPublisher(clock func() time.Duration) publisher {
	return publisher{
		clock:      clock,
		table:      table.New(),
		explaining: make(chan struct{}, 1),
		allowance:  allowance{left: mostLooks},
	}
}
