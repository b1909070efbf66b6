package roles

import (
	"os/exec"
	"syscall"
)

// bind has the process of cmd die with this one, also if nobody can clear up any more.
func bind(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
