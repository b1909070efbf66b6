package dbfolder

import (
	"os"
	"path/filepath"
	"testing"
)

// The mark that is read is the one that was written last; every other text is refused.
func FuzzMark(f *testing.F) {
	f.Add(Mark{Seq: 7, Value: 1 << 63, Boot: "b"}.String())
	f.Add("lockkeeper mark 1\nseq 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMark(text)
		if err == nil && m.String() != text {
			t.Errorf("%q is read as %v", text, m)
		}
	})
}

func TestMarkIsOverwrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mark")
	if m, err := ReadMark(path); m != nil || err != nil {
		t.Errorf("no file: %v (%v)", m, err)
	}
	marker, err := OpenMarker(path, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer marker.Close()
	first, _ := os.Stat(path)
	for _, seq := range []uint64{2, 1<<64 - 1} {
		if err := marker.Write(seq, seq/2); err != nil {
			t.Fatal(err)
		}
		m, err := ReadMark(path)
		if err != nil || m.Seq != seq || m.Value != seq/2 || m.Waived() || m.Boot != "" && !m.ThisBoot() {
			t.Errorf("%v (%v), want %d and %d of this boot", m, err, seq, seq/2)
		}
		if now, _ := os.Stat(path); now.Size() != first.Size() {
			t.Errorf("%d bytes, want %d", now.Size(), first.Size())
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMark(path); err != nil || !m.Waived() {
		t.Errorf("an emptied mark: %v (%v), want a waiver", m, err)
	}
}
