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
	"time"
	"unsafe"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// batchOf encodes commands as one batch.
func batchOf(commands ...table.Command) []byte {
	var b Batch
	for i := range commands {
		b.Append(&commands[i])
	}
	return b.Bytes()
}

// commandsOf reads a whole batch.
func commandsOf(b []byte) (rules uint64, all []table.Command, err error) {
	r, err := ReadBatch(b)
	if err != nil {
		return 0, nil, err
	}
	for r.More() {
		c, err := r.Next()
		if err != nil {
			return r.Rules(), all, err
		}
		all = append(all, c)
	}
	return r.Rules(), all, nil
}

func TestBatchesRoundTrip(t *testing.T) {
	m := maker{testmode.Rand(t)}
	for range 3000 {
		want := m.commands()
		b := batchOf(want...)
		rules, got, err := commandsOf(b)
		if err != nil || rules != table.RulesVersion || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x\nis read as %+v (%v)\nit was %+v", b, got, err, want)
		}
	}
}

// TestEntryIsABatchOfOne: an entry by itself is a batch of one command, and does not depend on what
// is around it.
func TestEntryIsABatchOfOne(t *testing.T) {
	m := maker{testmode.Rand(t)}
	for range 2000 {
		want := m.commands()
		b := []byte("before")
		for i := range want {
			b = AppendEntry(b, table.RulesVersion, &want[i])
		}
		b = b[len("before"):]
		for _, c := range want {
			e, rest, err := ReadEntry(b)
			if err != nil || e.Rules != table.RulesVersion || !reflect.DeepEqual(e.Command, c) {
				t.Fatalf("%x\nis read as %+v (%v)\nit was %+v", b, e, err, c)
			}
			if !bytes.Equal(b[:len(b)-len(rest)], batchOf(c)) {
				t.Fatalf("%x is no batch of one, which is %x", b[:len(b)-len(rest)], batchOf(c))
			}
			b = rest
		}
		if len(b) > 0 {
			t.Fatalf("%x is left", b)
		}
	}
}

// TestCutBatchIsNoOtherBatch: a batch that ends early anywhere has fewer commands, the first ones, or
// is refused.
func TestCutBatchIsNoOtherBatch(t *testing.T) {
	m := maker{testmode.Rand(t)}
	for range 60 {
		want := m.commands()
		b := batchOf(want...)
		for cut := range b {
			_, got, _ := commandsOf(b[:cut])
			if len(got) >= len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
				t.Fatalf("%x, cut at %d, is read as %+v\nit was %+v", b, cut, got, want)
			}
		}
	}
}

// TestChangedByteIsAnotherBatch: a batch with one other byte is refused, or is the encoding of other
// commands, and of no others than those.
func TestChangedByteIsAnotherBatch(t *testing.T) {
	m := maker{testmode.Rand(t)}
	refused, read := 0, 0
	for range 60 {
		want := m.commands()
		b := batchOf(want...)
		for i := range b {
			changed := bytes.Clone(b)
			changed[i] ^= byte(1 + m.IntN(255))
			rules, got, err := commandsOf(changed)
			if err != nil {
				refused++
				continue
			}
			read++
			if rules == table.RulesVersion && (reflect.DeepEqual(got, want) || !bytes.Equal(batchOf(got...), changed)) {
				t.Fatalf("%x, with byte %d changed from %d, is read as %+v\nit was %+v", changed, i, b[i], got, want)
			}
		}
	}
	if refused == 0 || read == 0 {
		t.Errorf("%d refused, %d read: that proves nothing", refused, read)
	}
}

// TestAppendKeepsNothingOfTheCommand: the caller may reuse the memory of a command's texts.
func TestAppendKeepsNothingOfTheCommand(t *testing.T) {
	id := []byte("session-1")
	c := table.Command{Op: table.Renew, Key: lockkeeper.Key{Session: unsafe.String(&id[0], len(id)), Epoch: 1}}
	var b Batch
	b.Append(&c)
	id[8] = '2'
	b.Append(&c)
	_, got, err := commandsOf(b.Bytes())
	if err != nil || len(got) != 2 || got[0].Key.Session != "session-1" || got[1].Key.Session != "session-2" {
		t.Errorf("it is read as %+v (%v)", got, err)
	}
}

