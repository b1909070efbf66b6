//go:build unix && !linux

package supervise

import "syscall"

// dieWithParent does nothing: this kernel can't tie a child's life to lk's.
func dieWithParent(*syscall.SysProcAttr) {}
