package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

func (m *memory) freezes(each func(table.FreezeRecord)) statement {
	return does("freezes", func(*memoryLink) error {
		for _, path := range slices.Sorted(maps.Keys(m.tables.freezes)) {
			each(m.tables.freezes[path])
		}
		return nil
	})
}

func (m *memory) holdTimes(paths []lockkeeper.Path, each func(table.HoldTimeRecord)) statement {
	return does("hold_times", func(*memoryLink) error {
		for _, path := range slices.Sorted(maps.Keys(m.tables.holdTimes)) {
			if paths == nil || slices.Contains(paths, path) {
				each(m.tables.holdTimes[path])
			}
		}
		return nil
	})
}

func (m *memory) sessions(ids []string, lock bool, each func(*session)) statement {
	return statement{text: "sessions", args: []any{doing(func(l *memoryLink) error {
		l.alone = l.alone || lock
		for _, id := range slices.Sorted(maps.Keys(m.tables.sessions)) {
			s := m.tables.sessions[id]
			if ids != nil && !slices.Contains(ids, id) || ids == nil && s.Closed {
				continue
			}
			if lock {
				if err := l.lock(id); err != nil {
					return err
				}
			}
			each(&s)
		}
		return nil
	}), lock, ids}}
}

// claims implements dialect, as the statements of Postgres do.
func (m *memory) claims(s *search, each func(region int, c *rows.Claim)) statement {
	return does("claims", func(*memoryLink) error {
		give := func(region int, ref lockkeeper.Ref) {
			if row, there := m.tables.claims[ref]; there {
				c := row.Claim
				each(region, &c)
			}
		}
		all := slices.SortedFunc(maps.Keys(m.tables.claims), compareRefs)
		for _, ref := range s.refs {
			give(byName, ref)
		}
		for _, ref := range all {
			row := m.tables.claims[ref]
			if live := row.ClaimRecord.State != lockkeeper.Ended; live && slices.Contains(s.inside, row.Want.Inside) {
				give(byName, ref)
			}
			if slices.Contains(s.sessions, ref.Session) || slices.Contains(s.renewed, ref.Session) && m.renewed(s.now, row) {
				give(byName, ref)
			}
			if live := row.ClaimRecord.State != lockkeeper.Ended; s.everyone && live || s.ended && !live && row.Ended > s.since {
				give(byName, ref)
			}
		}
		within := make(map[lockkeeper.Ref]bool)
		m.byRegion(s, func(region int, ref lockkeeper.Ref) {
			give(region, ref)
			within[ref] = s.deep
		})
		for _, ref := range all {
			if row := m.tables.claims[ref]; row.ClaimRecord.State != lockkeeper.Ended && within[row.Want.Inside] {
				give(byHold, ref)
			}
		}
		return nil
	})
}

// renewed reports whether a renewal at that time reads the claim.
func (m *memory) renewed(now time.Duration, row claimRow) bool {
	s, known := m.tables.sessions[row.Ref.Session]
	ended := row.ClaimRecord.State == lockkeeper.Ended
	waits := row.ClaimRecord.State == lockkeeper.Waiting || row.Converting
	return known && (waits || row.StatedEnd != lockkeeper.Forever || row.more || row.Changed >= now-s.TTL) &&
		(!ended || row.Forget > now)
}

func (m *memory) byRegion(s *search, give func(int, lockkeeper.Ref)) {
	keys := slices.SortedFunc(maps.Keys(m.tables.targets), func(a, b targetKey) int { return a.compare(b.order) })
	found := make(map[part]int)
	for i, r := range s.regions {
		waiting := 0
		for _, key := range keys {
			if !r.has(key.path, m.tables.targets[key]) {
				continue
			}
			if waits := key.class == classHard || key.class == classSoft; s.limit > 0 && waits {
				if waiting++; waiting > s.limit {
					continue
				}
			}
			if found[r.part]++; s.limit == 0 && s.most > 0 && found[r.part] > s.most {
				break
			}
			give(i, key.ref)
		}
	}
}

