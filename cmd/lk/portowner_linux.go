package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// portOwner names the process that listens on a TCP port, as "lk (pid 17)". It is empty if lk can't
// see the process, such as that of another user.
func portOwner(port uint16) string {
	sockets := listening(port)
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && sockets[target] {
			process := filepath.Dir(filepath.Dir(file))
			name, _ := os.ReadFile(filepath.Join(process, "comm"))
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(process))
		}
	}
	return ""
}

// listening returns the sockets that listen on a port, as the targets of links in /proc/PID/fd.
func listening(port uint16) map[string]bool {
	const localAddress, state, inode, listens = 1, 3, 9, "0A"
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > inode && fields[state] == listens &&
				strings.HasSuffix(fields[localAddress], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
	}
	return sockets
}
