package sqlitelock

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
)

// A real mount, where one can be made: a file system in user space that says of
// itself that it is sshfs, with one empty folder, served by this test.
func TestNetworkMount(t *testing.T) {
	for kind, network := range map[string]bool{"sshfs": true, "encfs": false} {
		t.Run(kind, func(t *testing.T) {
			folder := mountFUSE(t, kind)
			if network {
				refused(t, filepath.Join(folder, "locks.db"), lockkeeper.ErrInvalid, "network file system (fuse.sshfs)", folder)
			} else {
				// It passes; that nothing can be made in it is another matter.
				refused(t, filepath.Join(folder, "locks.db"), lockkeeper.ErrUnavailable, folder)
			}
		})
	}
}

func TestMountType(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 22 0:35 / /home/me/far rw,nosuid shared:12 master:3 - fuse.sshfs me@far:/ rw,user_id=1000
41 22 0:36 / /mnt/odd\040name rw - fuse.rclone remote: rw
42 22 0:37 / /short
`
	for device, want := range map[string]string{
		"254:0": "ext4",
		"0:35":  "fuse.sshfs",
		"0:36":  "fuse.rclone",
		"0:37":  "",
		"9:9":   "",
	} {
		if got := mountType(mounts, device); got != want {
			t.Errorf("device %s: %q, want %q", device, got, want)
		}
	}
}

// mountFUSE mounts a file system of that kind, or skips the test.
func mountFUSE(t *testing.T, kind string) string {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no file system in user space can be served here: %v", err)
	}
	folder := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", fd)
	if err := unix.Mount("far:/", folder, "fuse."+kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		t.Skipf("nothing can be mounted here: %v", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveFUSE(fd)
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-served
		unix.Close(fd)
	})
	return folder
}

// serveFUSE answers for one empty folder until it is unmounted.
func serveFUSE(fd int) {
	const (
		lookup, getattr, statfs, begin, forget, batchForget = 1, 3, 17, 26, 2, 42
		header, attributes                                  = 16, 88
	)
	request := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		opcode := binary.NativeEndian.Uint32(request[4:])
		answer := make([]byte, header)
		var failed unix.Errno
		switch opcode {
		case begin:
			answer = append(answer, make([]byte, 64)...)
			binary.NativeEndian.PutUint32(answer[header:], 7)
			binary.NativeEndian.PutUint32(answer[header+4:], 31)
			binary.NativeEndian.PutUint32(answer[header+20:], 1<<16) // the longest write
		case getattr:
			answer = append(answer, make([]byte, 16+attributes)...)
			inode := answer[header+16:]
			binary.NativeEndian.PutUint64(inode, 1)
			binary.NativeEndian.PutUint32(inode[60:], unix.S_IFDIR|0o755)
			binary.NativeEndian.PutUint32(inode[64:], 2)
		case statfs:
			answer = append(answer, make([]byte, 80)...)
		case forget, batchForget:
			continue
		case lookup:
			failed = unix.ENOENT
		default:
			failed = unix.ENOSYS
		}
		binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
		binary.NativeEndian.PutUint32(answer[4:], uint32(-int32(failed)))
		copy(answer[8:16], request[8:16]) // which request it answers
		if failed != 0 {
			answer = answer[:header]
			binary.NativeEndian.PutUint32(answer, header)
		}
		_, _ = unix.Write(fd, answer)
	}
}
