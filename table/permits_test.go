package table

import "testing"

// TestSlots: the lowest free slot is given out, however many there are.
func TestSlots(t *testing.T) {
	var s slots
	for want := 1; want <= 200; want++ {
		if got := s.take(); got != want {
			t.Fatalf("slot %d is given out, want %d", got, want)
		}
	}
	for _, slot := range []int{150, 64, 65, 1, 200} {
		s.free(slot)
	}
	if s.occupy(2) {
		t.Error("slot 2 is occupied twice")
	}
	if !s.occupy(65) {
		t.Error("slot 65 is free but can't be occupied")
	}
	for _, want := range []int{1, 64, 150, 200, 201} {
		if got := s.take(); got != want {
			t.Errorf("slot %d is given out, want %d", got, want)
		}
	}
}
