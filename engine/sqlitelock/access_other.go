//go:build !unix

package sqlitelock

import "os"

// access says why this process may not use what is at path; here that is not known.
func access(string) error { return nil }

func user() string { return "the present one" }

func ownership(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return info.Mode().String()
}

func giveTo(*os.File, os.FileInfo) {}
