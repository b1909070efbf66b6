package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// withSpec tells a target's mode from its path: "s:", "x:", "N:" and "U/N:" say
// how, and anything else is a path, even "https://host/x".
var withSpec = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:([sx])|(?:(\d+)/)?(\d+)):`)
})

// modeLike is what looks as if it were to say how, such as "q:" or "shared:", and
// is no scheme of a URI.
var modeLike = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]+:(?:[^/]|/[^/]|/?$)`)
})

// parseWith reads the SPEC of --with.
func parseWith(spec string) (lockkeeper.Target, error) {
	t := lockkeeper.Target{Mode: lockkeeper.ModeExclusive}
	rest := spec
	if m := withSpec().FindStringSubmatch(spec); m != nil {
		rest = strings.TrimPrefix(spec, m[0])
		switch {
		case m[1] == "s":
			t.Mode = lockkeeper.ModeShared
		case m[3] != "":
			t.Mode, t.Units = lockkeeper.ModePermits, 1
			if m[2] != "" {
				t.Units = permitCount(m[2])
			}
			t.Limit = permitCount(m[3])
		}
	} else if modeLike().MatchString(spec) {
		word, _, _ := strings.Cut(spec, ":")
		return t, fmt.Errorf("--with %s: %q is no mode: x: is alone, s: shared, N: one unit of at most N, U/N: U units; a "+
			"path of that name is --with x:%s", spec, word+":", spec)
	}
	path, err := lockkeeper.ParsePath(rest)
	t.Path = path
	return t, err
}

// permitCount reads digits. What is too large stays so, for the check of the range.
func permitCount(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return lockkeeper.MaxPermits + 1
	}
	return n
}
