package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// fill gives every field of v a random value, so that the test notices a field that is not sent. If
// zero is false, no value is the zero value.
func fill(r *rand.Rand, v reflect.Value, zero bool) {
	if zero && r.IntN(3) == 0 {
		return
	}
	switch v.Interface().(type) {
	case time.Duration:
		v.SetInt(int64([]time.Duration{lockkeeper.Forever,
			time.Duration(1 + r.Int64N(int64(lockkeeper.MaxDuration)))}[r.IntN(2)]))
		return
	case lockkeeper.Reason:
		v.SetUint(1 + r.Uint64N(uint64(lockkeeper.Quota)))
		return
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Func: // an error, which its test sets, and functions, which do not cross
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", r.Uint64()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(1 + r.Uint64N(2))
	case reflect.Uint32:
		v.SetUint(r.Uint64N(1 << 32))
	case reflect.Uint64:
		v.SetUint(1 + r.Uint64()>>r.IntN(63))
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(lockkeeper.MaxPermits))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), zero)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), zero)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "LogIndex" { // it does not cross
				fill(r, v.Field(i), zero)
			}
		}
	default:
		panic("no random " + v.Type().String())
	}
}

// crossing encodes and decodes random values, with the generated code and with the library's own,
// and fails the test unless each value stays the same.
func crossing[T any, M interface {
	proto.Message
	part
	UnmarshalVT([]byte) error
}](t *testing.T, send func(*T) M, read func(M) T) {
	r := testmode.Rand(t)
	for i := range 500 {
		var before T
		fill(r, reflect.ValueOf(&before).Elem(), i > 0)
		m := send(&before)
		fast := marshal(nil, m, m.SizeVT())
		again := m.ProtoReflect().New().Interface().(M)
		if err := proto.Unmarshal(fast, again); err != nil || !proto.Equal(m, again) {
			t.Fatalf("the library reads something else: %v\n%v\n%v", err, m, again)
		}
		slow, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		quick := m.ProtoReflect().New().Interface().(M)
		if err := quick.UnmarshalVT(slow); err != nil {
			t.Fatal(err)
		}
		if after := read(quick); !reflect.DeepEqual(before, after) {
			t.Fatalf("sent %+v\nread %+v", before, after)
		}
	}
}

func TestValuesCross(t *testing.T) {
	t.Run("session", func(t *testing.T) { crossing(t, NewSession, (*Session).Read) })
	t.Run("want", func(t *testing.T) {
		crossing(t, NewWant, func(m *Want) lockkeeper.Want {
			w := m.Read()
			if len(w.Targets) == 0 {
				w.Targets = nil
			}
			return w
		})
	})
	t.Run("want of a measured steal", func(t *testing.T) {
		w := lockkeeper.Want{ID: 1, Wait: lockkeeper.Forever, Steal: lockkeeper.Take, After: lockkeeper.AfterMeasured}
		var m Want
		if err := m.UnmarshalVT(marshal(nil, NewWant(&w), NewWant(&w).SizeVT())); err != nil {
			t.Fatal(err)
		}
		if after := m.Read(); after.After != w.After || after.Wait != w.Wait {
			t.Errorf("sent %+v\nread %+v", w, after)
		}
	})
	t.Run("ending", func(t *testing.T) { crossing(t, NewEnding, (*Ending).Read) })
	t.Run("query", func(t *testing.T) {
		crossing(t, func(q *lockkeeper.Query) *Query { return NewQuery(q, 7) }, (*Query).Read)
	})
	t.Run("status", func(t *testing.T) {
		crossing(t, func(s *lockkeeper.Status) *Status { return NewStatus(s, "") }, func(m *Status) lockkeeper.Status {
			return m.Read("")
		})
	})
	t.Run("status of the session", func(t *testing.T) {
		session := "k3v9"
		crossing(t, func(s *lockkeeper.Status) *Status { s.Ref.Session = session; return NewStatus(s, session) },
			func(m *Status) lockkeeper.Status { return m.Read(session) })
	})
	t.Run("error", func(t *testing.T) {
		r := testmode.Rand(t)
		crossing(t, func(e *lockkeeper.Error) *Error {
			e.Err, e.Op, e.Cause = codes[1+r.IntN(len(codes)-1)], "", nil
			return NewError(e)
		}, func(m *Error) lockkeeper.Error { return *m.Read().(*lockkeeper.Error) })
	})
	t.Run("lease", func(t *testing.T) {
		crossing(t, func(l *lockkeeper.Lease) *Lease {
			l.Key.Session, l.Key.LowestOpen, l.Key.Acked = "k3v9", 0, 0 // an answer does not have them
			for i := range l.Claims {
				l.Claims[i].Ref.Session = "k3v9" // a lease has claims of its own session only
			}
			m, _ := newLease(l)
			return m
		}, func(m *Lease) lockkeeper.Lease { return m.Read("k3v9") })
	})
	t.Run("server's state", func(t *testing.T) { crossing(t, NewAbout, (*About).Read) })
	t.Run("guarantees", func(t *testing.T) {
		crossing(t, func(g *lockkeeper.Guarantees) *Guarantees {
			g.Features &= lockkeeper.AllFeatures
			g.NoExpiry, g.Prompt = false, false // a network has neither
			return NewGuarantees(*g)
		}, (*Guarantees).Read)
	})
}

