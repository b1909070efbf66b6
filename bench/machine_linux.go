package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is where a run took place. Figures of different machines, and of
// different runs, are not to be compared: ratios within one are.
type machine struct {
	Date   string `json:"date"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func now() string { return time.Now().UTC().Format("2006-01-02 15:04 UTC") }

func thisMachine() machine {
	m := machine{
		Date:  now(),
		Cores: runtime.NumCPU(),
		Go:    runtime.Version(),
		CPU:   "unknown",
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// tick is the unit of /proc/stat, which is the same on all that Go runs on.
const tick = 10 * time.Millisecond

// busy is the processor time that all processes have used, the kernel's own and
// what a hypervisor took away included.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal ...
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat begins with %q: %w", line, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
