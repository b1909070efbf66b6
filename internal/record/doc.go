// Package record turns commands and snapshots of package table into bytes and back. A journal or
// a replicated log stores these bytes. The package knows no engine.
//
// # Form
//
//	batch  = form rules command ...     commands of a log that became safe together
//	entry  = form rules command         one command by itself
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
// The commands of a batch follow each other closely, mostly of few sessions. So a command states its
// time as the difference to the command before in the batch. If its key has the session and the
// epoch of the key before, field 3 says so, and LowestOpen is a difference too. Differences are
// signed and may wrap around.
//
// # Versions
//
// [Form] is the version of the encoding. It rises when a field is added or changes its meaning; the
// numbers of modes, reasons and other enumerations are part of it.
//
// [table.RulesVersion] is the version of the rules. A batch states the rules under which the engine
// applied its commands, because other rules may make another table from the same commands. Code that
// replays a batch must compare [BatchReader.Rules] with table.RulesVersion. A snapshot is state, not
// commands, so a program with later rules can start from it. The nodes of a cluster may have programs
// with different rules; they write entries and headers under the rules that all of them have.
package record