func (m *memory) hold(all []session) []statement {
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return []statement{{text: "hold", args: []any{doing(func(l *memoryLink) error {
		for _, s := range all {
			if err := l.lock(s.ID); err != nil {
				return err
			}
			kept, known := m.tables.sessions[s.ID]
			if !known || kept.version != s.version {
				return errConflict
			}
			kept.Acked, kept.LowestOpen, kept.version = s.Acked, s.LowestOpen, s.version+1
			l.writes = append(l.writes, func() { m.tables.sessions[s.ID] = kept })
		}
		return nil
	}), true, ids}}}
}

func (m *memory) putSessions(new, changed []session) []statement {
	return []statement{does("put sessions", func(l *memoryLink) error {
		for _, s := range new {
			if _, there := m.tables.sessions[s.ID]; there || m.locks[s.ID] != nil {
				return errConflict // as a unique key has it
			}
			if err := l.lock(s.ID); err != nil {
				return err
			}
		}
		for _, s := range slices.Concat(new, changed) {
			if !l.locked[s.ID] {
				m.blame("session %s is written and its row is not locked", s.ID)
			}
			kept := session{process: s.process, attempt: s.attempt, version: s.version + 1}
			values := rows.SessionValues(&s.SessionRecord)
			if s.Closed {
				values[1] = "closed"
			}
			if err := rows.ScanSession(&kept.SessionRecord, valuesScanner(rows.SessionColumns, values)); err != nil {
				return err
			}
			l.writes = append(l.writes, func() { m.tables.sessions[s.ID] = kept })
		}
		return nil
	})}
}

func (m *memory) putClaims(new, changed []*rows.Claim, gone []lockkeeper.Ref) ([]statement, error) {
	var kept []claimRow
	all := slices.Concat(new, changed)
	for i := range all {
		values, err := all[i].Values()
		if err != nil {
			return nil, err
		}
		row := claimRow{more: values[len(values)-1] != ""}
		if err := row.Scan(valuesScanner(rows.ClaimColumns, values)); err != nil {
			return nil, err
		}
		kept = append(kept, row)
	}
	return []statement{does("put claims", func(l *memoryLink) error {
		for i, row := range kept {
			m.mayWrite(l, row.Ref, row.ClaimRecord.State == lockkeeper.Ended)
			if _, there := m.tables.claims[row.Ref]; there && i < len(new) {
				return errConflict // as a unique key has it
			}
			l.writes = append(l.writes, func() { m.tables.claims[row.Ref] = row })
		}
		for _, ref := range gone {
			m.mayWrite(l, ref, true)
			l.writes = append(l.writes, func() { delete(m.tables.claims, ref) })
		}
		return nil
	})}, nil
}

// valuesScanner reads values into what it is given, as strictly as databases do.
func valuesScanner(columns string, values []any) func(...any) error {
	return func(into ...any) error {
		if n := strings.Count(columns, ", ") + 1; n != len(values) || n != len(into) {
			return fmt.Errorf("%d columns, %d values, read as %d", n, len(values), len(into))
		}
		for i, v := range values {
			if s, ok := into[i].(sql.Scanner); ok {
				if err := s.Scan(v); err != nil {
					return err
				}
				continue
			}
			to, from := reflect.ValueOf(into[i]).Elem(), reflect.ValueOf(v)
			isText := to.Kind() == reflect.String || to.Type() == reflect.TypeFor[[]byte]()
			if _, text := v.(string); v == nil || text != isText {
				return fmt.Errorf("column %d is %v, which is no %s", i+1, v, to.Type())
			}
			to.Set(from.Convert(to.Type()))
		}
		return nil
	}
}

func (m *memory) putTargets(old, new []targetRow) []statement {
	return []statement{does("put targets", func(l *memoryLink) error {
		for _, t := range old {
			m.mayRemove(l, t)
			l.writes = append(l.writes, func() { delete(m.tables.targets, targetKey{t.path, t.order}) })
		}
		for _, t := range new {
			m.mayAdd(l, t)
			l.writes = append(l.writes, func() {
				key := targetKey{t.path, t.order}
				if _, there := m.tables.targets[key]; there {
					m.blame("two targets with one key: %v", key)
				}
				m.tables.targets[key] = t.mode
			})
		}
		return nil
	})}
}

