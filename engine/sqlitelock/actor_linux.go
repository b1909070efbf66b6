package sqlitelock

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// become makes this goroutine act as a until it ends. The kernel checks a thread's file access by
// the thread's own ids (setfsuid(2)): with those of a, root has no more rights than that user. The
// goroutine stays locked to its thread, and the thread ends with it.
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
	gid, _ := unix.SetfsgidRetGid(-1) // reads the id, changes nothing
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != a.uid || gid != a.gid {
		return a.cantBecome(errors.New("the kernel refuses it"))
	}
	return nil
}
