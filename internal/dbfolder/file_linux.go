package dbfolder

import (
	"encoding/binary"
	"errors"
	"hash/crc64"
	"os"

	"golang.org/x/sys/unix"
)

// FileID returns a number that the file keeps for as long as it exists, and that a copy of the file
// does not have: of its inode and the time at which it was made, because inodes are used again. It is
// 0 if the file system is not known to keep both.
func FileID(path string) uint64 {
	var fs unix.Statfs_t
	var file unix.Statx_t
	const want = unix.STATX_INO | unix.STATX_BTIME
	if unix.Statfs(path, &fs) != nil || unix.Statx(unix.AT_FDCWD, path, 0, want, &file) != nil {
		return 0
	}
	switch uint32(fs.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
	default:
		return 0
	}
	if file.Mask&want != want {
		return 0
	}
	var b [20]byte
	binary.LittleEndian.PutUint64(b[:], file.Ino)
	binary.LittleEndian.PutUint64(b[8:], uint64(file.Btime.Sec))
	binary.LittleEndian.PutUint32(b[16:], file.Btime.Nsec)
	return max(1, crc64.Checksum(b[:], crc64.MakeTable(crc64.ECMA)))
}

// syncsData reports whether syncData is known to do less than fsync, and as much as a commit needs.
const syncsData = true

// syncData waits until the disk has the content and the length of the file.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