func (m *memory) putFreezes(ended []lockkeeper.Path, new []table.FreezeRecord) []statement {
	return []statement{does("put freezes", func(l *memoryLink) error {
		for _, path := range ended {
			if f := m.tables.freezes[path]; !l.has(path) && f.Until > m.now {
				m.blame("the freeze of %s is ended, which is not latched", path)
			}
			l.writes = append(l.writes, func() { delete(m.tables.freezes, path) })
		}
		for _, f := range new {
			if !l.has(f.Path) {
				m.blame("the freeze of %s is written, which is not latched", f.Path)
			}
			l.writes = append(l.writes, func() { m.tables.freezes[f.Path] = f })
		}
		return nil
	})}
}

func (m *memory) putHoldTimes(all []table.HoldTimeRecord) []statement {
	return []statement{does("put holdTimes", func(l *memoryLink) error {
		for _, p := range all {
			if !l.has(p.Path) {
				m.blame("the pace of %s is written, which is not latched", p.Path)
			}
			l.writes = append(l.writes, func() { m.tables.holdTimes[p.Path] = p })
		}
		return nil
	})}
}

func (m *memory) dropEnded(id string, keep bool) statement {
	return does("drop ended", func(l *memoryLink) error {
		if _, known := m.tables.sessions[id]; known && !l.locked[id] {
			m.blame("what session %s had is dropped and its row is not locked", id)
		}
		l.writes = append(l.writes, func() {
			for ref, c := range m.tables.claims {
				switch {
				case ref.Session != id || c.ClaimRecord.State != lockkeeper.Ended:
				case keep:
					c.Forget, c.UnackedUntil = 0, 0
					m.tables.claims[ref] = c
				default:
					delete(m.tables.claims, ref)
				}
			}
		})
		return nil
	})
}

func (m *memory) sendWakeups(wakeups []wakeup, _ time.Duration) []statement {
	return []statement{does("ring", func(l *memoryLink) error {
		l.writes = append(l.writes, func() { m.tables.wakeups = append(m.tables.wakeups, wakeups...) })
		return nil
	})}
}

func (m *memory) readWakeups(process string, each func(n int, c *rows.Claim)) statement {
	return does("answer", func(*memoryLink) error {
		for i, b := range m.tables.wakeups {
			if row, there := m.tables.claims[b.ref]; there && b.process == process {
				c := row.Claim
				each(i, &c)
			}
		}
		return nil
	})
}

func (m *memory) removeWakeups(process string, _ []int) []statement {
	return []statement{does("answered", func(*memoryLink) error {
		m.tables.wakeups = slices.DeleteFunc(m.tables.wakeups, func(b wakeup) bool { return b.process == process })
		return nil
	})}
}

func (m *memory) drawn(to *uint64) statement {
	return does("drawn", func(*memoryLink) error { *to = m.numbers; return nil })
}

func (m *memory) announceWatcher(string, time.Duration) statement {
	return does("follow", func(*memoryLink) error { m.watched = true; return nil })
}

func (m *memory) overdue(before time.Duration, each func(id string)) statement {
	return does("overdue", func(*memoryLink) error {
		lives := make(map[string]bool)
		for ref, c := range m.tables.claims {
			lives[ref.Session] = lives[ref.Session] || c.ClaimRecord.State != lockkeeper.Ended
		}
		for _, id := range slices.Sorted(maps.Keys(m.tables.sessions)) {
			if s := m.tables.sessions[id]; s.Deadline < before && (!s.Closed || lives[id]) {
				each(id)
			}
		}
		return nil
	})
}

func (m *memory) purge(now, before time.Duration) []statement {
	return []statement{does("purge", func(*memoryLink) error {
		gone := make(map[lockkeeper.Ref]bool)
		for ref, c := range m.tables.claims {
			gone[ref] = c.ClaimRecord.State == lockkeeper.Ended && c.Ended <= before && c.Forget <= now && c.UnackedUntil <= now
		}
		maps.DeleteFunc(m.tables.targets, func(key targetKey, _ lockkeeper.Mode) bool { return gone[key.ref] })
		maps.DeleteFunc(m.tables.claims, func(ref lockkeeper.Ref, _ claimRow) bool { return gone[ref] })
		has := make(map[string]bool)
		for ref := range m.tables.claims {
			has[ref.Session] = true
		}
		maps.DeleteFunc(m.tables.sessions, func(id string, s session) bool {
			return s.Closed && s.Deadline <= before &&
				!has[id]
		})
		return nil
	})}
}

func (m *memory) listen() func(context.Context, *Engine, *listening) error { return nil }
