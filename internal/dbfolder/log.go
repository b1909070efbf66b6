package dbfolder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SQLite treats the first invalid frame of its log as the end of the log, and drops the frames
// after it. That is right for a torn tail. The writer syncs each commit before it writes the next
// one, so a crash leaves at most one incomplete transaction, the last one, of which nobody was told.
//
// If a later transaction follows the invalid frame, the disk lost a write that it had confirmed.
// SQLite would drop both without an error. So the log is examined before SQLite opens it. The
// format: sqlite.org/fileformat2.html.

const (
	logHeader   = 32
	frameHeader = 24
)

// A LogState describes SQLite's log.
type LogState struct {
	Missing   bool
	Size      int64
	Frames    int   // number of valid, committed frames
	Committed int64 // bytes up to the end of these
	FrameSize int   // bytes of a frame; 0 if the log is empty
}

// LogPath returns the path of the log of a database.
func LogPath(database string) string { return database + "-wal" }

// ExamineLog examines the log of a database that no process has open. It returns an error for
// damage, but not for a torn tail.
func ExamineLog(path string) (LogState, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return LogState{Missing: true}, nil
	}
	if err != nil {
		return LogState{}, err
	}
	return ParseLog(b)
}

// ParseLog examines the content of a log, as ExamineLog does.
func ParseLog(b []byte) (LogState, error) {
	state := LogState{Size: int64(len(b))}
	w, err := parseWAL(b)
	if err != nil || w == nil {
		return state, err
	}
	last, next := w.valid()
	state.Frames, state.FrameSize, state.Committed = last, w.size, int64(logHeader+last*w.size)
	if later := w.laterThan(next); later >= 0 {
		return state, fmt.Errorf("frame %d is damaged (its checksum is wrong), though frame %d behind it was written "+
			"after that was safe", next+1, later+1)
	}
	return state, nil
}

// wal is a log in memory.
type wal struct {
	b         []byte
	order     binary.ByteOrder // byte order of the checksums
	size      int              // bytes of a frame with its header
	count     int              // number of whole frames in b, valid or not
	salts     [8]byte
	beginning [2]uint32 // the checksum of the header
}

// parseWAL reads the header. It returns nil for an empty log.
func parseWAL(b []byte) (*wal, error) {
	if len(b) < logHeader || allZero(b) {
		return nil, nil
	}
	w := &wal{b: b}
	switch magic := binary.BigEndian.Uint32(b); magic {
	case 0x377f0682:
		w.order = binary.LittleEndian
	case 0x377f0683:
		w.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("its header is damaged: it begins with %#08x, which is no log of SQLite", magic)
	}
	w.beginning = w.sum([2]uint32{}, b[:24])
	if stored := checksum(b[24:]); stored != w.beginning {
		return nil, fmt.Errorf("its header is damaged: its checksum is %08x, it should be %08x", stored, w.beginning)
	}
	page := binary.BigEndian.Uint32(b[8:])
	if page < 512 || page > 65536 || page&(page-1) != 0 {
		return nil, fmt.Errorf("its header is damaged: pages of %d bytes can't be", page)
	}
	w.size = int(page) + frameHeader
	w.count = (len(b) - logHeader) / w.size
	copy(w.salts[:], b[16:24])
	return w, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func checksum(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// sum returns the checksum s extended by b, whose length is a multiple of 8.
func (w *wal) sum(s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += w.order.Uint32(b) + s[1]
		s[1] += w.order.Uint32(b[4:]) + s[0]
	}
	return s
}

func (w *wal) frame(i int) []byte {
	at := logHeader + i*w.size
	return w.b[at : at+w.size]
}

// ours reports whether frame i has the salts of this log. Other frames are older than the log's
// last restart.
func (w *wal) ours(i int) bool { return [8]byte(w.frame(i)[8:16]) == w.salts }

// commits reports whether frame i ends a transaction.
func (w *wal) commits(i int) bool { return binary.BigEndian.Uint32(w.frame(i)[4:]) != 0 }

// stored returns the checksum of the log up to frame i that frame i contains.
func (w *wal) stored(i int) [2]uint32 {
	if i < 0 {
		return w.beginning
	}
	return checksum(w.frame(i)[16:])
}

// follows reports whether frame i is valid behind frame i-1.
func (w *wal) follows(i int) bool {
	f := w.frame(i)
	return w.ours(i) && w.sum(w.sum(w.stored(i-1), f[:8]), f[frameHeader:]) == w.stored(i)
}

// valid returns the number of frames up to the last valid commit, and the index of the first
// invalid frame.
func (w *wal) valid() (committed, next int) {
	for next < w.count && w.follows(next) {
		next++
		if w.commits(next - 1) {
			committed = next
		}
	}
	return committed, next
}

// laterThan returns a valid frame of a transaction after that of the invalid frame broken; -1 if
// there is none. Such a frame proves that broken was safe once. Frames of a rolled-back transaction
// have the same salts, but their checksums do not continue those of the frames before them.
func (w *wal) laterThan(broken int) int {
	ended := false
	for i := broken; i < w.count; i++ {
		if ended && w.follows(i) {
			return i
		}
		ended = ended || w.ours(i) && w.commits(i)
	}
	return -1
}
