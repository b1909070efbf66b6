package disklock

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"strings"
)

// A mark names the last safe row. The writer writes it after each commit and before the answers to
// callers, but does not sync it. As long as the computer runs the mark is exact, even if the
// process is killed; after a loss of power it may be some seconds old. A journal that ends before
// its mark has lost safe rows: somebody cut or removed its log, or put an older copy in its place.
type mark struct {
	seq    uint64 // the last safe row of the journal
	fences uint64 // the last fence given by then
	boot   string // id of the boot in which the mark was written; empty if the system has none

	// waiver: a person emptied the file to accept the journal as it is. A crash can't empty it,
	// because openMarker syncs the first mark, and later marks overwrite it in place.
	waiver bool
}

// waived reports whether there is a mark, and it is a waiver.
func (m *mark) waived() bool { return m != nil && m.waiver }

var crcTable = crc64.MakeTable(crc64.ECMA)

func (m mark) String() string { return string(m.appendTo(nil)) }

// appendTo appends the text of the mark. All marks have the same length.
func (m mark) appendTo(b []byte) []byte {
	from := len(b)
	b = fmt.Appendf(b, "lockkeeper mark 1\nseq %020d\nfences %020d\nboot %-36s\n", m.seq, m.fences, m.boot)
	return fmt.Appendf(b, "sum %016x\n", crc64.Checksum(b[from:], crcTable))
}

// parseMark reads what String writes.
func parseMark(text string) (mark, error) {
	var m mark
	var sum uint64
	if _, err := fmt.Sscanf(text, "lockkeeper mark 1\nseq %d\nfences %d\n", &m.seq, &m.fences); err != nil {
		return mark{}, fmt.Errorf("it says %.40q", text)
	}
	lines := strings.Split(text, "\n")
	if len(lines) == 6 {
		m.boot = strings.TrimSpace(strings.TrimPrefix(lines[3], "boot "))
		fmt.Sscanf(lines[4], "sum %x", &sum)
	}
	if m.String() != text {
		return mark{}, fmt.Errorf("its checksum is wrong")
	}
	return m, nil
}

// readMark returns the mark in the file; nil if there is no file.
func readMark(path string) (*mark, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return &mark{waiver: true}, nil
	}
	m, err := parseMark(string(text))
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// marker writes the mark. Only one goroutine at a time may use it.
type marker struct {
	file *os.File
	boot string
	room []byte // memory for a mark
}

// openMarker opens the file for writing, and makes it durable with its first mark.
func openMarker(path string, m mark) (*marker, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	mk := &marker{file: f, boot: m.boot}
	err = mk.write(m.seq, m.fences)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return mk, nil
}

// write overwrites the mark in the file, which has the same length.
func (mk *marker) write(seq, fences uint64) error {
	mk.room = mark{seq: seq, fences: fences, boot: mk.boot}.appendTo(mk.room[:0])
	_, err := mk.file.WriteAt(mk.room, 0)
	return err
}
