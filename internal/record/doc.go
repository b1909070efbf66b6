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
// varints, explicit zeros, tags out of order, bytes after the end). So if the decoder accepts
// bytes, the encoder writes the same bytes again. The decoder allocates at most a constant times
// the length of its input.
//
// # Versions
//
// [Form] is the version of the encoding. It rises when a field is added or changes its meaning; the
// numbers of modes, reasons and other enumerations are part of it.
//
// [table.RulesVersion] is the version of the rules. An entry states the rules under which the
// engine applied its command, because other rules may make another table from the same commands.
// Code that replays an entry must compare [Entry.Rules] with table.RulesVersion. A snapshot is
// state, not commands, so a program with later rules can start from it.
package record
