package exposition

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticks is how many ticks of /proc a second has, on every architecture of Go (USER_HZ).
const ticks = 100

// addProcess adds what /proc says of this process. What it does not say is NaN.
func (r *Registry) addProcess() {
	var fields [][]byte // of /proc/self/stat, from the state on, which has the index 3
	r.Before(func() {
		stat, _ := os.ReadFile("/proc/self/stat")
		fields = bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	})
	field := func(number int) float64 {
		if number-3 >= len(fields) {
			return math.NaN()
		}
		v, err := strconv.ParseFloat(string(fields[number-3]), 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	booted := bootTime()
	r.Func(KindCounter, "process_cpu_seconds_total", "Time of processors that the process used.",
		func() float64 { return (field(14) + field(15)) / ticks })
	r.Func(KindGauge, "process_start_time_seconds", "When the process began, since 1970.",
		func() float64 { return booted + field(22)/ticks })
	r.Func(KindGauge, "process_virtual_memory_bytes", "Bytes of addresses of the process.",
		func() float64 { return field(23) })
	r.Func(KindGauge, "process_resident_memory_bytes", "Bytes of memory of the process.",
		func() float64 { return field(24) * float64(os.Getpagesize()) })
	r.Func(KindGauge, "process_open_fds", "Files that the process has open.", openFiles)
	r.Func(KindGauge, "process_max_fds", "Files that the process may have open.", func() float64 {
		var limit unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
			return math.NaN()
		}
		return float64(limit.Cur)
	})
}

// bootTime is when the computer was started, in seconds since 1970.
func bootTime() float64 {
	stat, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(stat)) {
		if seconds, found := strings.CutPrefix(line, "btime "); found {
			if v, err := strconv.ParseFloat(strings.TrimSpace(seconds), 64); err == nil {
				return v
			}
		}
	}
	return math.NaN()
}

func openFiles() float64 {
	folder, err := os.Open("/proc/self/fd")
	if err != nil {
		return math.NaN()
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return math.NaN()
	}
	return float64(len(names) - 1) // without this one
}
