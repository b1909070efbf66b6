package sqlitelock

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// watchersOfUser counts the watchers (inotify instances) that this user's processes have, as far as
// they can be seen, and how many they may have; 0 if that is not known.
func watchersOfUser() (used, most int) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return 0, 0
	}
	most, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	me := strconv.Itoa(os.Getuid())
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		if status, err := os.ReadFile(p + "/status"); err != nil || !strings.Contains(string(status), "\nUid:\t"+me+"\t") {
			continue
		}
		files, _ := os.ReadDir(p + "/fd")
		for _, f := range files {
			if to, err := os.Readlink(p + "/fd/" + f.Name()); err == nil && strings.Contains(to, "inotify") {
				used++
			}
		}
	}
	return used, most
}
