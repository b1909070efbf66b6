package main

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func init() { programs["adopt"] = func() { os.Exit(adopt(os.Args[1:])) } }

// adopt runs a program and becomes the parent of the processes that it leaves behind. Like the
// first process of many containers, it does not reap them.
func adopt(args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "adopt:", err)
		return 1
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run() // it is killed
	return await([]string{"orphans-may-go"})
}
