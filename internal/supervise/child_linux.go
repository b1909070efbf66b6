package supervise

import "syscall"

// dieWithParent makes the kernel kill the child when lk dies, as by kill -9. It does not reach
// processes that the child started.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
