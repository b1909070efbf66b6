package rows

import (
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

const sequences = 100

// Records of tables that random commands have changed are the same after a round trip through rows.
func TestRoundTrip(t *testing.T) {
	seen := make(map[string]bool)
	played := 0
	for seed := range testmode.Seeds(t, sequences) {
		played++
		if err := play(seed, seen); err != nil {
			t.Fatalf("%v\nreplay: %s", err, testmode.Replay(t, seed))
		}
	}
	for field := range reflect.TypeFor[details]().Fields() {
		if !seen[field.Name] && played == sequences {
			t.Errorf("no claim of %d sequences had %s: more of them would", played, field.Name)
		}
	}
}

// play plays one sequence, and brings what each command changed into rows and back.
func play(seed uint64, seen map[string]bool) error {
	one := table.New()
	one.Track()
	runner := story.New(one, nil)
	for _, c := range model.Generate(seed, 100) {
		c = runner.Complete(c)
		reply, err := one.Step(&c)
		runner.Learn(c, reply, err)
		changes := one.Changes()
		for i := range changes.Claims {
			if err := throughClaim(one, changes.Claims[i], changes.Counters.Now, seen); err != nil {
				return fmt.Errorf("after %s: %w", story.Format(c), err)
			}
		}
		for _, in := range changes.Sessions {
			var out table.SessionRecord
			err := ScanSession(&out, scanner(SessionColumns, SessionValues(&in)))
			if !in.Closed && (err != nil || in != out) {
				return fmt.Errorf("after %s: session went in as\n%+v and came out as\n%+v, %w", story.Format(c), in, out, err)
			}
		}
		for _, in := range changes.Freezes {
			var out table.FreezeRecord
			err := ScanFreeze(&out, scanner(FreezeColumns, FreezeValues(&in)))
			if !in.Ended && (err != nil || in != out) {
				return fmt.Errorf("after %s: freeze went in as\n%+v and came out as\n%+v, %w", story.Format(c), in, out, err)
			}
		}
	}
	return nil
}

func throughClaim(one *table.Table, record table.ClaimRecord, now time.Duration, seen map[string]bool) error {
	in, out := Claim{ClaimRecord: record}, Claim{}
	st, _ := one.Status(record.Ref)
	if record.State == lockkeeper.Ended {
		in.Blockers, in.Position, in.ETA = st.Blockers, st.Position, st.ETA
	}
	values, err := in.Values()
	if err != nil {
		return err
	}
	if err := out.Scan(scanner(ClaimColumns, values)); err != nil {
		return err
	}
	if !reflect.DeepEqual(in, out) {
		return fmt.Errorf("claim went in as\n%+v and came out as\n%+v, by %v", in, out, values)
	}
	if ended := out.EndedStatus(now); record.State == lockkeeper.Ended && st.Change == record.Change && !record.Thawed &&
		!reflect.DeepEqual(ended, st) {
		return fmt.Errorf("the row says\n%+v, and the table\n%+v", ended, st)
	}
	d := reflect.ValueOf(in.detailsOf())
	for i := range d.NumField() {
		seen[d.Type().Field(i).Name] = seen[d.Type().Field(i).Name] || !d.Field(i).IsZero()
	}
	return nil
}

// scanner returns a scan function that copies values to its arguments, as strictly as databases do.
func scanner(columns string, values []any) func(...any) error {
	return func(into ...any) error {
		if n := len(strings.Split(columns, ", ")); n != len(values) || n != len(into) {
			return fmt.Errorf("%d columns, %d values, read as %d", n, len(values), len(into))
		}
		for i, v := range values {
			if s, ok := into[i].(sql.Scanner); ok {
				if err := s.Scan(v); err != nil {
					return err
				}
				continue
			}
			to, from := reflect.ValueOf(into[i]).Elem(), reflect.ValueOf(v)
			isText := to.Kind() == reflect.String || to.Type() == reflect.TypeFor[[]byte]()
			if _, text := v.(string); v == nil || text != isText {
				return fmt.Errorf("column %d is %v, which is no %s", i+1, v, to.Type())
			}
			to.Set(from.Convert(to.Type()))
		}
		return nil
	}
}

// A hold time is written when it has changed enough, and not with every release.
func TestHoldTimeMoved(t *testing.T) {
	const s = time.Second
	old := table.HoldTimeRecord{Path: "db", Estimate: 80 * s, At: 100 * s}
	for _, c := range []struct {
		estimate, at time.Duration
		forgotten    bool
		moved        bool
	}{
		{estimate: 80 * s, at: 200 * s},
		{estimate: 90 * s, at: 200 * s},
		{estimate: 91 * s, at: 200 * s, moved: true},
		{estimate: 69 * s, at: 200 * s, moved: true},
		{estimate: 20 * s, at: 100*s + 999*time.Millisecond},
		{estimate: 20 * s, at: 101 * s, moved: true},
		{estimate: 80 * s, at: 701 * s, moved: true},
		{estimate: 80 * s, at: 100 * s, forgotten: true, moved: true},
	} {
		p := table.HoldTimeRecord{Path: "db", Estimate: c.estimate, At: c.at, Forgotten: c.forgotten}
		if moved := HoldTimeMoved(&old, &p); moved != c.moved {
			t.Errorf("%v at %v, forgotten %t: moved is %t", c.estimate, c.at, c.forgotten, moved)
		}
	}
}
