package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// contest writes messages about the paths that a command wants and others hold. All verbs
// that take locks use it.
type contest struct {
	wanted []lockkeeper.Path
	around []lockkeeper.Status // holds of the runs around this one
}

// mostWanted bounds the paths that a message names.
const mostWanted = 5

// name returns the wanted path that the first blocker blocks; without a blocker, all paths.
func (c contest) name(blocked []lockkeeper.Blocker) string {
	if len(blocked) > 0 {
		for _, path := range c.wanted {
			if path.Covers(blocked[0].Path) || blocked[0].Path.Covers(path) {
				return string(path)
			}
		}
	}
	return c.all()
}

// all names the first path and counts the others.
func (c contest) all() string {
	if n := len(c.wanted) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", c.wanted[0], n)
	}
	return string(c.wanted[0])
}

// others lists all wanted paths, in brackets after a space; it is empty for one path.
func (c contest) others() string {
	if len(c.wanted) < 2 {
		return ""
	}
	names := make([]string, 0, mostWanted)
	for _, path := range c.wanted[:min(len(c.wanted), mostWanted)] {
		names = append(names, string(path))
	}
	more := ""
	if n := len(c.wanted) - mostWanted; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return " (wanted: " + strings.Join(names, ", ") + more + ")"
}

// line describes the wait of a claim: "b: held by ci-17 for 2m, 2nd in line (wanted: a, b)".
func (c contest) line(status lockkeeper.Status) string {
	return c.name(status.Blockers) + ": " + waitLine(status) + c.others()
}

// blockedText describes the first blocker of a claim that was at a position, and counts the others.
func (c contest) blockedText(blocked []lockkeeper.Blocker, position int) string {
	text := blockerText(blocked[0])
	if c.isAround(blocked[0].Ref) {
		text = "held by the lk run around this command"
	}
	return text + moreText(blocked, position)
}

func (c contest) isAround(ref lockkeeper.Ref) bool {
	return slices.ContainsFunc(c.around, func(hold lockkeeper.Status) bool { return hold.Ref == ref })
}

// deadlock explains why a run was refused: it would wait for a run around it, which waits
// for this command. It is empty for other errors.
func (c contest) deadlock(err *lockkeeper.Error) string {
	if !errors.Is(err, lockkeeper.ErrDeadlock) {
		return ""
	}
	i := slices.IndexFunc(err.Blocked, func(b lockkeeper.Blocker) bool { return c.isAround(b.Ref) })
	if i < 0 {
		return ""
	}
	b := err.Blocked[i]
	path := c.name(err.Blocked[i:])
	does, remedy := "holds", fmt.Sprintf("Take %s there.", path)
	if b.Mode == lockkeeper.ModeShared {
		does, remedy = "shares", fmt.Sprintf("Take %s there, without -s.", path)
		if b.Path.Covers(lockkeeper.Path(path)) {
			remedy = "Take it without -s there."
		}
	}
	return fmt.Sprintf("%s: deadlock: the lk run around this command %s %s, and does not release it before this "+
		"command ends. %s",
		path, does, b.Path, remedy)
}
