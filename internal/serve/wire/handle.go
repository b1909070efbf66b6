package wire

// slotBits is the width of the slot in a handle.
const slotBits = 8

// Slots bounds the sessions that have a handle on one connection at a time.
const Slots = 1 << slotBits

// NewHandle returns the handle of a slot, which is below Slots, in a generation from 1.
func NewHandle(slot int, generation uint64) uint64 { return generation<<slotBits | uint64(slot) }

// Slot returns the slot and the generation of a handle.
func Slot(handle uint64) (slot int, generation uint64) {
	return int(handle & (Slots - 1)), handle >> slotBits
}
