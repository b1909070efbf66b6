package table

import (
	"encoding/binary"
	"iter"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An endLog has the bytes of tombstones, in chunks, so that they take no more memory than they need and
// the garbage collector has nothing to follow. A record is
//
//	its length, what it is, the id, when to forget it, how long after the end that is, the number of the
//	change, the fence, the reason, the text, the label, revision, priority and Inside if they are not 0,
//	and path, mode, and of permits units, limit, use and slot of each grant
//
// as numbers and texts of encoding/binary. A mark stands for a tombstone that is an object; it ends
// behind the time.
type endLog struct {
	chunks   [][]byte
	first    position      // number of chunks[0]
	start    int           // of the first record in chunks[0]
	length   int           // number of records
	size     int           // bytes in chunks
	earliest time.Duration // when the first record is to be forgotten
	usual    time.Duration // how long after its end a claim is forgotten, if its record does not say it
}

// A position is the number of a chunk, and the offset in it in the lower half.
type position uint64

// The largest chunk, and the smallest.
const (
	mostChunk  = 8 << 10
	leastChunk = 128
)

// What a record is.
const (
	recordMarks     = 1 << iota // it is a mark
	recordAcked                 // see tombstone.acked
	recordThawed                // see tombstone.thawed
	recordTerms                 // it has revision, priority and Inside
	recordUsual                 // it does not say how long after the end it is forgotten
	recordForgotten             // the table forgot it before its time
)

// append adds a record of that content behind the last one.
func (l *endLog) append(content []byte) position {
	var room [binary.MaxVarintLen64]byte
	length := binary.AppendUvarint(room[:0], uint64(len(content)))
	size, last := len(length)+len(content), len(l.chunks)-1
	if last < 0 || len(l.chunks[last])+size > cap(l.chunks[last]) {
		l.chunks = append(l.chunks, make([]byte, 0, max(size, min(max(l.size, leastChunk), mostChunk))))
		last++
	}
	at := (l.first+position(last))<<32 | position(len(l.chunks[last]))
	l.chunks[last] = append(append(l.chunks[last], length...), content...)
	l.size += size
	if l.length++; l.length == 1 {
		l.earliest = l.record(at).forget
	}
	return at
}

// record returns the record at a position.
func (l *endLog) record(at position) endRecord {
	return read(l.chunks[at>>32-l.first][uint32(at):])
}

// front returns the first record; there must be one.
func (l *endLog) front() endRecord { return read(l.chunks[0][l.start:]) }

// drop removes r, the first record.
func (l *endLog) drop(r endRecord) {
	l.length--
	l.size -= len(r.bytes)
	if l.start += len(r.bytes); l.start == len(l.chunks[0]) {
		l.chunks[0] = nil
		l.chunks, l.first, l.start = l.chunks[1:], l.first+1, 0
	}
	if l.length > 0 {
		l.earliest = l.front().forget
	}
}

// records yields all records with their positions, the oldest first.
func (l *endLog) records() iter.Seq2[position, endRecord] {
	return func(yield func(position, endRecord) bool) {
		offset := l.start
		for i, chunk := range l.chunks {
			for offset < len(chunk) {
				r := read(chunk[offset:])
				if !yield((l.first+position(i))<<32|position(offset), r) {
					return
				}
				offset += len(r.bytes)
			}
			offset = 0
		}
	}
}

// An endRecord is one record, of which only the beginning was read.
type endRecord struct {
	bytes   []byte // all of it
	content []byte // without its length
	rest    []byte // what was not read yet
	what    byte
	id      uint64
	forget  time.Duration
}

// read reads the beginning of the record at the beginning of b.
func read(b []byte) endRecord {
	length, n := binary.Uvarint(b)
	r := endRecord{bytes: b[:n+int(length)]}
	r.content = r.bytes[n:]
	r.what, r.rest = r.content[0], r.content[1:]
	r.id = r.number()
	r.forget = time.Duration(r.number())
	return r
}

// is reports whether r has that flag.
func (r *endRecord) is(what byte) bool { return r.what&what != 0 }

func (r *endRecord) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *endRecord) signed() int64 {
	v, n := binary.Varint(r.rest)
	r.rest = r.rest[n:]
	return v
}

