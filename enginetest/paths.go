package enginetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// R1: paths are compared byte by byte, and have one spelling.
var pathChecks = []check{
	{"R1/bytes decide", 0, func(w *world) {
		different := []string{
			"a", "A", "a ", " a", "á", "a\u0301", "a%", "a_", "a%2F", "a.", "...", "a\\", "a'", "a\"", "a;--", "a\u00a0",
			"*", "?", "[a]", "#a", "$a", "{a}", "aa", "ａ", "😀", "__proto__", "toString", "null", "0", "-1", "=", "|",
			strings.Repeat("x", lockkeeper.MaxPathBytes), strings.Repeat("x", lockkeeper.MaxPathBytes-1),
		}
		one, two := w.peer("one"), w.peer("two")
		for _, path := range different {
			one.hold(exclusive(path))
		}
		for _, path := range different {
			two.refused(exclusive(path)) // the same path is held, whatever its characters
		}
		one.leave()
		for _, path := range different {
			two.hold(exclusive(path))
		}
	}},
	{"R1/names below each other only by segments", trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db/1"))
		for _, path := range []string{"db/10", "db/1 ", "db-1/x", "db1", "db/01", "d/b/1", "db/1%2Fx"} {
			two.hold(exclusive(path))
		}
		for _, path := range []string{"db", "db/1", "db/1/x", "db/1/x/y/z"} {
			two.refused(exclusive(path))
		}
	}},
	{"R1/deepest path", trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		deep := strings.Repeat("s/", lockkeeper.MaxPathSegments-1) + "s"
		one.hold(exclusive(deep))
		for p := range lockkeeper.Path(deep).Ancestors() {
			two.refused(exclusive(string(p)))
		}
	}},
	{"R1/case T3.6h one lock by any spelling", trees, func(w *world) {
		one, two := w.client("one"), w.client("two")
		for i, pair := range [][2]string{{"q", "q/"}, {"a//b", "a/b"}, {"/x/y/", "x/y"},
			{"https://host/page", "https:/host/page"}} {
			if _, err := one.TryLock(w.ctx(), pair[0]); err != nil {
				w.Fatal(i, err)
			}
			_, err := two.TryLock(w.ctx(), pair[1])
			w.is(err, lockkeeper.ErrNotAcquired)
		}
		for _, path := range []string{"", "/", "//", ".", "..", "a/../b", "a/.", "a\n", "a\x00b", "\xff"} {
			_, err := two.TryLock(w.ctx(), path)
			w.is(err, lockkeeper.ErrInvalid)
		}
	}},
	{"R1/case T1.18h odd names work like others", trees, func(w *world) {
		one, two := w.client("one"), w.client("two")
		long := "long/" + strings.Repeat("n", lockkeeper.MaxPathBytes-len("long/"))
		for _, path := range []string{"a|b", "a=b", "a?b", "http://user@host:80/p?q=1#f", long} {
			h, err := one.Lock(w.ctx(), path)
			w.ok(err)
			_, err = two.TryLock(w.ctx(), path)
			w.is(err, lockkeeper.ErrNotAcquired)
			w.ok(h.Release(w.ctx()))
			h, err = two.TryLock(w.ctx(), path)
			w.ok(err)
			w.ok(h.Close())
		}
		for _, path := range []string{"line\nbreak", long + "n"} {
			_, err := one.TryLock(w.ctx(), path)
			w.is(err, lockkeeper.ErrInvalid)
		}
	}},
	{"R1/queries of what is no path", trees | lists, func(w *world) {
		p := w.peer("one")
		long := strings.Repeat("s", lockkeeper.MaxSessionID+1)
		for _, q := range []lockkeeper.Query{
			{Meets: "/a"}, {Meets: "a/"}, {Meets: "a//b"}, {Meets: "a\n"}, {Session: long},
			{Ref: lockkeeper.Ref{Session: long, ID: 1}},
		} {
			for _, q.Follow = range []bool{false, true} {
				ctx, cancel := context.WithCancel(w.ctx())
				var refusal error
				for _, refusal = range p.engine.List(ctx, q) {
					break
				}
				cancel()
				w.is(refusal, lockkeeper.ErrInvalid)
			}
		}
		p.hold(exclusive("a")) // the engine still works
	}},
	{"R1/segments that hold anything", trees, func(w *world) {
		seen := make(map[lockkeeper.Path]bool)
		p := w.peer("one")
		for _, segments := range [][]string{{"r/1", "snmp"}, {"r", "1/snmp"}, {"r", "1", "snmp"}, {"r%2F1", "snmp"},
			{"..", "snmp"}, {"\n", "\xff"}} {
			path, err := lockkeeper.PathOf(segments...)
			w.ok(err)
			if seen[path] {
				w.Fatalf("%q make a path that others made: %s", segments, path)
			}
			seen[path] = true
			p.hold(exclusive(string(path)))
		}
	}},
	{"R1/only the one spelling reaches an engine", 0, func(w *world) {
		p := w.peer("one")
		for _, path := range []string{"", "/", "a/", "/a", "a//b", ".", "a/..", "a\x7f", "\xc0",
			strings.Repeat("x", lockkeeper.MaxPathBytes+1),
			strings.Repeat("s/", lockkeeper.MaxPathSegments) + "s"} {
			if s, err := p.send(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive(path)}}); err == nil {
				w.Errorf("%s is accepted: %+v", fmt.Sprintf("%.40q", path), s)
			} else {
				w.isInvalid(path, err, trees)
			}
		}
	}},
}
