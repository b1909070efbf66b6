package table

import (
	"math"
	"slices"
)

// Bounds of the search for the fewest units (R10): it takes some thousand steps at the most.
const (
	mostHolders = 64
	mostSums    = 64
)

// fewest chooses among holders, which are in the order of R10, a set with at least missing
// units and as few as possible; of several such sets the one that prefers holders in the
// order given. Nil if all together don't have enough. Beyond the bounds of R10 it takes them in
// order until they suffice. It tells how many steps it took.
//
// sums are the different sums of units below missing. To take holder i where the sum is
// sums[k] is best if bit k of takes[i] is set: then the rest can be completed with least.
func fewest(holders []*place, missing int) (chosen []*place, steps int) {
	all := 0
	for _, h := range holders {
		all += h.units
	}
	if all < missing {
		return nil, 0
	}
	sums, steps := sumsBelow(holders, missing)
	if sums == nil {
		return inOrder(holders, missing), steps
	}
	var takes [mostHolders]uint64
	var least [mostSums]int
	for k := range sums {
		least[k] = math.MaxInt
	}
	for i := len(holders) - 1; i >= 0; i-- {
		for k, sum := range sums { // those above are still as they were before holder i
			steps++
			with := sum + holders[i].units
			if with < missing {
				next, _ := slices.BinarySearch(sums, with)
				if next == len(sums) || sums[next] != with {
					continue // holder i is in sum already
				}
				with = least[next]
			}
			if with <= least[k] && with < math.MaxInt {
				takes[i] |= 1 << k
				least[k] = with
			}
		}
	}
	sum, k := 0, 0
	for i, h := range holders {
		if takes[i]&(1<<k) == 0 {
			continue
		}
		chosen = append(chosen, h)
		if sum += h.units; sum >= missing {
			break
		}
		k, _ = slices.BinarySearch(sums, sum)
	}
	return chosen, steps
}

// sumsBelow are the different sums of units below missing that sets of holders make, in
// order; nil if the holders or the sums are too many.
func sumsBelow(holders []*place, missing int) (sums []int, steps int) {
	if len(holders) > mostHolders {
		return nil, 0
	}
	sums = append(make([]int, 0, 2*mostSums), 0)
	for _, h := range holders {
		for _, sum := range sums {
			if steps++; sum+h.units < missing {
				sums = append(sums, sum+h.units)
			}
		}
		slices.Sort(sums)
		if sums = slices.Compact(sums); len(sums) > mostSums {
			return nil, steps
		}
	}
	return sums, steps
}

// inOrder chooses holders in the order given until they have enough units.
func inOrder(holders []*place, missing int) []*place {
	for i, h := range holders {
		if missing -= h.units; missing <= 0 {
			return holders[:i+1]
		}
	}
	return nil
}
