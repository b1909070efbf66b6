package quorum

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"unsafe"
)

// A copier copies a world: nothing that changes is shared. What never changes after it was made, which
// is requests, replies, messages and what they hold, stays shared.
type copier struct {
	copies map[unsafe.Pointer]unsafe.Pointer
}

var (
	timerType  = reflect.TypeFor[timer]()
	timersType = reflect.TypeFor[timers]()
	fixed      = []reflect.Type{
		reflect.TypeFor[*Request](), reflect.TypeFor[*Reply](), reflect.TypeFor[*Message](),
		reflect.TypeFor[*ClaimState](), reflect.TypeFor[*Ask](), reflect.TypeFor[bug](), reflect.TypeFor[scope](),
	}
	plain = map[reflect.Type]bool{} // types without pointers, maps and slices
)

// isPlain reports whether an assignment copies a value of type t.
func isPlain(t reflect.Type) bool {
	known, ok := plain[t]
	if ok {
		return known
	}
	is := true
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		is = slices.Contains(fixed, t)
	case reflect.Struct:
		for i := range t.NumField() {
			is = is && isPlain(t.Field(i).Type)
		}
		is = is && t != timerType || slices.Contains(fixed, t)
	case reflect.Array:
		is = isPlain(t.Elem())
	}
	plain[t] = is
	return is
}

func (w *world) clone() *world {
	k := copier{copies: map[unsafe.Pointer]unsafe.Pointer{}}
	twin := &world{}
	k.copy(reflect.ValueOf(twin).Elem(), reflect.ValueOf(w).Elem())
	return twin
}

// field returns field i of an addressable struct, also if it is not exported.
func field(v reflect.Value, i int) reflect.Value {
	f := v.Field(i)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

// copy copies from into to. Both are addressable.
func (k copier) copy(to, from reflect.Value) {
	t := from.Type()
	if isPlain(t) {
		to.Set(from)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if t == timerType { // others point into its owner
			k.copies[unsafe.Pointer(from.UnsafeAddr())] = unsafe.Pointer(to.UnsafeAddr())
		}
		for i := range t.NumField() {
			k.copy(field(to, i), field(from, i))
		}
	case reflect.Pointer:
		k.copyPointer(to, from)
	case reflect.Interface:
		if from.IsNil() {
			return
		}
		inner := reflect.New(from.Elem().Type()).Elem()
		source := reflect.New(from.Elem().Type()).Elem()
		source.Set(from.Elem())
		k.copy(inner, source)
		to.Set(inner)
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		for i := range from.Len() {
			k.copy(to.Index(i), from.Index(i))
		}
	case reflect.Array:
		for i := range from.Len() {
			k.copy(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		k.copyMap(to, from)
	default:
		panic(fmt.Sprint("no copy of ", t))
	}
}

func (k copier) copyPointer(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	at := from.UnsafePointer()
	if twin, ok := k.copies[at]; ok {
		to.Set(reflect.NewAt(from.Type().Elem(), twin))
		return
	}
	if from.Type().Elem() == timerType {
		panic("a timer whose owner is not reached before it")
	}
	twin := reflect.New(from.Type().Elem())
	k.copies[at] = twin.UnsafePointer()
	to.Set(twin)
	k.copy(twin.Elem(), from.Elem())
}

func (k copier) copyMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	t := from.Type()
	to.Set(reflect.MakeMapWithSize(t, from.Len()))
	for i := from.MapRange(); i.Next(); {
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		oldKey, old := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		oldKey.Set(i.Key())
		old.Set(i.Value())
		k.copy(key, oldKey)
		k.copy(value, old)
		to.SetMapIndex(key, value)
	}
}

// A printer takes the fingerprint of a world: two worlds that go on in the same way have the same one.
type printer struct {
	hash maphash.Hash
	seen map[unsafe.Pointer]uint64
}

var printSeed = maphash.MakeSeed()

// Fields that have no influence on what happens next, but on the text of a failure.
var ignored = map[string]bool{
	"steps": true, "story": true, "told": true, "bug": true, "scope": true, "seen": true, "answered": true,
	"requested": true, "index": true, "limits": true,
}

func (w *world) fingerprint(budget ...int) uint64 {
	p := printer{seen: map[unsafe.Pointer]uint64{}}
	p.hash.SetSeed(printSeed)
	for _, n := range budget {
		p.number(uint64(n))
	}
	wire := w.wire
	w.wire = slices.Clone(wire) // only the order within one connection matters
	slices.SortStableFunc(w.wire, func(a, b *envelope) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.server, b.server), cmp.Compare(a.kind(), b.kind()))
	})
	p.value(reflect.ValueOf(w).Elem())
	w.wire = wire
	return p.hash.Sum64()
}

func (e *envelope) kind() int {
	switch {
	case e.request != nil:
		return 0
	case e.reply != nil:
		return 1
	}
	return 2
}

func (p *printer) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	p.hash.Write(b[:])
}

func (p *printer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			p.hash.WriteByte(1)
		} else {
			p.hash.WriteByte(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.number(v.Uint())
	case reflect.String:
		p.number(uint64(v.Len()))
		p.hash.WriteString(v.String())
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			if t.Field(i).Type == timersType { // each timer is in its owner
				continue
			}
			if !ignored[t.Field(i).Name] {
				p.value(v.Field(i))
			}
		}
	case reflect.Pointer:
		p.pointer(v)
	case reflect.Interface:
		if !v.IsNil() {
			p.value(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		p.number(uint64(v.Len()))
		for i := range v.Len() {
			p.value(v.Index(i))
		}
	case reflect.Map:
		p.entries(v)
	case reflect.Func:
	default:
		panic(fmt.Sprint("no fingerprint of ", v.Type()))
	}
}

func (p *printer) pointer(v reflect.Value) {
	if v.IsNil() {
		p.number(0)
		return
	}
	n, known := p.seen[v.UnsafePointer()]
	if !known {
		n = uint64(len(p.seen) + 1)
		p.seen[v.UnsafePointer()] = n
	}
	p.number(n)
	if !known {
		p.value(v.Elem())
	}
}

// entries takes the entries of a map in the order of its keys.
func (p *printer) entries(v reflect.Value) {
	p.number(uint64(v.Len()))
	keys := v.MapKeys()
	switch v.Type().Key().Kind() {
	case reflect.String:
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	case reflect.Uint64:
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.Uint(), b.Uint()) })
	default:
		return // Server.changed, which begins again with each request
	}
	for _, key := range keys {
		p.value(key)
		p.value(v.MapIndex(key))
	}
}
