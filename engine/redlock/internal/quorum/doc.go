// Package quorum has the decisions of the redlock engine as pure step functions: what one server does
// with a request ([Request]), and what a party, which is one process with the engine, concludes from
// the replies. It has no clock, goroutine, I/O or randomness of its own, so that a model can run it
// through every schedule. The package comment of engine/redlock draws the protocol.
package quorum
