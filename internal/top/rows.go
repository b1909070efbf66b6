package top

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// row is a line of the tree: a claim at one of its paths, or a path above some.
type row struct {
	path   lockkeeper.Path
	first  bool               // of its path: the others leave the name out
	status *lockkeeper.Status // nil: only a path
	grant  lockkeeper.Grant
	index  int // of status in the reading
}

// place names the path of a row in a sentence.
func (r *row) place() string {
	if r.path == lockkeeper.Root {
		return "everything"
	}
	return cells.Clean(string(r.path))
}

// name is the last segment of the path, indented by the number of those before.
func (r *row) name() string {
	if !r.first {
		return ""
	}
	segments := strings.Split(string(r.path), "/")
	if r.path == lockkeeper.Root {
		return "everything"
	}
	return strings.Repeat("  ", len(segments)-1) + cells.Clean(segments[len(segments)-1])
}

// same reports whether two rows are about the same thing.
func (r *row) same(o *row) bool {
	if r.path != o.path || (r.status == nil) != (o.status == nil) {
		return false
	}
	return r.status == nil || r.status.Ref == o.status.Ref
}

func (m *Model) selected() (row, bool) {
	if m.at < 0 || m.at >= len(m.rows) {
		return row{}, false
	}
	return m.rows[m.at], true
}

// rebuild makes the rows of the reading. The selected row stays selected as long as it is there.
func (m *Model) rebuild() {
	was, had := m.selected()
	m.rows = m.tree()
	if !had { // a claim is what most keys are about
		m.at = slices.IndexFunc(m.rows, func(r row) bool { return r.status != nil })
	} else if i := slices.IndexFunc(m.rows, func(r row) bool { return r.same(&was) }); i >= 0 {
		m.at = i
	}
	m.at = max(0, min(m.at, len(m.rows)-1))
}

// tree returns the rows of the claims that the filter and the queue leave, in the order of their paths,
// each path with those above it, and its claims in the order of the list.
func (m *Model) tree() []row {
	query := lockkeeper.Query{Meets: m.queue}
	at := map[lockkeeper.Path][]row{}
	for i := range m.reading.All {
		s := &m.reading.All[i]
		if m.queue != "" && !query.Selects(s) {
			continue
		}
		for _, g := range s.Grants {
			if !m.matches(s, g.Path) {
				continue
			}
			at[g.Path] = append(at[g.Path], row{path: g.Path, status: s, grant: g, index: i})
			for above := range g.Path.Ancestors() {
				if _, known := at[above]; !known && above != lockkeeper.Root {
					at[above] = nil
				}
			}
		}
	}
	paths := make([]lockkeeper.Path, 0, len(at))
	for path := range at {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b lockkeeper.Path) int {
		return slices.Compare(strings.Split(string(a), "/"), strings.Split(string(b), "/"))
	})
	var rows []row
	for _, path := range paths {
		here := at[path]
		if len(here) == 0 {
			here = []row{{path: path}}
		}
		here[0].first = true
		rows = append(rows, here...)
	}
	return rows
}

func (m *Model) matches(s *lockkeeper.Status, path lockkeeper.Path) bool {
	if m.filter == "" {
		return true
	}
	text := string(path) + "\n" + listing.OwnerName(s.Label, s.Ref) + "\n" + s.Note + "\n" + s.Link
	return strings.Contains(strings.ToLower(text), m.filter)
}

// scroll moves the screen so that the selected row is on it.
func (m *Model) scroll() {
	n := m.listRows()
	m.top = max(min(m.top, m.at), m.at-n+1, 0)
	m.top = min(m.top, max(0, len(m.rows)-n))
	m.line = max(0, min(m.line, len(m.wrapped())-n))
}
