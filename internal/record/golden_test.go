package record

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file of new versions of form or rules")

// goldenFile has the versions in its name. A change of form or rules that keeps the versions can't
// replace the file: somebody may have a journal of that version.
var goldenFile = filepath.Join("testdata", fmt.Sprintf("form%d-rules%d.txt", Form, table.RulesVersion))

// TestGolden: the bytes that this version wrote once mean the same as then, are written in the same
// way, and lead to the same table.
func TestGolden(t *testing.T) {
	if *rewrite {
		writeGolden(t)
	}
	const remedy = "\nif the change is meant, raise Form (bytes) or table.RulesVersion (rules), and run " +
		"go test ./internal/record -run TestGolden -rewrite"
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatalf("%v%s", err, remedy)
	}
	tb := table.New()
	var snap table.Snapshot
	var written [][]byte
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		kind, digits, _ := bytes.Cut(line, []byte(" "))
		b, err := hex.DecodeString(string(digits))
		if err == nil {
			err = again(string(kind), b)
		}
		switch {
		case err != nil:
		case string(kind) == "batch":
			_, all, _ := commandsOf(b)
			for i := range all {
				if _, refused := tb.Step(&all[i]); err == nil {
					err = refused
				}
			}
		case string(kind) == "header", string(kind) == "record":
			written = append(written, b)
			if string(kind) == "record" {
				err = AddRecord(&snap, b)
			}
		}
		if err != nil {
			t.Fatalf("%s:%d: %v%s", goldenFile, i+1, err, remedy)
		}
	}
	if got := whole(tb); !reflect.DeepEqual(got, written) {
		t.Errorf("the batches of %s lead to a snapshot that differs from the one in it%s", goldenFile, remedy)
	}
	snap.Counters = tb.Counters()
	restored, err := table.Restore(snap)
	if err != nil {
		t.Fatalf("%s: %v%s", goldenFile, err, remedy)
	}
	if got := whole(restored); !reflect.DeepEqual(got, written) {
		t.Errorf("the snapshot of %s is restored to a table that differs from it%s", goldenFile, remedy)
	}
}

// again reads b and refuses it if it is not written as it was.
func again(kind string, b []byte) error {
	var got []byte
	switch kind {
	case "batch", "all-fields-batch":
		rules, all, err := commandsOf(b)
		if err != nil || rules != table.RulesVersion {
			return fmt.Errorf("rules %d, %w", rules, err)
		}
		got = batchOf(all...)
	case "record", "all-fields-record":
		var s table.Snapshot
		if err := AddRecord(&s, b); err != nil {
			return err
		}
		got = AppendRecord(nil, &s, 0)
	case "header":
		_, err := DecodeHeader(b)
		return err
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("%x is written as %x", b, got)
	}
	return nil
}

// whole is the snapshot of tb: the header and all records.
func whole(tb *table.Table) [][]byte {
	s := tb.Snapshot()
	all := [][]byte{AppendHeader(nil, &s)}
	for i := range Records(&s) {
		all = append(all, AppendRecord(nil, &s, i))
	}
	return all
}

// fullCommands are commands of every op and ending, with all their fields.
func fullCommands() []table.Command {
	var all []table.Command
	n := uint64(0)
	for op := table.Pass; op <= table.Review; op++ {
		kinds := []lockkeeper.EndingKind{0}
		if op == table.End {
			kinds = []lockkeeper.EndingKind{lockkeeper.Release, lockkeeper.Leave, lockkeeper.Revoke, lockkeeper.Thaw,
				lockkeeper.Lapsed}
		}
		for _, kind := range kinds {
			var c table.Command
			fill(reflect.ValueOf(&c).Elem(), &n)
			c.Op, c.Alone, c.Ending.Kind = op, false, kind
			all = append(all, c)
		}
	}
	return all
}

// fullSnapshot has a record of each kind with all fields.
func fullSnapshot() table.Snapshot {
	var s table.Snapshot
	n := uint64(0)
	fill(reflect.ValueOf(&s).Elem(), &n)
	return s
}

// fill sets all that is in v: numbers and texts all differ, enumerations are 1.
func fill(v reflect.Value, n *uint64) {
	switch *n++; v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.String:
		v.SetString(fmt.Sprint("text", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint64:
		v.SetUint(*n)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

// TestAllFieldsAreWritten: a field that is added to a command or record and forgotten here is found.
func TestAllFieldsAreWritten(t *testing.T) {
	want := fullSnapshot()
	var got table.Snapshot
	for i := range Records(&want) {
		if err := AddRecord(&got, AppendRecord(nil, &want, i)); err != nil {
			t.Fatal(err)
		}
	}
	if got.Counters = want.Counters; !reflect.DeepEqual(got, want) {
		t.Errorf("records are read as\n%+v\nthey were\n%+v", got, want)
	}
	h, err := DecodeHeader(AppendHeader(nil, &want))
	if err != nil || h.Counters != want.Counters {
		t.Errorf("counters are read as %+v, they were %+v (%v)", h.Counters, want.Counters, err)
	}
	var all table.Command
	for _, c := range fullCommands() {
		_, got, err := commandsOf(batchOf(c))
		if err != nil {
			t.Fatal(err)
		}
		merge(reflect.ValueOf(&all).Elem(), reflect.ValueOf(got[0]))
	}
	all.Alone = true // a journal has only whole tables
	if missing := zeros(reflect.ValueOf(all), "Command"); len(missing) > 0 {
		t.Errorf("no entry has %s", missing)
	}
}

// merge sets what is zero in v to what w has.
func merge(v, w reflect.Value) {
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			merge(v.Field(i), w.Field(i))
		}
	} else if v.IsZero() {
		v.Set(w)
	}
}

// zeros names what is zero in v.
func zeros(v reflect.Value, name string) (all []string) {
	switch {
	case v.IsZero():
		return []string{name}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			all = append(all, zeros(v.Field(i), name+"."+v.Type().Field(i).Name)...)
		}
	case v.Kind() == reflect.Slice:
		return zeros(v.Index(0), name+"[0]")
	}
	return all
}

func typicalClaim() table.Command {
	return table.Command{
		At: 3*time.Hour + 123456789, Op: table.Claim,
		Key: lockkeeper.Key{Session: "k3v9x2m8q4p7w1zz", Epoch: 12, LowestOpen: 41, Acked: 90},
		Want: lockkeeper.Want{
			ID: 42, Wait: lockkeeper.Forever, Label: lockkeeper.Label{As: "ann@build7", Note: "go test ./..."},
			Targets: []lockkeeper.Target{{Path: "mydatabase/mytest", Mode: lockkeeper.ModeExclusive}},
		},
	}
}
