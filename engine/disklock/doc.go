// Package disklock keeps claims in one process, and all that happens to them in a
// journal in a directory, so that they outlive it: killed at any moment, or with the
// power lost, it goes on where it was. It runs every rule. Others reach it through a
// server.
package disklock
