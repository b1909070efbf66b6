//go:build !linux

package exposition

// addProcess adds nothing on this system.
func (r *Registry) addProcess() {}
