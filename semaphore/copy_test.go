package semaphore_test

import (
	"reflect"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// A copy of a handle would outlive what keeps its key, and then be told ErrFull for
// ever; a copy of a slot could be released again. go vet finds copies of a struct
// that has a field with these methods, by value.
func TestVetFindsCopies(t *testing.T) {
	locker := reflect.TypeFor[sync.Locker]()
	for _, of := range []reflect.Type{
		reflect.TypeFor[semaphore.Slot](),
		reflect.TypeFor[semaphore.Handle[string]](),
		reflect.TypeFor[semaphore.Owner](),
	} {
		found := false
		for i := range of.NumField() {
			if f := of.Field(i).Type; f.Kind() == reflect.Struct && reflect.PointerTo(f).Implements(locker) {
				found = true
			}
		}
		if !found {
			t.Errorf("go vet lets a %v be copied", of)
		}
	}
}
