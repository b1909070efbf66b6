package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

const (
	mostReserved = 3      // reservations that a message names
	mostSearched = 10_000 // claims that lk reads to find them
)

// reservedBy says what the name has elsewhere, after a semicolon: "; run-101 holds testsite, waits for db and web".
// It is for a caller that finds nothing at a path, which may be mistyped. The text is empty if the name has nothing
// that this identity may see.
func reservedBy(ctx context.Context, c *connection, as string) string {
	var texts []string
	more, searched := false, 0
	for s, err := range c.List(ctx, lockkeeper.Query{Brief: true}) {
		if searched++; err != nil || searched > mostSearched {
			break
		}
		if s.As != as || !grab.IsGrabbed(s.Ref) {
			continue
		}
		if more = len(texts) == mostReserved; more {
			break
		}
		texts = append(texts, reservationText(s))
	}
	if len(texts) == 0 {
		return ""
	}
	text := fmt.Sprintf("; %s %s", as, strings.Join(texts, ", "))
	if more {
		text += ", and more"
	}
	return text
}

// reservationText is "holds testsite", or "waits for db and web".
func reservationText(s lockkeeper.Status) string {
	does := "holds "
	if s.State == lockkeeper.Waiting {
		does = "waits for "
	}
	var paths []string
	for _, g := range s.Grants[:min(len(s.Grants), mostReserved)] {
		paths = append(paths, string(g.Path))
	}
	if n := len(s.Grants) - mostReserved; n > 0 {
		paths = append(paths, fmt.Sprintf("%d more", n))
	}
	return does + strings.Join(paths, " and ")
}
