//go:build unix && !linux

package main

// watchProcess returns a channel that is closed when the process has ended.
func watchProcess(pid int) (<-chan struct{}, error) { return pollProcess(pid) }
