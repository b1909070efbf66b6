package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profileVar tells servers of this program in which folder to leave a profile of
// their processor time.
const profileVar = "LOCKKEEPER_BENCH_PROFILE"

// profile writes a profile of this process's processor time into the folder, from
// now until the returned function is called. "" is no folder and no profile.
func profile(dir, name string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", name, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
