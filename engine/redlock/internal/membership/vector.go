package membership

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Generation names one life of a server's data: count<<32 | random. A later life of a server has
// a higher count. The random part tells apart two lives that two parties number at the same time.
// 0 is no generation. It stays below 2^53, the largest number that Lua has exactly.
type Generation uint64

const maxCount = 1<<21 - 1

// Count returns how many lives the server had in this set; 1 for that of the first use.
func (g Generation) Count() uint32 { return uint32(g >> 32) }

// NewGeneration returns a generation with this count.
func NewGeneration(count, random uint32) Generation {
	return Generation(count)<<32 | Generation(random)
}

// A Vector states a set and the generation of each of its servers. The zero Vector is no set.
type Vector struct {
	Set         string
	Generations []Generation
}

// String returns the marker: "SETID:g1.g2.g3"; "" for no set.
func (v Vector) String() string {
	if v.Set == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(v.Set)
	for i, g := range v.Generations {
		b.WriteByte(":."[min(i, 1)])
		b.WriteString(strconv.FormatUint(uint64(g), 10))
	}
	return b.String()
}

// ParseVector reads a marker; "" is no set.
func ParseVector(marker string) (Vector, error) {
	if marker == "" {
		return Vector{}, nil
	}
	bad := func() (Vector, error) { return Vector{}, fmt.Errorf("%.80q is no marker of a set", marker) }
	set, rest, found := strings.Cut(marker, ":")
	if !found || len(set) != setIDLength || strings.Trim(set, "0123456789abcdef") != "" || len(marker) > 400 {
		return bad()
	}
	v := Vector{Set: set}
	for part := range strings.SplitSeq(rest, ".") {
		g, err := parseGeneration(part)
		if err != nil {
			return bad()
		}
		v.Generations = append(v.Generations, g)
	}
	return v, nil
}

func parseGeneration(text string) (Generation, error) {
	n, err := strconv.ParseUint(text, 10, 53)
	g := Generation(n)
	if err != nil || g.Count() == 0 || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%.40q is no generation", text)
	}
	return g, nil
}

const setIDLength = 16

// newVector returns the set that servers with these generations make at the first use. It depends
// on nothing else, so all parties make the same one.
func newVector(generations []Generation) Vector {
	h := sha256.New()
	for _, g := range generations {
		fmt.Fprintf(h, "%d.", g)
	}
	return Vector{Set: hex.EncodeToString(h.Sum(nil))[:setIDLength], Generations: slices.Clone(generations)}
}

// Merge returns the vector with the higher generation of each server. Both state the same set.
func (v Vector) Merge(w Vector) Vector {
	merged := Vector{Set: v.Set, Generations: slices.Clone(v.Generations)}
	for i := range merged.Generations {
		merged.Generations[i] = max(merged.Generations[i], w.Generations[i])
	}
	return merged
}

// Equal reports whether both state the same set and generations.
func (v Vector) Equal(w Vector) bool {
	return v.Set == w.Set && slices.Equal(v.Generations, w.Generations)
}

// with returns v with another generation of server i.
func (v Vector) with(i int, g Generation) Vector {
	v.Generations = slices.Clone(v.Generations)
	v.Generations[i] = g
	return v
}

// Data returns what the names of all data of server i begin with.
func (v Vector) Data(prefix string, i int) string {
	return fmt.Sprintf("%s%s.%d:", prefix, v.Set, v.Generations[i])
}
