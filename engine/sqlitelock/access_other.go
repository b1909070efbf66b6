//go:build !unix

package sqlitelock

import "io/fs"

// access says why this process may not use what is at path; here that is not known.
func access(string) error { return nil }

func user() string { return "the present one" }

// owner is the owner and the group of a file, which are not known here.
func owner(fs.FileInfo) (uid, gid int, known bool) { return 0, 0, false }
