package dbfolder

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Mark names the last safe commit. The owner of a folder writes it after each commit and before it
// tells anybody of the commit, but does not sync it. As long as the computer runs the mark is exact,
// even if the process is killed; after a loss of power it may be some seconds old. A database that
// ends before its mark has lost safe commits: somebody cut or removed its log, or put an older copy
// in its place.
type Mark struct {
	Seq   uint64 // the last safe commit
	Value uint64 // a number that the owner wants to find beside it
	Boot  string // id of the boot in which the mark was written; empty if the system has none

	// Waiver: a person emptied the file to accept the database as it is. A crash can't empty it,
	// because OpenMarker syncs the first mark, and later marks overwrite it in place.
	Waiver bool
}

// Waived reports whether there is a mark, and it is a waiver.
func (m *Mark) Waived() bool { return m != nil && m.Waiver }

// ThisBoot reports whether the mark is exact, because it was written in this boot of the computer.
func (m *Mark) ThisBoot() bool { return m != nil && m.Boot != "" && m.Boot == BootID() }

// MarkPath returns the path of the mark of a folder.
func MarkPath(folder string) string { return filepath.Join(folder, "mark") }

func (m Mark) String() string { return string(m.appendTo(nil)) }

// appendTo appends the text of the mark. All marks have the same length.
func (m Mark) appendTo(b []byte) []byte {
	from := len(b)
	b = fmt.Appendf(b, "lockkeeper mark 1\nseq %020d\nvalue %020d\nboot %-36s\n", m.Seq, m.Value, m.Boot)
	return fmt.Appendf(b, "sum %016x\n", crc64.Checksum(b[from:], crc64.MakeTable(crc64.ECMA)))
}

// parseMark reads what String writes.
func parseMark(text string) (Mark, error) {
	var m Mark
	var sum uint64
	if _, err := fmt.Sscanf(text, "lockkeeper mark 1\nseq %d\nvalue %d\n", &m.Seq, &m.Value); err != nil {
		return Mark{}, fmt.Errorf("it says %.40q", text)
	}
	lines := strings.Split(text, "\n")
	if len(lines) == 6 {
		m.Boot = strings.TrimSpace(strings.TrimPrefix(lines[3], "boot "))
		fmt.Sscanf(lines[4], "sum %x", &sum)
	}
	if m.String() != text {
		return Mark{}, fmt.Errorf("its checksum is wrong")
	}
	return m, nil
}

// ReadMark returns the mark in the file; nil if there is no file.
func ReadMark(path string) (*Mark, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return &Mark{Waiver: true}, nil
	}
	m, err := parseMark(string(text))
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// A Marker writes the mark. One goroutine at a time uses it.
type Marker struct {
	file *os.File
	boot string
	room []byte // memory for a mark
}

// OpenMarker opens the file for writing, and makes it durable with its first mark, of this boot.
func OpenMarker(path string, seq, value uint64) (*Marker, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &Marker{file: f, boot: BootID()}
	err = m.Write(seq, value)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return m, nil
}

// Write overwrites the mark in the file, which has the same length.
func (m *Marker) Write(seq, value uint64) error {
	m.room = Mark{Seq: seq, Value: value, Boot: m.boot}.appendTo(m.room[:0])
	_, err := m.file.WriteAt(m.room, 0)
	return err
}

// Close closes the file. The mark stays.
func (m *Marker) Close() error { return m.file.Close() }
