package replica

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

// put makes a Put, and returns its answer.
func (l *lone) put(key, value string, revision uint64) Answer {
	l.Helper()
	id := l.Put(l.clock, Setting{Key: key, Value: []byte(value), Revision: revision})
	l.collect()
	l.sync()
	a, answered := l.answers[id]
	if !answered {
		l.Fatalf("to put %q is not answered", key)
	}
	return a
}

// keys returns what the node has under prefix.
func (l *lone) keys(prefix string) (all []string) {
	for _, s := range l.Settings(prefix) {
		all = append(all, fmt.Sprintf("%s=%s@%d", s.Key, s.Value, s.Revision))
	}
	return all
}

func TestSettingChangesByCompareAndSet(t *testing.T) {
	l := newLone(t)
	l.elect()
	made := l.put("node/1", "a", l.Setting("node/1").Revision)
	if made.Err != nil || !slices.Equal(l.keys("node/"), []string{fmt.Sprintf("node/1=a@%d", made.Revision)}) {
		t.Fatalf("answer %+v, settings %v", made, l.keys(""))
	}
	if a := l.put("node/1", "b", made.Revision-1); !errors.Is(a.Err, ErrRevision) || a.Revision != made.Revision {
		t.Errorf("a change for an older revision: %+v", a)
	}
	changed := l.put("node/1", "c", made.Revision)
	if changed.Err != nil || changed.Revision <= made.Revision || string(l.Setting("node/1").Value) != "c" {
		t.Errorf("a change for the latest revision: %+v, setting %+v", changed, l.Setting("node/1"))
	}
	if a := l.put("node/1", "", changed.Revision); a.Err != nil || len(l.Settings("node/")) > 0 {
		t.Errorf("a removal: %+v, settings %v", a, l.keys(""))
	}
}

// An id that votes is not expelled, and one that is expelled gets no vote: nobody talks to an expelled node,
// so it would count against the majority for good.
func TestExpelledIDsDoNotVote(t *testing.T) {
	l := newLone(t)
	l.elect()
	if a := l.put(voters.ExpelledKey(1), "sold", l.Setting("").Revision); !errors.Is(a.Err, ErrVotes) {
		t.Errorf("to expel the voter: %v", a.Err)
	}
	change := func(kind voters.ChangeKind, id uint64) error {
		t.Helper()
		err := l.Change(l.clock, voters.Change{Kind: kind, ID: id})
		l.collect()
		l.sync()
		return err
	}
	if err := change(voters.Add, 2); err != nil {
		t.Fatal(err)
	}
	if a := l.put(voters.ExpelledKey(2), "sold", l.Setting("").Revision); a.Err != nil {
		t.Errorf("to expel a learner: %v", a.Err)
	}
	for kind, id := range map[voters.ChangeKind]uint64{voters.Promote: 2, voters.Add: 3} {
		if id == 3 {
			l.put(voters.ExpelledKey(3), "sold", l.Setting("").Revision)
		}
		if err := change(kind, id); !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "expelled") {
			t.Errorf("to %s node %d, which is expelled: %v", kind, id, err)
		}
	}
	if err := change(voters.Remove, 2); err != nil || len(l.Status().Learners) > 0 {
		t.Errorf("to remove it: %v, learners %v", err, l.Status().Learners)
	}
}

// A copy of the Put that made a setting may arrive after the setting was removed.
func TestLateCopyOfAPutDoesNotMakeARemovedSetting(t *testing.T) {
	l := newLone(t)
	l.elect()
	made := l.put("node/1", "a", l.Setting("node/1").Revision)
	removed := l.put("node/1", "", made.Revision)
	for _, late := range []Answer{l.put("node/1", "a", 0), l.put("node/1", "", made.Revision)} {
		if !errors.Is(late.Err, ErrRevision) || late.Revision != removed.Revision {
			t.Errorf("a late copy: %+v, want ErrRevision and revision %d", late, removed.Revision)
		}
	}
	if a := l.put("node/1", "a", removed.Revision); a.Err != nil || a.Revision <= removed.Revision {
		t.Errorf("made again: %+v", a)
	}
}

