package interleave

// Seed stands for maphash.Seed.
type Seed struct{}

// MakeSeed stands for maphash.MakeSeed.
func MakeSeed() Seed { return Seed{} }

// Comparable stands for maphash.Comparable. The program chooses the hash of
// a key with [World.Hash]; it is 0 for other keys.
func Comparable[T comparable](_ Seed, key T) uint64 { return world.hashes[key] }

// Hash chooses the hash of a key, so that keys collide in a hash table, or do not.
func (w *World) Hash(key any, hash uint64) {
	if w.hashes == nil {
		w.hashes = map[any]uint64{}
	}
	w.hashes[key] = hash
}
