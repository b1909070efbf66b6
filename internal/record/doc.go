// Package record turns commands and snapshots of package table into bytes and back. A journal or
// a replicated log stores these bytes. The package knows no engine.
//
// # Form
//
//	entry  = form rules command         one command of a log
//	header = form rules counters count  the beginning of a snapshot; count records follow
//	record = kind fields                one session, claim, freeze or hold time of a snapshot
//
// A struct is a sequence of fields, and the tag 0 ends it. A field is its tag, one byte, and its
// value. Tags rise within a struct. A field that is zero is left out. Values:
//
//	unsigned   varint
//	signed     zigzag varint; Forever and -1 swap their codes, so that Forever takes one byte
//	text       length and bytes
//	bool       nothing: the tag says true
//	list       number of elements, and the elements
//	struct     its fields and the tag 0
//
// The form is canonical: a value has one encoding, and the decoder refuses all others (overlong
// varints, a zero that is written, tags out of order, bytes behind the end). So what it accepts,
// the encoder writes again byte for byte. The decoder allocates no more than a constant times the
// length of its input.
//
// # Versions
//
// [Form] is the version of the bytes. It rises when a field is added, or means something else; the
// numbers of modes, reasons and other enumerations are part of it. [table.RulesVersion] is the
// version of the rules. An entry states the rules under which its command was applied, because
// under other rules the same commands may give another table. Whoever replays an entry compares
// [Entry.Rules] with table.RulesVersion. A snapshot is state, not commands, so later rules can go
// on from it.
package record
