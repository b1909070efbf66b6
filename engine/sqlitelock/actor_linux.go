package sqlitelock

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// become has this goroutine act as a, until it ends. The kernel checks what a thread may do with
// files by the thread's own ids (setfsuid(2)), without which root has no more rights than
// that user. The thread belongs to the goroutine from now on, and ends with it.
func (a actor) become() error {
	if !a.other {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.Setgroups(nil); err != nil { // of this thread, unlike that of package syscall
		return a.cantBecome(err)
	}
	unix.SetfsgidRetGid(a.gid)
	unix.SetfsuidRetUid(a.uid)
	gid, _ := unix.SetfsgidRetGid(-1) // which changes nothing
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != a.uid || gid != a.gid {
		return a.cantBecome(errors.New("the kernel refuses it"))
	}
	return nil
}