func TestRestartedNodeHasItsSettings(t *testing.T) {
	l := newLone(t)
	l.elect()
	for i := range 70 { // more than a snapshot
		l.put("counter", fmt.Sprint(i), l.Setting("counter").Revision)
	}
	before := l.keys("")
	l.start(2)
	l.elect()
	if after := l.keys(""); !slices.Equal(before, after) || len(after) == 0 {
		t.Errorf("settings %v, before the restart %v", after, before)
	}
}

// What a replica tells of changes adds up to its settings, also if it gets them by a snapshot.
func TestChangedTellsOfAllSettings(t *testing.T) {
	l := newLone(t)
	l.elect()
	for i := range 60 {
		l.put(fmt.Sprintf("key%d", i%7), fmt.Sprint(i), l.Setting(fmt.Sprintf("key%d", i%7)).Revision)
	}
	l.put("key3", "", l.Setting("key3").Revision)
	told := make(map[string]string)
	c := loneConfig(2)
	c.Changed = func(_ uint64, s Setting) {
		told[s.Key] = string(s.Value)
		if len(s.Value) == 0 {
			delete(told, s.Key)
		}
	}
	r, err := New(c, l.state.clone(), l.clock)
	if err != nil {
		t.Fatal(err)
	}
	r.settings.put(&Setting{Key: "key5", Value: []byte("only here"), Revision: r.Setting("key5").Revision})
	r.settings.put(&Setting{Key: "key8", Value: []byte("only here")})
	told["key5"], told["key8"] = "only here", "only here"
	if err := r.install(l.state.Snapshot); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for _, s := range r.Settings("") {
		want[s.Key] = string(s.Value)
	}
	if !reflect.DeepEqual(told, want) || len(want) < 7 {
		t.Errorf("told of %v, the settings are %v", told, want)
	}
}

func TestSettingsAreBounded(t *testing.T) {
	l := newLone(t)
	l.elect()
	for name, s := range map[string]Setting{
		"no key":           {Value: []byte("x")},
		"a long key":       {Key: strings.Repeat("k", MaxSettingKey+1), Value: []byte("x")},
		"a key with space": {Key: "a b", Value: []byte("x")},
		"a large value":    {Key: "a", Value: make([]byte, MaxSettingValue+1)},
	} {
		if a := l.put(s.Key, string(s.Value), 0); !errors.Is(a.Err, lockkeeper.ErrInvalid) {
			t.Errorf("%s: %v", name, a.Err)
		}
		if _, err := Found(Beginning{Voters: []uint64{1}, Settings: []Setting{s}}); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%s at the beginning: %v", name, err)
		}
	}
	large := strings.Repeat("x", MaxSettingValue)
	for i := range MaxSettingsSize / MaxSettingValue {
		a := l.put(fmt.Sprintf("large%d", i), large, 0)
		if last := i == MaxSettingsSize/MaxSettingValue-1; errors.Is(a.Err, ErrFull) != last || !last && a.Err != nil {
			t.Errorf("large setting %d: %v", i, a.Err)
		}
	}
	l.put("large0", "", l.Setting("large0").Revision)
	if a := l.put("large9", large, l.Setting("large9").Revision); a.Err != nil {
		t.Errorf("a setting in the place of a removed one: %v", a.Err)
	}
}

func TestNumberOfSettingsIsBounded(t *testing.T) {
	var ss settings
	for i := range MaxSettings {
		s := Setting{Key: fmt.Sprint(i), Value: []byte("x")}
		if err := ss.refuse(s); err != nil {
			t.Fatal(err)
		}
		ss.put(&s)
	}
	if err := ss.refuse(Setting{Key: "more", Value: []byte("x")}); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	first := ss.get("0")
	if err := ss.refuse(Setting{Key: "0", Value: []byte("y"), Revision: first.Revision}); err != nil {
		t.Errorf("another value of one that is there: %v", err)
	}
}

