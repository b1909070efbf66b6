//go:build !unix

package pki

// lockFolder does nothing: this system has no flock. Of two simultaneous changes of a token file,
// one may be lost.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }

// syncFolder does nothing: here a folder can't be synced.
func syncFolder(string) error { return nil }
