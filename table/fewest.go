package table

import (
	"math"
	"slices"
)

// Bounds of the search for the fewest units (R10), which keep it below some thousand steps.
const (
	mostHolders = 64
	mostSums    = 64
)

// fewestUnits chooses a subset of holders with the smallest sum of units that is at least missing.
// holders are in the order of R10; among equal sums it prefers earlier holders. It returns nil if
// all holders together have fewer than missing units. Beyond the bounds of R10 it chooses holders
// in order until they suffice. steps counts its work.
//
// It is a dynamic program from the last holder to the first. sums has the distinct sums below
// missing that subsets make. After the round of holder i, least[k] is the smallest reachable total
// if the holders before i sum to sums[k], and bit k of takes[i] says that choosing holder i reaches
// it.
func fewestUnits(holders []*entry, missing int) (chosen []*entry, steps int) {
	all := 0
	for _, h := range holders {
		all += h.units()
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
		for k, sum := range sums { // least is still that of holder i+1 for larger sums
			steps++
			with := sum + holders[i].units()
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
		if sum += h.units(); sum >= missing {
			break
		}
		k, _ = slices.BinarySearch(sums, sum)
	}
	return chosen, steps
}

// sumsBelow returns the different sums of units below missing that sets of holders make, sorted;
// nil if the holders or the sums exceed their bounds.
func sumsBelow(holders []*entry, missing int) (sums []int, steps int) {
	if len(holders) > mostHolders {
		return nil, 0
	}
	sums = append(make([]int, 0, 2*mostSums), 0)
	for _, h := range holders {
		for _, sum := range sums {
			if steps++; sum+h.units() < missing {
				sums = append(sums, sum+h.units())
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
func inOrder(holders []*entry, missing int) []*entry {
	for i, h := range holders {
		if missing -= h.units(); missing <= 0 {
			return holders[:i+1]
		}
	}
	return nil
}
