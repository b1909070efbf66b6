package sqllock

import (
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// columns are the names of the columns of a table, and which of them are numbers. The lists below are data
// of the program: a map or a call would be made at every start of a program that links this package.
type columns struct {
	names   string
	numbers []string
}

var (
	sessionNumbers = []string{"ttl_ns", "deadline_ns", "promise_ns", "epoch", "last_lease", "acked", "lowest_open",
		"version"}
	claimNumbers = []string{"id", "priority", "ticket", "fence", "arrived_ns", "granted_ns", "wait_ns", "bound_ns",
		"notified_ns", "ended_ns", "forget_ns", "unacked_ns", "change_no", "changed_ns", "inside_id"}
	targetNumbers   = []string{"class", "rank", "ticket", "id", "mode"}
	freezeNumbers   = []string{"claim", "since_ns", "until_ns"}
	holdTimeNumbers = []string{"estimate_ns", "at_ns"}
	wakeupNumbers   = []string{"id", "sent_ns"}

	sessionColumns  = columns{rows.SessionColumns + ", process, attempt, version", sessionNumbers}
	claimsColumns   = columns{rows.ClaimColumns + ", inside_session, inside_id", claimNumbers}
	targetColumns   = columns{"path, class, rank, ticket, session, id, mode", targetNumbers}
	keyOfClaims     = columns{"session, id", claimNumbers}
	keyOfTargets    = columns{"path, class, rank, ticket, session, id", targetNumbers}
	freezeColumns   = columns{rows.FreezeColumns, freezeNumbers}
	holdTimeColumns = columns{rows.HoldTimeColumns, holdTimeNumbers}
	wakeupColumns   = columns{"process, session, id, sent_ns", wakeupNumbers}
)

// but returns the names without keys.
func (c columns) but(keys ...string) []string {
	return slices.DeleteFunc(strings.Split(c.names, ", "), func(name string) bool { return slices.Contains(keys, name) })
}

// sessionRows returns the values of sessions, with their next versions.
func sessionRows(all []session) [][]any {
	var out [][]any
	for i := range all {
		s := &all[i]
		row := rows.SessionValues(&s.SessionRecord)
		if s.Closed {
			row[1] = "closed"
		}
		out = append(out, append(row, s.process, s.attempt, s.version+1))
	}
	return out
}

func claimRows(all []*rows.Claim) ([][]any, error) {
	var out [][]any
	for i := range all {
		row, err := all[i].Values()
		if err != nil {
			return nil, err
		}
		var session, id any
		if in := all[i].Want.Inside; in != (lockkeeper.Ref{}) {
			session, id = in.Session, int64(in.ID)
		}
		out = append(out, append(row, session, id))
	}
	return out, nil
}

func targetValues(all []targetRow) [][]any {
	var out [][]any
	for _, t := range all {
		out = append(out, []any{string(t.path), int64(t.class), int64(-t.priority), int64(t.ticket), t.ref.Session,
			int64(t.ref.ID), modeNumber(t.mode)})
	}
	return out
}

func refKeys(refs []lockkeeper.Ref) (keys [][]any) {
	for _, ref := range refs {
		keys = append(keys, []any{ref.Session, int64(ref.ID)})
	}
	return keys
}

func targetKeys(all []targetRow) (keys [][]any) {
	for _, row := range targetValues(all) {
		keys = append(keys, row[:len(row)-1])
	}
	return keys
}

// modeNumber is the number of a mode in the table of targets.
func modeNumber(m lockkeeper.Mode) int64 {
	switch m {
	case lockkeeper.ModeExclusive:
		return 1
	case lockkeeper.ModeShared:
		return 2
	}
	return 3
}

func freezeValues(all []table.FreezeRecord) [][]any {
	var out [][]any
	for i := range all {
		out = append(out, rows.FreezeValues(&all[i]))
	}
	return out
}

func holdTimeValues(all []table.HoldTimeRecord) [][]any {
	var out [][]any
	for _, p := range all {
		out = append(out, []any{string(p.Path), int64(p.Estimate), int64(p.At)})
	}
	return out
}

func wakeupValues(all []wakeup, now time.Duration) [][]any {
	var out [][]any
	for _, b := range all {
		out = append(out, []any{b.process, b.ref.Session, int64(b.ref.ID), int64(now)})
	}
	return out
}

func claimReader(each func(region int, c *rows.Claim)) func(scanner) error {
	return func(scan scanner) error {
		c, region := &rows.Claim{}, 0
		err := c.Scan(scan, &region)
		each(region, c)
		return err
	}
}

// claimColumns returns the columns of claims, of a table with that name.
func claimColumns(of string) string {
	return of + "." + strings.ReplaceAll(rows.ClaimColumns, ", ", ", "+of+".")
}

func sessionReader(each func(*session)) func(scanner) error {
	return func(scan scanner) error {
		s := &session{}
		err := rows.ScanSession(&s.SessionRecord, scan, &s.process, &s.attempt, &s.version)
		each(s)
		return err
	}
}

func freezeReader(each func(table.FreezeRecord)) func(scanner) error {
	return func(scan scanner) error {
		var f table.FreezeRecord
		err := rows.ScanFreeze(&f, scan)
		each(f)
		return err
	}
}

func holdTimeReader(each func(table.HoldTimeRecord)) func(scanner) error {
	return func(scan scanner) error {
		var p table.HoldTimeRecord
		err := scan(&p.Path, &p.Estimate, &p.At)
		each(p)
		return err
	}
}

func numberReader(to *uint64) func(scanner) error {
	return func(scan scanner) error {
		var n int64
		err := scan(&n)
		*to = uint64(n)
		return err
	}
}

func idReader(each func(id string)) func(scanner) error {
	return func(scan scanner) error {
		var id string
		err := scan(&id)
		each(id)
		return err
	}
}
