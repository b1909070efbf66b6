package quorumlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Recovery says what a cluster would go on with after Recover, and what it may lack.
type Recovery struct {
	Cluster string `json:"cluster"` // the id of the lost cluster
	Node    string `json:"node"`    // the node whose folder is used
	Last    uint64 `json:"last"`    // the number of the last change that this node has
	// Uncommitted is the number of changes at the end that this node did not know to be on a majority.
	// They are used, too: a lock that nobody was told of only waits for the end of its session.
	Uncommitted uint64 `json:"uncommitted"`

	Sessions int           `json:"sessions"`
	Held     int           `json:"held"`
	Waiting  int           `json:"waiting"`
	Frozen   time.Duration `json:"frozen"` // for how long nothing is granted after the recovery

	Others []string `json:"others"` // the other nodes of the lost cluster, with their addresses
}

// String is the report for people.
func (r Recovery) String() string {
	return fmt.Sprintf(`Node %q has the log of cluster %s
up to change %d, of which the last %d may never have had a majority.
It knows %s, %s held and %d waiting. They go on in a new cluster with this one voter.

What the other nodes granted, renewed or released after that change is lost:
  - a lock that only they knew is free here, and its holder may work until its TTL ends. So nothing is
    granted for %s. If sessions with a longer TTL may be lost, stop their programs first.
  - a lock that was released there is held here until its session ends.
  - fences go on far above all that were given, so the resources can refuse late holders.

The other nodes must never start again with their present folders: a majority of them would grant the
same locks a second time. Delete the folders, and join from empty ones:
  %s
`, r.Node, r.Cluster, r.Last, r.Uncommitted,
		counted(r.Sessions, "session"), counted(r.Held, "lock"), r.Waiting, r.Frozen,
		strings.Join(r.Others, "\n  "))
}

func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// counterGap is by how much Recover raises the counters of the table, fences among them: above all that
// the lost nodes may have given. At a million a second, they would give so many in 35 years.
const counterGap = 1 << 50

// Examine reports what Recover would do with a folder. It changes nothing of what the node has.
func Examine(ctx context.Context, folder string) (Recovery, error) {
	s, err := storage.Open(ctx, folder, storage.Identity{})
	if err != nil {
		return Recovery{}, err
	}
	r, _, _, err := examine(s)
	return r, errors.Join(err, s.Close())
}

// Recover makes the first node of a new cluster in the empty folder to, which goes on with the locks and
// rules of the node in the folder from, after a majority of its cluster is lost for good. Examine
// says what that may cost. The new cluster has the CA of the old one and another id, so its nodes and
// those of the old one never talk to each other. The other nodes join it from empty folders. c is as for
// Found.
//
// The node in from can't be opened any more afterwards, and at no moment both nodes can. If Recover is
// cut short, it may be called again with the same folders:
//
//	from                                    to
//	locked by this process
//	  locks, rules, settings ───────────>   node.db.new with all of it, synced
//	  retired for that node, synced <────   (storage.CreateAfter decides)
//	                                        renamed to node.db, synced
func Recover(ctx context.Context, from, to string, c Config) (Recovery, error) {
	return recoverTo(ctx, from, to, &c, func(retire func() error) error { return retire() })
}

// A retirement is the record of a folder from which a cluster was recovered.
type retirement struct {
	To     string   `json:"to"` // the new node
	Report Recovery `json:"report"`
}

// recoverTo is Recover. It calls decide with the step that gives the locks to the new node.
func recoverTo(
	ctx context.Context, from, to string, c *Config, decide func(retire func() error) error,
) (Recovery, error) {
	record, err := storage.Retired(from)
	if err != nil {
		return Recovery{}, err
	}
	if record != nil { // an earlier call was cut short after its decision, or was not
		var done retirement
		if err := json.Unmarshal(record, &done); err != nil {
			return Recovery{}, fmt.Errorf("the record of the retired node in %s: %w", from, err)
		}
		_, err := storage.Resume(ctx, to, done.To)
		return done.Report, err
	}
	s, err := storage.Open(ctx, from, storage.Identity{})
	if err != nil {
		return Recovery{}, err
	}
	r, t, settings, err := examine(s)
	if err == nil {
		err = join.CopyAuthority(from, to)
	}
	if err == nil {
		err = found(to, c, &survivor{s, t, r, decide}, settings)
	}
	if closed := s.Close(); !errors.Is(closed, storage.ErrClosed) { // else it is retired
		err = errors.Join(err, closed)
	}
	return r, err
}

