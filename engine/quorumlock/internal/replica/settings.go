package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Setting is one of the cluster's settings: a small text or document under a key, the same on all
// nodes. It changes by compare-and-set, see [Replica.Put].
type Setting struct {
	Key   string // 1 to MaxSettingKey bytes of printable ASCII without spaces
	Value []byte // empty: there is no such setting

	// Revision names this state of the setting. No setting ever has a revision twice, also if it is
	// removed and made again. All settings that are not there have one revision: that of the latest
	// removal of any setting, or 0. So a late copy of a Put never makes a setting that was removed.
	Revision uint64
}

// The bounds of the settings. They are part of the rules, because all nodes have to refuse the same
// changes.
const (
	MaxSettingKey   = 128       // bytes of a key
	MaxSettingValue = 256 << 10 // bytes of a value
	MaxSettings     = 4096      // settings
	MaxSettingsSize = 1 << 20   // bytes of all keys and values together
)

// The refusals of a Put. They change nothing.
var (
	// ErrRevision: the setting has another revision by now. The Answer states it.
	ErrRevision = errors.New("the setting has changed since it was read")
	// ErrFull: see MaxSettings and MaxSettingsSize.
	ErrFull = errors.New("the cluster has too many settings")
	// ErrVotes: the setting would expel an id that votes, see voters.ExpelledKey. Else the cluster could lose its
	// majority, as nobody talks to an expelled node.
	ErrVotes = errors.New("a node that votes can't be expelled")
)

// Put is the input that a setting should get a value, if it still has the revision s.Revision. An
// empty value removes it. The one answer comes as that of Replica.Call does, and states the revision
// that the setting has then. After ErrUnavailable it is unknown whether the setting has changed: the
// caller makes a Read and looks.
func (r *Replica) Put(now time.Duration, s Setting) CallID {
	r.begin(now)
	s.Value = slices.Clone(s.Value)
	return r.admit(&request{setting: &s}, refuseReserved(s.Key))
}

// Setting returns the setting under a key, as this node knows it: without a value, and with the
// revision to make it by, if there is none. A caller that needs the current one makes a Read first.
// The caller must not change the value.
func (r *Replica) Setting(key string) Setting { return r.settings.get(key) }

// Settings returns the settings whose keys begin with prefix, by key, as this node knows them. The
// caller must not change the values.
func (r *Replica) Settings(prefix string) []Setting {
	from, _ := r.settings.find(prefix)
	to := from
	for to < len(r.settings.sorted) && strings.HasPrefix(r.settings.sorted[to].Key, prefix) {
		to++
	}
	return slices.Clone(r.settings.sorted[from:to])
}

// settings are the settings in the replicated state.
type settings struct {
	sorted  []Setting // by key; their values never change
	last    uint64    // the revision of the latest change of any setting
	removed uint64    // the revision of the latest removal of any setting
	size    int       // bytes of all keys and values
}

// find returns where the setting is, or would be.
func (ss *settings) find(key string) (at int, there bool) {
	return slices.BinarySearchFunc(ss.sorted, key, func(s Setting, key string) int { return strings.Compare(s.Key, key) })
}

func (ss *settings) get(key string) Setting {
	if at, there := ss.find(key); there {
		return ss.sorted[at]
	}
	return Setting{Key: key, Revision: ss.removed}
}

// refuse returns why changes can't be made together now; nil if they can. All of their revisions are
// those before the first of them.
func (ss *settings) refuse(changes ...Setting) error {
	count, size := len(ss.sorted), ss.size
	for i := range changes {
		s := &changes[i]
		if err := s.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(changes[:i], func(other Setting) bool { return other.Key == s.Key }) {
			return lockkeeper.Invalid("setting %q can't change twice at once", s.Key)
		}
		before := ss.get(s.Key)
		if before.Revision != s.Revision {
			return fmt.Errorf("%w: %q has revision %d, the change is for revision %d", ErrRevision, s.Key, before.Revision,
				s.Revision)
		}
		count += s.counts() - before.counts()
		size += s.size() - before.size()
	}
	switch {
	case count > MaxSettings:
		return fmt.Errorf("%w: %d, at most %d are possible", ErrFull, count, MaxSettings)
	case size > MaxSettingsSize:
		return fmt.Errorf("%w: they would have %d bytes, at most %d are possible", ErrFull, size, MaxSettingsSize)
	}
	return nil
}

// put makes s the setting under its key, whatever its revision, and returns the setting as it is then.
// The removal of a setting that is not there changes nothing.
func (ss *settings) put(s *Setting) Setting {
	at, there := ss.find(s.Key)
	if !there && len(s.Value) == 0 {
		return ss.get(s.Key)
	}
	before := ss.get(s.Key)
	ss.size += s.size() - before.size()
	ss.last++
	switch {
	case len(s.Value) == 0:
		ss.removed = ss.last
		ss.sorted = slices.Delete(ss.sorted, at, at+1)
	case there:
		ss.sorted[at] = Setting{s.Key, slices.Clone(s.Value), ss.last}
	default:
		ss.sorted = slices.Insert(ss.sorted, at, Setting{s.Key, slices.Clone(s.Value), ss.last})
	}
	return ss.get(s.Key)
}

// counts returns for how many settings s counts: one that is not there counts for none.
func (s *Setting) counts() int { return min(len(s.Value), 1) }

// size returns for how many bytes s counts.
func (s *Setting) size() int { return s.counts() * (len(s.Key) + len(s.Value)) }

// check returns why no cluster can have such a setting.
func (s *Setting) check() error {
	if s.Key == "" || len(s.Key) > MaxSettingKey {
		return lockkeeper.Invalid("the key of a setting has %d bytes: want 1 to %d", len(s.Key), MaxSettingKey)
	}
	if strings.ContainsFunc(s.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return lockkeeper.Invalid("key %q: want printable ASCII without spaces", s.Key)
	}
	if len(s.Value) > MaxSettingValue {
		return lockkeeper.Invalid("setting %q has a value of %d bytes: want at most %d", s.Key, len(s.Value),
			MaxSettingValue)
	}
	return nil
}

// A setting in bytes, alone and among the settings of a snapshot, which are in the order of their
// keys:
//
//	setting  = length key revision length value
//	settings = last removed count setting*

func appendSetting(b []byte, s *Setting) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(s.Key))), s.Key...)
	b = binary.AppendUvarint(b, s.Revision)
	return append(binary.AppendUvarint(b, uint64(len(s.Value))), s.Value...)
}

// cutSetting reads a setting. Its value is part of b.
func cutSetting(b []byte) (s Setting, rest []byte, err error) {
	key, b, err := cutBytes(b)
	if err != nil {
		return s, nil, err
	}
	s.Key = string(key)
	if s.Revision, b, err = cutNumber(b); err != nil {
		return s, nil, err
	}
	s.Value, b, err = cutBytes(b)
	return s, b, err
}

func appendSettings(b []byte, ss *settings) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, ss.last), ss.removed)
	b = binary.AppendUvarint(b, uint64(len(ss.sorted)))
	for i := range ss.sorted {
		b = appendSetting(b, &ss.sorted[i])
	}
	return b
}

func cutSettings(b []byte) (ss settings, rest []byte, err error) {
	var count uint64
	for _, n := range []*uint64{&ss.last, &ss.removed, &count} {
		if *n, b, err = cutNumber(b); err != nil {
			return ss, nil, err
		}
	}
	if count > MaxSettings || ss.removed > ss.last {
		return ss, nil, fmt.Errorf("%d settings, the last removal has revision %d of %d", count, ss.removed, ss.last)
	}
	before := ""
	for range count {
		var s Setting
		if s, b, err = cutSetting(b); err != nil {
			return ss, nil, err
		}
		if err = s.check(); err != nil {
			return ss, nil, err
		}
		if s.Key <= before || len(s.Value) == 0 || s.Revision == 0 || s.Revision > ss.last {
			return ss, nil, fmt.Errorf("setting %q with %d bytes and revision %d of %d follows %q", s.Key, len(s.Value),
				s.Revision, ss.last, before)
		}
		before = s.Key
		s.Value = slices.Clone(s.Value)
		ss.sorted = append(ss.sorted, s)
		ss.size += s.size()
	}
	if ss.size > MaxSettingsSize {
		return ss, nil, fmt.Errorf("the settings have %d bytes, at most %d are possible", ss.size, MaxSettingsSize)
	}
	return ss, b, nil
}

// notifyChanged tells the caller of this replica which settings differ from those before, by key.
func (r *Replica) notifyChanged(before *settings) {
	if r.config.Changed == nil {
		return
	}
	after := &r.settings
	for i, k := 0, 0; i < len(before.sorted) || k < len(after.sorted); {
		switch {
		case k == len(after.sorted) || i < len(before.sorted) && before.sorted[i].Key < after.sorted[k].Key:
			r.config.Changed(r.applied, after.get(before.sorted[i].Key))
			i++
		case i == len(before.sorted) || after.sorted[k].Key < before.sorted[i].Key:
			r.config.Changed(r.applied, after.sorted[k])
			k++
		default:
			if before.sorted[i].Revision != after.sorted[k].Revision {
				r.config.Changed(r.applied, after.sorted[k])
			}
			i, k = i+1, k+1
		}
	}
}
