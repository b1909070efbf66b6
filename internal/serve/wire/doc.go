// Package wire is what clients and servers say to each other: the messages of
// lockkeeper.proto, the frames that carry them, and the way between messages and
// the vocabulary of package lockkeeper.
//
// What a peer sends is not trusted here: a frame is read only as far as it
// arrives and never beyond its bound, and a value that Go's types could not hold
// becomes one that the checks of package lockkeeper refuse.
package wire

// The schema is checked, and the code made of it, by "make generate".
