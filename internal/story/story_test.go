package story

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// lines are written as Format writes them.
var lines = []string{
	"attach alice ttl=30s named=1,2",
	"attach alice epoch=7",
	"attach alice ttl=30s named=1 lapsed=2/stolen/5s lapsed=3/expired/30s epoch=7",
	"lapsed alice 1/overdue/0s",
	"attach alice ttl=30s epoch=none",
	"at 12s renew alice",
	"renew alice epoch=2 lowest-open=7 acked=3",
	"release alice 1 lowest-open=2",
	"claim alice 1 exclusive db/a priority=5",
	"claim alice 1 exclusive db/a wait=try epoch=18446744073709551615",
	`claim bob 7 permits router/snmp 2/3, shared site rev=1 wait=10s steal-after=5s max-hold=1m grace=5s ` +
		`expected=2h inside=alice.1 as=bob note="the nightly run"`,
	"claim bob 8 exclusive db, exclusive site soft quiet=5s",
	"claim bob 9 shared db steal link=http://ci/1",
	`claim "b o b" 9 shared "a, b", permits "x=\"y" 1/1`,
	"claim bob 3 exclusive db steal-after=0s",
	`freeze ops 1 db, site for=1h note="disk swap"`,
	"release alice 1",
	"leave alice",
	"gone alice epoch=3",
	`revoke ops alice.1 force note=stuck`,
	"thaw ops db",
	"at 1h restart",
	"at 10s pass",
	"pass",
}

func TestLinesComeBack(t *testing.T) {
	for _, text := range lines {
		c, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := Format(c); got != text {
			t.Errorf("%s\ncomes back as\n%s", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]table.Command{
		"pass 10s": {Op: table.Pass, At: 10 * time.Second},
		"at 1m  claim  bob 2 permits a 2/3,  shared b wait=1d": {At: time.Minute, Op: table.Claim,
			Key: lockkeeper.Key{Session: "bob"}, Want: lockkeeper.Want{ID: 2, Wait: 24 * time.Hour, Targets: []lockkeeper.Target{
				{Path: "a", Mode: lockkeeper.ModePermits, Units: 2, Limit: 3}, {Path: "b", Mode: lockkeeper.ModeShared}}}},
		"claim bob 2 exclusive soft soft": {Op: table.Claim, Key: lockkeeper.Key{Session: "bob"}, Want: lockkeeper.Want{ID: 2,
			Wait: lockkeeper.Forever, WriterPolicy: lockkeeper.Soft,
			Targets: []lockkeeper.Target{{Path: "soft", Mode: lockkeeper.ModeExclusive}}}},
	} {
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "the command is missing",
		"dance":                               `no command "dance"`,
		"renew":                               "the session is missing",
		"renew bob 7":                         "7 is no part of this command",
		"claim bob":                           "the id is missing",
		"claim bob x exclusive a":             `"x" is not a number`,
		"claim bob 1 mine a":                  `mode "mine"`,
		"claim bob 1 permits a 3":             "units/limit",
		"claim bob 1 exclusive a,":            `mode`,
		"claim bob 1 exclusive a wait=10":     `"10" is not a duration`,
		"claim bob 1 exclusive a ttl=10s":     "ttl=10s is no part",
		`claim bob 1 exclusive "a`:            "quote is not closed",
		"revoke ops alice":                    "a dot and its number",
		"at soon renew bob":                   `"soon" is not a duration`,
		"attach alice named=1,x":              `"x" is not a number`,
		"renew alice ttl=5s":                  "ttl=5s is no part",
		"lapsed alice 1":                      `"1" is no lapse`,
		"lapsed alice 1/bored/5s":             `reason "bored" is unknown`,
		"claim bob 1 exclusive a expected=1y": `"1y" is not a duration`,
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "10m": 10 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute,
		"1h0m5s": time.Hour + 5*time.Second, "1.5s": 1500 * time.Millisecond, "forever": lockkeeper.Forever,
	} {
		got := Duration(d)
		if got != want {
			t.Errorf("%s: got %s", want, got)
		}
		if back, err := duration(got); err != nil || back != d {
			t.Errorf("%s comes back as %s, %v", got, back, err)
		}
	}
	if d, err := duration("2w"); err != nil || d != 14*24*time.Hour {
		t.Errorf("2w: %s, %v", d, err)
	}
}

// FuzzParse: what can be read comes back from what Format writes of it.
func FuzzParse(f *testing.F) {
	for _, text := range lines {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil || lossy(c) {
			return
		}
		written := Format(c)
		back, err := Parse(written)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, written, err)
		}
		if !reflect.DeepEqual(back, c) {
			t.Errorf("%q is written as %q, which is\n%+v, not\n%+v", text, written, back, c)
		}
	})
}

// FuzzFormat: every text in a command survives.
func FuzzFormat(f *testing.F) {
	f.Add("alice", "db/a", "the nightly run", uint64(1), int64(5), 2, uint8(0))
	f.Add("", "a,", "\"", uint64(0), int64(-5), 0, uint8(255))
	f.Add("a=b", "\xff", "\u2028\\", uint64(1<<63), int64(1<<62), -1, uint8(3))
	f.Fuzz(func(t *testing.T, id, path, note string, n uint64, d int64, units int, bits uint8) {
		label := lockkeeper.Label{As: note, Note: path, Link: id}
		mode := lockkeeper.Mode(bits%3) + lockkeeper.ModeExclusive
		target := lockkeeper.Target{Path: lockkeeper.Path(path), Mode: mode}
		if mode == lockkeeper.ModePermits {
			target.Units, target.Limit = units, units+1
		}
		key := lockkeeper.Key{Session: id, Epoch: n}
		at := time.Duration(d)
		for _, c := range []table.Command{
			{At: at, Op: table.Attach, Session: lockkeeper.Session{ID: id, TTL: at, Named: []uint64{n, 1}, Label: label}},
			{At: at, Op: table.Renew, Key: key},
			{At: at, Op: table.Claim, Key: key, Want: lockkeeper.Want{ID: n, Revision: n, Priority: units, Wait: at,
				Targets: []lockkeeper.Target{target, target}, MaxHold: at, Expected: at, Quiet: at, Label: label}},
			{At: at, Op: table.End, Key: key, Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: n, Label: label}},
			{At: at, Op: table.End, Key: key, Ending: lockkeeper.Ending{
				Kind:  lockkeeper.Thaw,
				Path:  target.Path,
				Force: bits > 9,
			}},
		} {
			if c.Ending.Force && c.Ending.Kind != lockkeeper.Revoke {
				c.Ending.Force = false
			}
			back, err := Parse(Format(c))
			if err != nil || !reflect.DeepEqual(back, c) {
				t.Errorf("%q: %v\ngot  %+v\nwant %+v", Format(c), err, back, c)
			}
		}
	})
}

// lossy: no valid command is so, and Format doesn't write all of it.
func lossy(c table.Command) bool {
	w := c.Want
	return w.Steal != lockkeeper.Take && (w.After != 0 || w.AfterTTL != 0) || w.After != 0 && w.AfterTTL != 0 ||
		w.Inside.Session == "" && w.Inside.ID != 0 ||
		c.Ending.Force && c.Ending.Kind != lockkeeper.Revoke ||
		c.Ending.Kind == lockkeeper.Revoke && c.Ending.Ref.Session == "" && c.Ending.Ref.ID != 0
}
