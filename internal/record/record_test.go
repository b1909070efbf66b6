package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

func TestEntriesRoundTrip(t *testing.T) {
	m := maker{testmode.Rand(t)}
	for range 5000 {
		want := []table.Command{m.command(), m.command()}
		b := AppendEntry(AppendEntry(nil, &want[0]), &want[1])
		rest := b
		for _, c := range want {
			e, after, err := ReadEntry(rest)
			if err != nil || e.Rules != table.RulesVersion || !reflect.DeepEqual(e.Command, c) {
				t.Fatalf("%x\nis read as %+v (%v)\nit was %+v", b, e, err, c)
			}
			rest = after
		}
		if len(rest) > 0 {
			t.Fatalf("%x: %d bytes are left", b, len(rest))
		}
	}
}

func TestSnapshotsRoundTrip(t *testing.T) {
	m := maker{testmode.Rand(t)}
	for range 2000 {
		want := m.snapshot()
		h, err := DecodeHeader(AppendHeader(nil, &want))
		if err != nil || h != (Header{table.RulesVersion, want.Counters, 4}) {
			t.Fatalf("the header of %+v is read as %+v (%v)", want, h, err)
		}
		got := table.Snapshot{Counters: h.Counters}
		for i := range Records(&want) {
			if err := AddRecord(&got, AppendRecord(nil, &want, i)); err != nil {
				t.Fatalf("record %d of %+v: %v", i, want, err)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("read as %+v\nit was %+v", got, want)
		}
	}
}

// TestEncodingChangesNothing: the race detector sees it if encoding writes to what it encodes.
func TestEncodingChangesNothing(t *testing.T) {
	snap := fullSnapshot()
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			for i := range Records(&snap) {
				AppendRecord(nil, &snap, i)
			}
			AppendEntry(nil, &table.Command{Op: table.Claim, Want: snap.Claims[0].Want})
		})
	}
	running.Wait()
}

// TestOtherFormsAreRefused: bytes of another form are told apart from damage.
func TestOtherFormsAreRefused(t *testing.T) {
	for _, form := range []uint64{0, Form + 1, 1 << 40} {
		b := binary.AppendUvarint(nil, form)
		b = append(b, table.RulesVersion, 0)
		var e *FormError
		if _, _, err := ReadEntry(b); !errors.As(err, &e) || e.Form != form {
			t.Errorf("an entry of form %d: %v, want a FormError", form, err)
		}
		if _, err := DecodeHeader(b); !errors.As(err, &e) || e.Form != form {
			t.Errorf("a header of form %d: %v, want a FormError", form, err)
		}
	}
}

// TestOtherRulesAreRead: the form alone says how to read an entry, so a dump shows entries of other rules.
func TestOtherRulesAreRead(t *testing.T) {
	b := binary.AppendUvarint([]byte{Form}, 300)
	e, rest, err := ReadEntry(append(b, 0))
	if err != nil || len(rest) > 0 || e.Rules != 300 {
		t.Errorf("rules 300: %+v, %d bytes left, %v", e, len(rest), err)
	}
}

func TestHostileBytesAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":               {},
		"no rules":              {Form},
		"rules 0":               {Form, 0, 0},
		"no end":                {Form, 1, 2, byte(table.Restart)},
		"unknown op":            {Form, 1, 2, 99, 0},
		"unknown field":         {Form, 1, 99, 0},
		"fields out of order":   {Form, 1, 2, byte(table.Restart), 1, 2, 0},
		"a field twice":         {Form, 1, 1, 2, 1, 2, 0},
		"a zero that is said":   {Form, 1, 1, 0, 0},
		"an overlong number":    {Form, 1, 1, 0x82, 0, 0},
		"a number too large":    {Form, 1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0},
		"a claim of nothing":    {Form, 1, 2, byte(table.Claim), 0},
		"an end of no kind":     {Form, 1, 2, byte(table.End), 0},
		"an end of kind 9":      {Form, 1, 2, byte(table.End), 40, 9, 0},
		"an ask of another op":  {Form, 1, 2, byte(table.Restart), 3, 1, 'x', 0},
		"text beyond the end":   {Form, 1, 2, byte(table.Renew), 3, 200, 1, 'x', 0},
		"a list beyond the end": {Form, 1, 2, byte(table.Attach), 23, 255, 255, 255, 127, 1, 0},
	} {
		if e, _, err := ReadEntry(b); err == nil {
			t.Errorf("%s: %x is read as %+v, want an error", name, b, e)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":            {},
		"unknown kind":       {9, 0},
		"bytes behind":       {kindHoldTime, 0, 0},
		"a claim of no want": {kindClaim, 0},
	} {
		if err := AddRecord(new(table.Snapshot), b); err == nil {
			t.Errorf("%s: record %x is read, want an error", name, b)
		}
	}
	if _, err := DecodeHeader([]byte{Form, 1, 0, 7}); err == nil {
		t.Error("a header with a byte behind it is read")
	}
}

// TestHostileCountsAllocateLittle: a list that says to have a billion elements costs nothing.
func TestHostileCountsAllocateLittle(t *testing.T) {
	b := append([]byte{Form, 1, 2, byte(table.Attach), 24, 128, 128, 128, 128, 4}, make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		if _, _, err := ReadEntry(b); err == nil {
			t.Fatal("it is read")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("1000 reads of %d bytes allocate %d bytes", len(b), grown)
	}
}

// FuzzEntry: what ReadEntry accepts has that one encoding.
func FuzzEntry(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for range 50 {
		c := m.command()
		f.Add(AppendEntry(nil, &c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := ReadEntry(b)
		if err != nil {
			return
		}
		versions := binary.AppendUvarint(binary.AppendUvarint(nil, Form), e.Rules)
		again := append(versions, AppendEntry(nil, &e.Command)[len(appendVersions(nil)):]...)
		if !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Errorf("%x is read as %+v, which is written as %x", b, e, again)
		}
	})
}

// FuzzRecord: what AddRecord accepts has that one encoding.
func FuzzRecord(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for range 20 {
		s := m.snapshot()
		for i := range Records(&s) {
			f.Add(AppendRecord(nil, &s, i))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s table.Snapshot
		if AddRecord(&s, b) != nil {
			return
		}
		if again := AppendRecord(nil, &s, 0); !bytes.Equal(again, b) {
			t.Errorf("%x is read as %+v, which is written as %x", b, s, again)
		}
	})
}

func BenchmarkAppendEntry(b *testing.B) {
	c := typicalClaim()
	var room []byte
	b.ReportAllocs()
	for b.Loop() {
		room = AppendEntry(room[:0], &c)
	}
	b.ReportMetric(float64(len(room)), "bytes/entry")
}

func BenchmarkReadEntry(b *testing.B) {
	c := typicalClaim()
	text := AppendEntry(nil, &c)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ReadEntry(text); err != nil {
			b.Fatal(err)
		}
	}
}
