//go:build !unix

package main

// mayWrite reports true: only trying would tell.
func mayWrite(string) bool { return true }
