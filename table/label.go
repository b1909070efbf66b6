package table

import (
	"encoding/binary"

	"github.com/lockkeeper/lockkeeper"
)

// A label is a lockkeeper.Label in one text: the lengths of the name and the note, and then the
// three texts. It is "" for an empty one.
type label string

func pack(l *lockkeeper.Label) label {
	if *l == (lockkeeper.Label{}) {
		return ""
	}
	var room [2 * binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(binary.AppendUvarint(room[:0], uint64(len(l.As))), uint64(len(l.Note)))
	b := make([]byte, 0, len(head)+len(l.As)+len(l.Note)+len(l.Link))
	return label(append(append(append(append(b, head...), l.As...), l.Note...), l.Link...))
}

func (l label) unpack() lockkeeper.Label {
	if l == "" {
		return lockkeeper.Label{}
	}
	text := string(l)
	as, text := uvarint(text)
	note, text := uvarint(text)
	return lockkeeper.Label{As: text[:as], Note: text[as : as+note], Link: text[as+note:]}
}

// uvarint reads one number from text as encoding/binary writes it, and returns the rest.
func uvarint(text string) (n int, rest string) {
	for i, shift := 0, 0; ; i, shift = i+1, shift+7 {
		n |= int(text[i]&0x7f) << shift
		if text[i] < 0x80 {
			return n, text[i+1:]
		}
	}
}

// labelOf packs l. It returns the text of the latest claim of s if that has the same label, as most
// clients label all their claims alike.
func (s *session) labelOf(l *lockkeeper.Label) label {
	if s.latest != *l {
		s.latest, s.packed = *l, pack(l)
	}
	return s.packed
}
