//go:build unix && !linux

package supervise

// WatchProcess returns a channel that is closed when the process has ended.
func WatchProcess(pid int) (<-chan struct{}, error) { return pollProcess(pid) }
