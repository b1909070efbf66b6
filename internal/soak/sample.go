package soak

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// A Sample is what a process, or the processes of a service, has at one moment. What the system does
// not say is 0.
type Sample struct {
	Heap       int64         `json:"heap"`       // bytes of live objects of a Go process, after a collection
	Goroutines int           `json:"goroutines"` // of a Go process
	Memory     int64         `json:"memory"`     // bytes of memory that is neither of files nor shared
	Files      int           `json:"files"`      // open ones, connections included
	Disk       int64         `json:"disk"`       // bytes of all files in its folder
	CPU        time.Duration `json:"cpu"`        // since its start, with its processes that have ended
	Operations int64         `json:"operations"` // since its start
}

// Self takes a sample of this process, after a collection of garbage.
func Self() (Sample, error) {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	s, err := ofProcess(os.Getpid())
	s.Heap, s.Goroutines = int64(live[0].Value.Uint64()), runtime.NumGoroutine()
	return s, err
}

// CPU returns the CPU time that this process has used.
func CPU() (time.Duration, error) {
	s, err := readStat(os.Getpid())
	return s.cpu, err
}

// Processes takes a sample of a process and all its descendants. One that ends meanwhile counts for
// what is known of it.
func Processes(root int) (Sample, error) {
	parents, err := parentsOfAll()
	if err != nil {
		return Sample{}, err
	}
	sum, err := ofProcess(root)
	if err != nil {
		return Sample{}, err
	}
	for pid := range parents {
		if !descends(parents, pid, root) {
			continue
		}
		if s, err := ofProcess(pid); err == nil {
			sum.Memory, sum.Files, sum.CPU = sum.Memory+s.Memory, sum.Files+s.Files, sum.CPU+s.CPU
		}
	}
	return sum, nil
}

// Folder returns the bytes of all files in a folder. A file that is removed meanwhile does not count.
func Folder(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	return sum, err
}

func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// ofProcess reads what Linux says of one process.
func ofProcess(pid int) (Sample, error) {
	if runtime.GOOS != "linux" {
		return Sample{}, nil
	}
	stat, err := readStat(pid)
	if err != nil {
		return Sample{}, err
	}
	s := Sample{CPU: stat.cpu}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Sample{}, err
	}
	if _, rest, ok := strings.Cut(string(status), "RssAnon:"); ok {
		kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return Sample{}, err
		}
		s.Memory = kilobytes << 10
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	s.Files = len(files)
	return s, err
}

type stat struct {
	parent int
	cpu    time.Duration
}

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every system that Go runs on.
const tick = time.Second / 100

// readStat reads /proc/PID/stat. Its second field, the program, may have spaces and parentheses.
func readStat(pid int) (stat, error) {
	if runtime.GOOS != "linux" {
		return stat{}, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third field on
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	var s stat
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, err
	}
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return stat{}, err
		}
		s.cpu += time.Duration(ticks) * tick
	}
	return s, nil
}

// parentsOfAll returns the parent of each process.
func parentsOfAll() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := make(map[int]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			parents[pid] = s.parent
		}
	}
	return parents, nil
}

// descends reports whether pid is a child of root, or of one of its children, and so on.
func descends(parents map[int]int, pid, root int) bool {
	for range parents {
		pid = parents[pid]
		if pid == root {
			return true
		}
	}
	return false
}
