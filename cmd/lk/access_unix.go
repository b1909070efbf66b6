//go:build unix

package main

import "golang.org/x/sys/unix"

// mayWrite reports whether this user may make files in a folder.
func mayWrite(folder string) bool { return unix.Access(folder, unix.W_OK|unix.X_OK) == nil }
