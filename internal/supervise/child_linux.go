package supervise

import "syscall"

// dieWithParent has the kernel end the child when lk dies without a chance to
// stop it, as by kill -9: nobody would be left to stop it before its lease ends.
// What the child itself started is not reached.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
