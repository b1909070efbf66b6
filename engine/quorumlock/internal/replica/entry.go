package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// The data of an entry in bytes:
//
//	data    = form 1 call*          a batch
//	        | form 2 index hash     the leader's state has this hash after the entry with that index
//	call    = node incarnation number request
//	request = 1 command | 2 setting
//
// An entry without data is the first one of a leader. Numbers are varints; package record has the form
// of commands. All commands of a batch have the same time. A request of the leader itself has
// node 0. The form is the version of this picture, and of that of snapshots. A later form is written
// only under later rules, because then all nodes know it.
const (
	form = 1

	entryBatch = 1
	entryHash  = 2

	requestCommand = 1
	requestSetting = 2
)

// newEntry begins the data of an entry.
func newEntry(kind byte) []byte { return []byte{form, kind} }

// cutKind reads what newEntry wrote.
func cutKind(data []byte) (kind byte, rest []byte, err error) {
	if len(data) < 2 {
		return 0, nil, errShort
	}
	if data[0] != form {
		return 0, nil, fmt.Errorf("%w: it has form %d, this program has form %d", ErrVersion, data[0], form)
	}
	return data[1], data[2:], nil
}

// An origin is the call that a request belongs to: its number in one process of one node.
type origin struct {
	node        uint64
	incarnation uint64
	call        CallID
}

// A request is what a call wants: a command for the table, or a change of a setting.
type request struct {
	setting *Setting // nil: a command
	command table.Command
	rules   uint64 // when read: under which the command is written
	caller  Caller // of a command that is not in an entry yet
}

// appendRequest appends a request, a command of it under that version of the rules.
func appendRequest(b []byte, rules uint64, q *request) []byte {
	if q.setting != nil {
		return appendSetting(append(b, requestSetting), q.setting)
	}
	return record.AppendEntry(append(b, requestCommand), rules, &q.command)
}

// cutRequest reads a request. The caller checks its rules.
func cutRequest(b []byte) (q request, rest []byte, err error) {
	if len(b) == 0 {
		return q, nil, errShort
	}
	switch b[0] {
	case requestCommand:
		var e record.Entry
		e, rest, err = record.ReadEntry(b[1:])
		q.command, q.rules = e.Command, e.Rules
		if other := new(record.FormError); errors.As(err, &other) {
			err = fmt.Errorf("%w: %w", ErrVersion, err)
		}
	case requestSetting:
		q.setting = new(Setting)
		*q.setting, rest, err = cutSetting(b[1:])
	default:
		err = fmt.Errorf("%w: requests of kind %d are unknown", ErrVersion, b[0])
	}
	return q, rest, err
}

func appendCall(b []byte, o origin, rules uint64, q *request) []byte {
	b = binary.AppendUvarint(b, o.node)
	b = binary.AppendUvarint(b, o.incarnation)
	b = binary.AppendUvarint(b, uint64(o.call))
	return appendRequest(b, rules, q)
}

// cutCall reads the first call of a batch.
func cutCall(b []byte) (o origin, q request, rest []byte, err error) {
	var number uint64
	for _, n := range []*uint64{&o.node, &o.incarnation, &number} {
		if *n, b, err = cutNumber(b); err != nil {
			return o, q, nil, err
		}
	}
	o.call = CallID(number)
	q, rest, err = cutRequest(b)
	return o, q, rest, err
}

func appendHash(index uint64, sum hash) []byte {
	return append(binary.AppendUvarint(newEntry(entryHash), index), sum[:]...)
}

func readHash(b []byte) (index uint64, sum hash, err error) {
	index, b, err = cutNumber(b)
	if err == nil && len(b) != len(sum) {
		err = fmt.Errorf("a hash of %d bytes, want %d", len(b), len(sum))
	}
	copy(sum[:], b)
	return index, sum, err
}