func TestNodeAndItsSettingChangeTogether(t *testing.T) {
	l := newLone(t)
	l.elect()
	add := voters.Change{Kind: voters.Add, ID: 2}
	node := Setting{Key: "node/2", Value: []byte("two"), Revision: l.Setting("node/2").Revision}
	stale := Setting{Key: "counter", Value: []byte("9"), Revision: 99}
	if err := l.Change(l.clock, add, node, stale); !errors.Is(err, ErrChange) || !errors.Is(err, ErrRevision) {
		t.Fatalf("with a setting that has changed: %v", err)
	}
	if err := l.Change(l.clock, add, node); err != nil {
		t.Fatal(err)
	}
	l.collect()
	if learners := l.Status().Learners; len(learners) > 0 || len(l.Settings("node/")) > 0 {
		t.Errorf("before the change is durable: learners %v, settings %v", learners, l.keys("node/"))
	}
	l.sync()
	if learners := l.Status().Learners; len(learners) != 1 || len(l.Settings("node/")) != 1 {
		t.Errorf("learners %v, settings %v, want both to have node 2", learners, l.keys("node/"))
	}
	gone, expelled := l.Setting("node/2"), l.Setting("expelled/2")
	gone.Value, expelled.Value = nil, []byte("two")
	if err := l.Change(l.clock, voters.Change{Kind: voters.Remove, ID: 2}, gone, expelled); err != nil {
		t.Fatal(err)
	}
	l.collect()
	l.sync()
	if len(l.Status().Learners) > 0 || len(l.Settings("node/")) > 0 || len(l.Settings("expelled/")) != 1 {
		t.Errorf("learners %v, settings %v, want node 2 expelled", l.Status().Learners, l.keys(""))
	}
}

// A setting changes while the change of the configuration is on its way.
func TestNodeIsNotAddedIfItsSettingChangesBefore(t *testing.T) {
	l := newLone(t)
	l.elect()
	revision := l.Setting("node/2").Revision
	put := l.Put(l.clock, Setting{Key: "node/2", Value: []byte("another"), Revision: revision})
	err := l.Change(l.clock, voters.Change{Kind: voters.Add, ID: 2},
		Setting{Key: "node/2", Value: []byte("two"), Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	l.collect()
	l.sync()
	a, value := l.answers[put], string(l.Setting("node/2").Value)
	if a.Err != nil || len(l.Status().Learners) > 0 || value != "another" {
		t.Errorf("put: %v; learners %v, settings %v: want the put alone", a.Err, l.Status().Learners, l.keys("node/"))
	}
	if err := l.Change(l.clock, voters.Change{Kind: voters.Add, ID: 2}); err != nil {
		t.Errorf("the next change: %v", err)
	}
}

func TestClusterBeginsWithTheLocksOfAnEngine(t *testing.T) {
	before := table.New()
	c := attach("s")
	if _, err := before.Step(&c); err != nil {
		t.Fatal(err)
	}
	state, err := Found(Beginning{Voters: []uint64{1}, Table: before})
	if err != nil {
		t.Fatal(err)
	}
	l := &lone{T: t, state: state}
	l.start(1)
	l.elect()
	if !l.Table().Open("s") {
		t.Error("the session of the engine is not open")
	}
}

func TestDamagedSettingsAreRefused(t *testing.T) {
	good := settings{}
	for _, key := range []string{"a", "b"} {
		good.put(&Setting{Key: key, Value: []byte("v")})
	}
	read := func(change func(ss *settings)) error {
		bad := good
		bad.sorted = slices.Clone(good.sorted)
		change(&bad)
		_, rest, err := cutSettings(appendSettings(nil, &bad))
		if err == nil && len(rest) > 0 {
			err = errors.New("bytes remain")
		}
		return err
	}
	if err := read(func(*settings) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(ss *settings){
		"keys out of order":         func(ss *settings) { ss.sorted[0].Key = "c" },
		"a key twice":               func(ss *settings) { ss.sorted[0].Key = "b" },
		"no value":                  func(ss *settings) { ss.sorted[0].Value = nil },
		"a bad key":                 func(ss *settings) { ss.sorted[1].Key = "b\n" },
		"a later revision":          func(ss *settings) { ss.sorted[1].Revision = 3 },
		"revision 0":                func(ss *settings) { ss.sorted[1].Revision = 0 },
		"a later removal":           func(ss *settings) { ss.removed = 3 },
		"a large value":             func(ss *settings) { ss.sorted[0].Value = make([]byte, MaxSettingValue+1) },
		"more settings than fit in": func(ss *settings) { ss.sorted = slices.Repeat(ss.sorted, MaxSettings) },
	} {
		if err := read(change); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	whole := appendSettings(nil, &good)
	for n := range whole {
		if _, _, err := cutSettings(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(whole))
		}
	}
}
