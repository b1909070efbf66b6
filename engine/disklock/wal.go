package disklock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SQLite takes the first invalid frame of its log as the end of the log, and drops all that follows.
// That is right for a torn tail: each commit is synced before the next one is written, so a crash
// leaves at most one incomplete transaction, the last one, and its callers were not answered. If
// there is a later transaction, the disk lost a write that it had confirmed, and SQLite would drop
// that transaction without an error. So disklock examines the log before SQLite opens it. The
// format: sqlite.org/fileformat2.html.

const (
	walHeader   = 32
	frameHeader = 24
)

// walState is what is found in a log.
type walState struct {
	missing bool
	size    int64
	frames  int // that are valid and committed
	torn    int // frames of this log behind those, which were never committed
}

// examineWAL examines the log of a database that no process has open. Damage is an error; a torn tail
// is none.
func examineWAL(path string) (walState, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return walState{missing: true}, nil
	}
	if err != nil {
		return walState{}, err
	}
	state := walState{size: int64(len(b))}
	w, err := parseWAL(b)
	if err != nil || w == nil {
		return state, err
	}
	last, next := w.valid()
	state.frames, state.torn = last, 0
	for i := last; i < w.count; i++ {
		if w.ours(i) {
			state.torn++
		}
	}
	if later := w.laterThan(next); later >= 0 {
		return state, fmt.Errorf("frame %d is damaged (its checksum is wrong), though frame %d behind it was written "+
			"after that was safe", next+1, later+1)
	}
	return state, nil
}

// wal is a log in memory.
type wal struct {
	b         []byte
	order     binary.ByteOrder // of the words that are summed
	size      int              // of a frame
	count     int              // of places for frames
	salts     [8]byte
	beginning [2]uint32 // the checksum of the header
}

// parseWAL reads the header; nil for a log in which nothing was written.
func parseWAL(b []byte) (*wal, error) {
	if len(b) < walHeader || allZero(b) {
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
	w.count = (len(b) - walHeader) / w.size
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

// sum goes on from s with b, whose length is a multiple of 8.
func (w *wal) sum(s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += w.order.Uint32(b) + s[1]
		s[1] += w.order.Uint32(b[4:]) + s[0]
	}
	return s
}

func (w *wal) frame(i int) []byte {
	at := walHeader + i*w.size
	return w.b[at : at+w.size]
}

// ours reports whether frame i belongs to this log, and is not left from before the log was restarted.
func (w *wal) ours(i int) bool { return [8]byte(w.frame(i)[8:16]) == w.salts }

// commits reports whether frame i ends a transaction.
func (w *wal) commits(i int) bool { return binary.BigEndian.Uint32(w.frame(i)[4:]) != 0 }

// stored returns the checksum of the log up to frame i, as frame i has it.
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

// valid counts the frames up to the last commit that is valid with all before it;
// next is the first that is not valid.
func (w *wal) valid() (committed, next int) {
	for next < w.count && w.follows(next) {
		next++
		if w.commits(next - 1) {
			committed = next
		}
	}
	return committed, next
}

// laterThan finds a valid frame of a later transaction than frame broken, which is invalid: so broken
// was safe once. It returns -1 if there is none. Frames of a transaction that was given up have the
// salts, too, but are not valid behind their predecessors.
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
