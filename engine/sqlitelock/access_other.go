//go:build !unix

package sqlitelock

import "io/fs"

// access returns nil, since this package does not know the rights here.
func access(string) error { return nil }

func user() string { return "the present one" }

// owner returns no owner and no group, since this package does not know them here.
func owner(fs.FileInfo) (uid, gid int, known bool) { return 0, 0, false }
