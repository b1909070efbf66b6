package sqlitelock

import (
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystemOf names the kind of file system that path is on.
func fileSystemOf(path string) (fileSystem, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fileSystem{}, err
	}
	var name strings.Builder
	for _, c := range fs.Fstypename {
		if c == 0 {
			break
		}
		name.WriteByte(byte(c))
	}
	return fileSystem{name: name.String()}, nil
}
