//go:build !linux

package disklock

import "testing"

// smallDisk mounts a disk of that size in memory.
func smallDisk(t *testing.T, _ string) string {
	t.Skip("how to mount a small disk is known for Linux only")
	return ""
}
