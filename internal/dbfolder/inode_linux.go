package dbfolder

import "golang.org/x/sys/unix"

// Inode returns a number that the file keeps for as long as it exists, and that a copy of the file
// does not have; 0 if the file system is not known to have such numbers.
func Inode(path string) uint64 {
	var fs unix.Statfs_t
	var file unix.Stat_t
	if unix.Statfs(path, &fs) != nil || unix.Stat(path, &file) != nil {
		return 0
	}
	switch uint32(fs.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC,
		zfsMagic:
		return file.Ino
	}
	return 0
}

const zfsMagic = 0x2fc12fc1
