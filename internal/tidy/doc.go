// Package tidy holds the house rules against the tree: which package may import
// which, what pure code may not do, sizes, names, documentation. It is tests
// only; every message names the remedy.
//
// The tests parse the files themselves. One that asked the go command would be
// answered from the test cache after the tree had changed.
package tidy