// A lease with many large claims crosses in pieces, each of which fits into a frame.
func TestLargeLeaseIsSplit(t *testing.T) {
	lease := lockkeeper.Lease{Key: lockkeeper.Key{Session: "k3v9", Epoch: 3}, TTL: time.Minute}
	for id := range uint64(500) {
		claim := lockkeeper.Status{Ref: lockkeeper.Ref{Session: "k3v9", ID: id + 1}, State: lockkeeper.Held}
		for range lockkeeper.MaxTargets {
			path := lockkeeper.Path(strings.Repeat("p", lockkeeper.MaxPathBytes))
			claim.Grants = append(claim.Grants,
				lockkeeper.Grant{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}})
		}
		lease.Claims = append(lease.Claims, claim)
	}
	pieces, read := 0, lockkeeper.Lease{}
	for rest := lease; pieces == 0 || len(rest.Claims) > 0; pieces++ {
		var m *Lease
		m, rest = newLease(&rest)
		if m.SizeVT() > fullFrame {
			t.Fatalf("a piece has %d bytes", m.SizeVT())
		}
		piece := m.Read("k3v9")
		piece.Claims = append(read.Claims, piece.Claims...)
		read = piece
	}
	if pieces < 100 || !reflect.DeepEqual(lease, read) {
		t.Errorf("%d pieces have %d of %d claims", pieces, len(read.Claims), len(lease.Claims))
	}
}

// The numbers of the schema's enumerations are those of package lockkeeper.
func TestEnumsHaveTheNumbersOfTheAPI(t *testing.T) {
	check := func(numbers protoreflect.EnumDescriptor, prefix string, zero bool, name func(uint8) string) {
		for i := range numbers.Values().Len() {
			value := numbers.Values().Get(i)
			if value.Number() == 0 && !zero {
				continue
			}
			want := prefix + strings.ToUpper(strings.ReplaceAll(name(uint8(value.Number())), " ", "_"))
			if value.Number() == 0 {
				want = prefix + "UNSPECIFIED"
			}
			if string(value.Name()) != want {
				t.Errorf("%s is %s", value.Name(), want)
			}
		}
		if next := name(uint8(numbers.Values().Len())); !strings.Contains(next, "(") {
			t.Errorf("the schema has no %s%s", prefix, next)
		}
	}
	check(Mode(0).Descriptor(), "MODE_", false, func(n uint8) string { return lockkeeper.Mode(n).String() })
	check(WriterPolicy(0).Descriptor(), "WRITER_POLICY_",
		true, func(n uint8) string { return lockkeeper.WriterPolicy(n).String() })
	check(Steal(0).Descriptor(), "STEAL_", true, func(n uint8) string { return lockkeeper.Steal(n).String() })
	check(State(0).Descriptor(), "STATE_", false, func(n uint8) string { return lockkeeper.State(n).String() })
	check(Reason(0).Descriptor(), "REASON_", true, func(n uint8) string { return lockkeeper.Reason(n).String() })
	check(WaitReason(0).Descriptor(), "WAIT_REASON_",
		false, func(n uint8) string { return lockkeeper.WaitReason(n).String() })
}

// A value that no Go type can hold is refused by the checks, and not truncated.
func TestValuesBeyondGoTypesAreRefused(t *testing.T) {
	for _, m := range []*Want{
		{Id: 1, Targets: []*Target{{Path: "a", Mode: 257}}},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: -1}}},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_PERMITS, Units: 1<<32 + 1, Limit: 1<<32 + 1}}},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_EXCLUSIVE}}, Steal: 256},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_EXCLUSIVE}}, WriterPolicy: 512},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_EXCLUSIVE}}, Priority: 1 << 62},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_EXCLUSIVE}}, Wait: -2},
		{Id: 1, Targets: []*Target{{Path: "a", Mode: Mode_MODE_EXCLUSIVE}}, MaxHold: -1},
		{Id: 1, Targets: []*Target{{Path: "a\xff", Mode: Mode_MODE_EXCLUSIVE}}},
		{Id: 1, Targets: []*Target{nil}},
		{},
	} {
		if w := m.Read(); !errors.Is(w.Check(), lockkeeper.ErrInvalid) {
			t.Errorf("%v is taken as %+v", m, w)
		}
	}
	if e := (&Ending{Kind: 256 + 1}).Read(); !errors.Is(e.Check(), lockkeeper.ErrInvalid) {
		t.Errorf("an ending of kind 257 is taken as %v", e.Kind)
	}
}

// An error that is not of package lockkeeper crosses as an unknown outcome.
func TestForeignErrorIsUnavailable(t *testing.T) {
	for err, want := range map[error]error{
		errors.New("disk on fire"):                                                          lockkeeper.ErrUnavailable,
		fmt.Errorf("listing: %w", lockkeeper.ErrInvalid):                                    lockkeeper.ErrInvalid,
		fmt.Errorf("renew: %w", &lockkeeper.Error{Err: lockkeeper.ErrSession, Detail: "d"}): lockkeeper.ErrSession,
	} {
		if read := NewError(err).Read(); !errors.Is(read, want) {
			t.Errorf("%v crosses as %v", err, read)
		}
	}
	if read := (&Error{Code: 99}).Read(); !errors.Is(read, lockkeeper.ErrUnavailable) {
		t.Errorf("an unknown code is read as %v", read)
	}
	cause := NewError(&lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Detail: "no answer",
		Cause:  errors.New("disk on fire"),
	}).Read()
	if text := cause.Error(); !strings.Contains(text, "no answer") || !strings.Contains(text, "disk on fire") {
		t.Errorf("the words are lost: %q", text)
	}
}
