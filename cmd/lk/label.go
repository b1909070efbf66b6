package main

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/lockkeeper/lockkeeper"
)

// thisProcess names this lk, so that people can find it: "user@host:PID".
func thisProcess() string {
	pid := ":" + strconv.Itoa(os.Getpid())
	return printable(userAtHost(), lockkeeper.MaxAsBytes-len(pid)) + pid
}

// userAtHost names the user and the machine; a user without a name by the number.
func userAtHost() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" && os.Getuid() >= 0 {
		name = fmt.Sprintf("uid%d", os.Getuid())
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return printable(name, lockkeeper.MaxAsBytes)
}
