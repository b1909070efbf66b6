package sqlitelock

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystemOf names the kind of file system that path is on. All file systems in user space (FUSE)
// have one number, so their names come from the list of mounts.
func fileSystemOf(path string) (fileSystem, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fileSystem{}, err
	}
	kind := fileSystem{magic: uint32(fs.Type)}
	if kind.magic != unix.FUSE_SUPER_MAGIC {
		return kind, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return kind, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return kind, nil // it is of an unknown kind then
	}
	kind.name = mountType(string(mounts), fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
	return kind, nil
}

// mountType looks up the type of a mounted device, such as "fuse.sshfs", in the
// text of /proc/self/mountinfo; "" if it is not there.
func mountType(mounts, device string) string {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != device {
			continue
		}
		// Optional fields end with a dash; the type comes after it.
		for i := 6; i+1 < len(fields); i++ {
			if fields[i] == "-" {
				return fields[i+1]
			}
		}
	}
	return ""
}
