package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// The data of an entry in bytes:
//
//	data  = 1 call*          a batch
//	      | 2 index hash     the leader's table has this hash after the entry with that index
//	call  = node incarnation number command
//
// An entry without data is the first one of a leader. Numbers are varints; package record has the form
// of commands. All commands of a batch have the same time. A command of the leader itself has
// node 0.
const (
	entryBatch = 1
	entryHash  = 2
)

// An origin is the call that a command belongs to: its number in one process of one node.
type origin struct {
	node        uint64
	incarnation uint64
	call        CallID
}

func appendCall(b []byte, o origin, c *table.Command) []byte {
	b = binary.AppendUvarint(b, o.node)
	b = binary.AppendUvarint(b, o.incarnation)
	b = binary.AppendUvarint(b, uint64(o.call))
	return record.AppendEntry(b, c)
}

// cutCall reads the first call of a batch.
func cutCall(b []byte) (o origin, c table.Command, rest []byte, err error) {
	if o.node, b, err = cutNumber(b); err != nil {
		return o, c, nil, err
	}
	if o.incarnation, b, err = cutNumber(b); err != nil {
		return o, c, nil, err
	}
	number, b, err := cutNumber(b)
	if err != nil {
		return o, c, nil, err
	}
	o.call = CallID(number)
	c, rest, err = cutCommand(b)
	return o, c, rest, err
}

// cutCommand reads a command under the rules of this program.
func cutCommand(b []byte) (table.Command, []byte, error) {
	e, rest, err := record.ReadEntry(b)
	if err != nil {
		return table.Command{}, nil, err
	}
	if e.Rules != table.RulesVersion {
		return table.Command{}, nil, fmt.Errorf("the command is written under rules %d, this program has rules %d: "+
			"all nodes must run the same version", e.Rules, table.RulesVersion)
	}
	return e.Command, rest, nil
}

func appendHash(b []byte, index uint64, sum hash) []byte {
	return append(binary.AppendUvarint(append(b, entryHash), index), sum[:]...)
}

func readHash(b []byte) (index uint64, sum hash, err error) {
	index, b, err = cutNumber(b)
	if err == nil && len(b) != len(sum) {
		err = fmt.Errorf("a hash of %d bytes, want %d", len(b), len(sum))
	}
	copy(sum[:], b)
	return index, sum, err
}