// A survivor is the Source of a recovery.
type survivor struct {
	store  *storage.Store
	table  *table.Table
	report Recovery
	decide func(retire func() error) error
}

func (s *survivor) MovedTo() string     { return "" }
func (s *survivor) Table() *table.Table { return s.table }

func (s *survivor) Retire(to string) error {
	record, err := json.Marshal(retirement{to, s.report})
	if err != nil {
		return err
	}
	return s.decide(func() error { return s.store.Retire(record) })
}

// replay returns a replica that has applied all entries of a log, and how many of them were not
// known to be committed. It is never given another input.
func replay(s *storage.Store) (*replica.Replica, uint64, error) {
	state, err := s.State()
	if err != nil {
		return nil, 0, err
	}
	last := state.Snapshot.GetMetadata().GetIndex()
	if n := len(state.Entries); n > 0 {
		last = state.Entries[n-1].GetIndex()
	}
	if state.HardState == nil || last == 0 {
		return nil, 0, lockkeeper.Invalid("node %q has nothing of the log of its cluster", s.Identity().Name)
	}
	committed := max(state.HardState.GetCommit(), state.Snapshot.GetMetadata().GetIndex())
	state.HardState.Commit = new(last)
	c := withDefaults(node.Config{Replica: replica.Config{ID: s.Identity().ID, Incarnation: 1}}).Replica
	r, err := replica.New(c, state, 0)
	if err != nil {
		return nil, 0, err
	}
	switch now := r.Status(); {
	case now.Failed != nil:
		return nil, 0, now.Failed
	case now.Applied != last:
		return nil, 0, fmt.Errorf("change %d of the log could not be applied", now.Applied+1)
	}
	return r, last - committed, nil
}

// examine reports on a log, and returns the table and the settings that a new cluster goes on with.
func examine(s *storage.Store) (r Recovery, t *table.Table, settings []replica.Setting, err error) {
	r.Cluster, r.Node = s.Identity().Cluster, s.Identity().Name
	old, uncommitted, err := replay(s)
	if err != nil {
		return r, nil, nil, err
	}
	r.Last, r.Uncommitted = old.Status().Applied, uncommitted
	snap := old.Table().Snapshot()
	r.count(&snap)
	for _, n := range []*uint64{
		&snap.Counters.Fences, &snap.Counters.Tickets, &snap.Counters.Epochs, &snap.Counters.Changes,
	} {
		*n += counterGap
	}
	snap.Freezes = freezeAll(snap.Freezes, snap.Counters.Now+r.Frozen)
	if t, err = table.Restore(snap); err != nil {
		return r, nil, nil, err
	}
	if _, err = t.Step(&table.Command{At: t.Now(), Op: table.Restart}); err != nil {
		return r, nil, nil, err
	}
	nodes, err := join.Nodes(viewOf(old))
	for i := range nodes {
		if nodes[i].ID != s.Identity().ID {
			r.Others = append(r.Others, nodes[i].Name+" at "+nodes[i].Address.String())
		}
	}
	for _, set := range old.Settings("") {
		if goesOn(set.Key) {
			settings = append(settings, set)
		}
	}
	return r, t, settings, err
}

// count counts what the table has.
func (r *Recovery) count(snap *table.Snapshot) {
	r.Sessions, r.Frozen = len(snap.Sessions), lockkeeper.DefaultTTL
	for i := range snap.Sessions {
		r.Frozen = max(r.Frozen, snap.Sessions[i].TTL)
	}
	for i := range snap.Claims {
		switch snap.Claims[i].State {
		case lockkeeper.Held:
			r.Held++
		case lockkeeper.Waiting:
			r.Waiting++
		}
	}
}

// freezeAll adds a freeze of all paths until an instant of the table.
func freezeAll(all []table.FreezeRecord, until time.Duration) []table.FreezeRecord {
	i := slices.IndexFunc(all, func(f table.FreezeRecord) bool { return f.Path == lockkeeper.Root })
	if i < 0 {
		all, i = slices.Insert(all, 0, table.FreezeRecord{Path: lockkeeper.Root}), 0
	}
	if all[i].Until < until {
		all[i].Until = until
		all[i].Label = lockkeeper.Label{As: "lk cluster recover", Note: "holders that only lost nodes knew may still work"}
	}
	return all
}

// goesOn reports whether a recovered cluster has a setting of the lost one: not those of its nodes,
// tokens and rules.
func goesOn(key string) bool {
	for _, prefix := range []string{nodeKeys, voters.ExpelledPrefix, "token/", "rules"} {
		if strings.HasPrefix(key, prefix) {
			return false
		}
	}
	return key != transferKey
}
