package sqlitelock

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// become makes this goroutine act as a until it calls end, which is not nil if there is no error. The
// kernel checks a thread's file access by the thread's own ids (setfsuid(2)): with those of a, root
// has no more rights than that user. The goroutine is locked to its thread meanwhile.
//
// The thread must outlive the goroutine: when a thread ends, the kernel kills all processes that the
// thread has started with a death signal (PR_SET_PDEATHSIG), whichever goroutine had them started.
func (a actor) become() (end func(), err error) {
	if !a.other {
		return func() {}, nil
	}
	runtime.LockOSThread()
	before, err := threadIDs()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, a.cantBecome(err)
	}
	end = func() {
		if before.assume() == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine: nobody else may have its ids
		}
	}
	if err := (ids{uid: a.uid, gid: a.gid}).assume(); err != nil {
		end()
		return nil, a.cantBecome(err)
	}
	return end, nil
}

// ids are those by which the kernel checks a thread's file access.
type ids struct {
	uid, gid int
	groups   []int
}

// threadIDs returns the ids of this thread.
func threadIDs() (now ids, err error) {
	now.gid, _ = unix.SetfsgidRetGid(-1) // reads the id, changes nothing
	now.uid, _ = unix.SetfsuidRetUid(-1)
	now.groups, err = unix.Getgroups()
	return now, err
}

// assume gives this thread the ids.
func (i ids) assume() error {
	if err := unix.Setgroups(i.groups); err != nil { // of this thread, unlike that of package syscall
		return err
	}
	unix.SetfsgidRetGid(i.gid)
	unix.SetfsuidRetUid(i.uid)
	if now, err := threadIDs(); err != nil || now.uid != i.uid || now.gid != i.gid {
		return errors.Join(err, errors.New("the kernel refuses it"))
	}
	return nil
}
