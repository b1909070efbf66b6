//go:build !unix

package pki

// lockFolder locks nothing where there is no flock: whoever changes one file of
// tokens twice at the same moment there may find one change missing.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }
