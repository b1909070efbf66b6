// Package neighbours measures what one identity of a server can cost another one. Each attack
// stays within what the server allows its identity. The victim is measured beside the attack, and
// beside a harmless neighbour that has as many connections and makes as many calls a second.
//
// The test runs every attack in a short form. It fails if the victim loses anything, if the
// server needs more memory than it should, or counts more than it allows; it prints the ratio of
// the two 99th percentiles and judges no times. The benchmark runs them in full, and reports
// that ratio:
//
//	go test -run - -bench . -benchtime 1x ./internal/neighbours
package neighbours
