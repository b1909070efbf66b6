package lockkeeper

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a [Path] (R1).
const (
	MaxPathSegments = 16
	MaxPathBytes    = 512
)

// A Path names something to lock: segments joined by single slashes, such as
// "mydatabase/mytest". Its first segment names the tree that it is in. Paths
// are compared byte by byte. The only valid paths are those that [ParsePath]
// and [PathOf] return.
type Path string

// Root covers all paths. Only a freeze may name it (R18). A lock of Root would make unrelated
// programs wait for each other, and any program that may lock something could stop all others.
// [ParsePath] does not return it.
const Root Path = "/"

// ParsePath reads a path as a person types it (R1). It ignores extra, leading and trailing slashes,
// so "a//b/" is "a/b", and a URI is a valid path. It returns [ErrInvalid] for a path without
// segments, the segments "." and "..", text that is not UTF-8, control characters, invisible
// characters (bidirectional, zero-width, line separators), and a path that exceeds
// [MaxPathSegments] or [MaxPathBytes].
func ParsePath(s string) (Path, error) {
	if Path(s).check() == nil {
		return Path(s), nil
	}
	segments := strings.FieldsFunc(s, func(r rune) bool { return r == '/' })
	if len(segments) == 0 {
		return "", Path(s[:min(1, len(s))]).check() // the message quotes the text as typed: "" or "/"
	}
	p := Path(strings.Join(segments, "/"))
	if err := p.check(); err != nil {
		return "", err
	}
	return p, nil
}

// PathOf joins segments that may contain any bytes, slashes included. It escapes characters that a
// path refuses as in a URL ("%2F"), and "%" itself, so that different segments never make the same
// path. It returns [ErrInvalid] without segments, for an empty segment, and for a path that exceeds
// [MaxPathSegments] or [MaxPathBytes].
func PathOf(segments ...string) (Path, error) {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		if s == "" {
			return "", invalidf("path: segment %d of %d is empty: name it", i+1, len(segments))
		}
		escaped[i] = escapeSegment(s)
	}
	p := Path(strings.Join(escaped, "/"))
	if err := p.check(); err != nil {
		return "", err
	}
	return p, nil
}

func escapeSegment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '/' || r == '%' || unicode.IsControl(r) || hidden(r) || (r == utf8.RuneError && size == 1) {
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// Valid reports whether p is a path as [ParsePath] returns it.
func (p Path) Valid() bool { return p.check() == nil }

// checkFreezable is check for a path that a freeze may name.
func (p Path) checkFreezable() error {
	if p == Root {
		return nil
	}
	return p.check()
}

// parseFreezable reads the path of a freeze as a person types it: a path, or "/" for [Root].
func parseFreezable(s string) (Path, error) {
	if Path(s) == Root {
		return Root, nil
	}
	return ParsePath(s)
}

// check returns why ParsePath would refuse p; nil if it would not.
func (p Path) check() error {
	if p == "" || p == Root {
		return invalidf("path %q names nothing: write a name such as \"mydatabase/mytest\"", string(p))
	}
	if len(p) > MaxPathBytes {
		return invalidf("path %q… has %d bytes: at most %d are allowed", string(p[:40]), len(p), MaxPathBytes)
	}
	segments, start := 1, 0
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		switch p[start:i] {
		case "":
			return invalidf("path %q has an empty segment", string(p))
		case ".", "..":
			return invalidf("path %q: the segment %q is not allowed: write the path in full", string(p), string(p[start:i]))
		}
		if i < len(p) {
			segments++
		}
		start = i + 1
	}
	if segments > MaxPathSegments {
		return invalidf("path %q has %d segments: at most %d are allowed", string(p), segments, MaxPathSegments)
	}
	if isPlain(string(p)) {
		return nil
	}
	for i, r := range string(p) {
		if r == utf8.RuneError && !strings.HasPrefix(string(p[i:]), string(utf8.RuneError)) {
			return invalidf("path %q is not UTF-8 at byte %d: "+
				"leave that byte out, or put the text \"%%%02X\" in its place, which is not decoded", string(p), i, p[i])
		}
		if unicode.IsControl(r) {
			return invalidf("path %q has the control character %U at byte %d: "+
				"leave it out, or put the text %q in its place, which is not decoded",
				string(p), r, i, escapeSegment(string(r)))
		}
		if hidden(r) {
			return invalidf("path %q has the invisible character %U at byte %d: "+
				"leave it out, or put the text %q in its place, which is not decoded",
				string(p), r, i, escapeSegment(string(r)))
		}
	}
	return nil
}

// Tree returns the first segment, which names the tree that p is in. The tree of [Root] is Root.
func (p Path) Tree() Path {
	if p == Root {
		return p
	}
	if i := strings.IndexByte(string(p), '/'); i >= 0 {
		return p[:i]
	}
	return p
}

// Ancestors yields the paths above p, the tree's root first; not p itself, nor [Root].
func (p Path) Ancestors() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for i := range len(p) {
			if i > 0 && p[i] == '/' && !yield(p[:i]) {
				return
			}
		}
	}
}

// Covers reports whether q is p or below it.
func (p Path) Covers(q Path) bool {
	return p == Root || len(q) >= len(p) && q[:len(p)] == p && (len(q) == len(p) || q[len(p)] == '/')
}

func (p Path) String() string { return string(p) }