func (r *endRecord) text() string {
	n := r.number()
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *endRecord) byte() byte {
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// appendMark appends the content of the mark of tomb to b.
func appendMark(b []byte, tomb *tombstone) []byte {
	b = binary.AppendUvarint(append(b, recordMarks), tomb.id)
	return binary.AppendUvarint(b, uint64(tomb.forget))
}

// appendPacked appends the content of the record of tomb for l to b.
func (l *endLog) appendPacked(b []byte, tomb *tombstone) []byte {
	what, lasts := byte(0), tomb.forget-tomb.at
	if l.length == 0 {
		l.usual = lasts
	}
	if lasts == l.usual {
		what |= recordUsual
	}
	if tomb.acked {
		what |= recordAcked
	}
	if tomb.thawed {
		what |= recordThawed
	}
	m := tomb.want
	if m.Revision != 0 || m.Priority != 0 || m.Inside != (lockkeeper.Ref{}) {
		what |= recordTerms
	}
	b = binary.AppendUvarint(append(b, what), tomb.id)
	b = binary.AppendUvarint(b, uint64(tomb.forget))
	if lasts != l.usual {
		b = binary.AppendVarint(b, int64(lasts))
	}
	b = binary.AppendUvarint(b, tomb.change)
	b = binary.AppendUvarint(b, tomb.fence)
	b = appendText(append(b, byte(tomb.reason)), tomb.text)
	b = appendText(b, string(tomb.label))
	if what&recordTerms != 0 {
		b = binary.AppendUvarint(b, m.Revision)
		b = binary.AppendVarint(b, int64(m.Priority))
		b = binary.AppendUvarint(appendText(b, m.Inside.Session), m.Inside.ID)
	}
	if tomb.mode != 0 {
		return append(appendText(b, string(tomb.path)), byte(tomb.mode))
	}
	for _, g := range tomb.several {
		b = append(appendText(b, string(g.Path)), byte(g.Mode))
		if g.Mode == lockkeeper.ModePermits {
			for _, n := range [...]int{g.Units, g.Limit, g.InUse, g.Slot} {
				b = binary.AppendVarint(b, int64(n))
			}
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// unpack returns the tombstone of s that the record at a position has; it must not be a mark.
func (l *endLog) unpack(at position, s *session) *tombstone {
	r := l.record(at)
	tomb := &tombstone{
		id: r.id, session: s, want: &noTerms, forget: r.forget, kept: true, ended: &plainEnd,
		acked: r.is(recordAcked), thawed: r.is(recordThawed),
	}
	if tomb.at = r.forget - l.usual; !r.is(recordUsual) {
		tomb.at = r.forget - time.Duration(r.signed())
	}
	tomb.change, tomb.fence, tomb.reason = r.number(), r.number(), lockkeeper.Reason(r.byte())
	if text := r.text(); text != "" {
		tomb.own().text = text
	}
	tomb.label = label(r.text())
	if r.is(recordTerms) {
		m := &terms{Revision: r.number(), Priority: int(r.signed())}
		m.Inside.Session, m.Inside.ID = r.text(), r.number()
		tomb.want = m
	}
	var grants []lockkeeper.Grant
	for len(r.rest) > 0 {
		var g lockkeeper.Grant
		g.Path, g.Mode = lockkeeper.Path(r.text()), lockkeeper.Mode(r.byte())
		if g.Mode == lockkeeper.ModePermits {
			for _, n := range [...]*int{&g.Units, &g.Limit, &g.InUse, &g.Slot} {
				*n = int(r.signed())
			}
		}
		grants = append(grants, g)
	}
	tomb.setGrants(grants)
	return tomb
}