// TestCommandsOfOneSessionNameItOnce: the session and the epoch are written once, and again when
// another session came between, or another epoch.
func TestCommandsOfOneSessionNameItOnce(t *testing.T) {
	var all []table.Command
	for _, k := range []lockkeeper.Key{
		{Session: "ann", Epoch: 1, LowestOpen: 9}, {Session: "ann", Epoch: 1, LowestOpen: 9}, {},
		{Session: "ann", Epoch: 1, LowestOpen: 9}, {Session: "ann", Epoch: 1, LowestOpen: 7},
		{Session: "ann", Epoch: 2, LowestOpen: 7}, {Session: "bob", Epoch: 2}, {Session: "bob", Epoch: 2},
	} {
		all = append(all, table.Command{Op: table.Renew, Key: k}, table.Command{Op: table.Restart})
	}
	b := batchOf(all...)
	if ann, bob := bytes.Count(b, []byte("ann")), bytes.Count(b, []byte("bob")); ann != 3 || bob != 1 {
		t.Errorf("%x names ann %d times and bob %d times, want 3 and 1", b, ann, bob)
	}
	if _, got, err := commandsOf(b); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("it is read as %+v (%v), want %+v", got, err, all)
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
			batchOf(table.Command{Op: table.Claim, Want: snap.Claims[0].Want})
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
		if _, err := ReadBatch(b); !errors.As(err, &e) || e.Form != form {
			t.Errorf("a batch of form %d: %v, want a FormError", form, err)
		}
		if _, err := DecodeHeader(b); !errors.As(err, &e) || e.Form != form {
			t.Errorf("a header of form %d: %v, want a FormError", form, err)
		}
	}
}

// TestOtherRulesAreRead: the form alone says how to read a batch, so a dump shows entries of other rules.
func TestOtherRulesAreRead(t *testing.T) {
	b := binary.AppendUvarint([]byte{Form}, 300)
	rules, all, err := commandsOf(append(b, 0))
	if err != nil || len(all) != 1 || rules != 300 {
		t.Errorf("rules 300: rules %d, %+v, %v", rules, all, err)
	}
}

func TestHostileBytesAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":               {},
		"no rules":              {Form},
		"no command":            {Form, 1},
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
		"an ask of another op":  {Form, 1, 2, byte(table.Restart), 4, 1, 'x', 0},
		"text beyond the end":   {Form, 1, 2, byte(table.Renew), 4, 200, 1, 'x', 0},
		"no session before":     {Form, 1, 2, byte(table.Renew), 3, 0},
		"no named one before":   {Form, 1, 2, byte(table.Renew), 5, 1, 0, 2, byte(table.Renew), 3, 0},
		"a session twice":       {Form, 1, 2, byte(table.Renew), 4, 1, 'x', 0, 2, byte(table.Renew), 4, 1, 'x', 0},
		"one that is named too": {Form, 1, 2, byte(table.Renew), 4, 1, 'x', 0, 2, byte(table.Renew), 3, 4, 1, 'y', 0},
		"a list beyond the end": {Form, 1, 2, byte(table.Attach), 23, 255, 255, 255, 127, 1, 0},
	} {
		if _, all, err := commandsOf(b); err == nil {
			t.Errorf("%s: %x is read as %+v, want an error", name, b, all)
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
		if _, _, err := commandsOf(b); err == nil {
			t.Fatal("it is read")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("1000 reads of %d bytes allocate %d bytes", len(b), grown)
	}
}

// FuzzBatch: what a BatchReader accepts has that one encoding.
func FuzzBatch(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for range 50 {
		f.Add(batchOf(m.commands()...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rules, all, err := commandsOf(b)
		if err != nil {
			return
		}
		again := binary.AppendUvarint(binary.AppendUvarint(nil, Form), rules)
		again = append(again, batchOf(all...)[len(appendVersions(nil, table.RulesVersion)):]...)
		if !bytes.Equal(again, b) {
			t.Errorf("%x is read as %+v, which is written as %x", b, all, again)
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

// typicalPairs are claims and releases of one session.
func typicalPairs() []table.Command {
	var all []table.Command
	for i := range 32 {
		c := typicalClaim()
		c.At, c.Want.ID = c.At+time.Duration(i)*10*time.Microsecond, c.Want.ID+uint64(i)
		e := table.Command{At: c.At, Op: table.End, Key: c.Key,
			Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: c.Want.ID}}
		all = append(all, c, e)
	}
	return all
}

// BenchmarkAppend is per batch of 32 claims and their releases.
func BenchmarkAppend(b *testing.B) {
	all := typicalPairs()
	var room []byte
	b.ReportAllocs()
	for b.Loop() {
		batch := NewBatch(room)
		for i := range all {
			batch.Append(&all[i])
		}
		room = batch.Bytes()
	}
	b.ReportMetric(float64(len(room))/32, "bytes/pair")
}

func BenchmarkRead(b *testing.B) {
	text := batchOf(typicalPairs()...)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := commandsOf(text); err != nil {
			b.Fatal(err)
		}
	}
}
