// Package neighbours measures what one identity of a server can cost another one. Each attack stays
// within the limits of its identity. The package measures the victim twice: beside the attack, and
// beside a harmless neighbour with as many connections and as many calls a second.
//
// The test runs every attack in a short form. It fails if the victim loses a hold or an answer, if
// the server exceeds its memory bound, or if it counts more than its limits. It prints the ratio of
// the two 99th percentiles, and makes no assertion about times. The benchmark runs the attacks in
// full, and reports that ratio:
//
//	go test -run - -bench . -benchtime 1x ./internal/neighbours
package neighbours
