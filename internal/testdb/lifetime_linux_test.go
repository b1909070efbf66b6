package testdb

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lifetimeVar has TestServersDieWithTheirStarter start a server, and freeze it perhaps.
const lifetimeVar = "LOCKKEEPER_TESTDB_LIFETIME"

// All processes of a server end when the process that started it is killed, even if
// they stand still.
func TestServersDieWithTheirStarter(t *testing.T) {
	if state := os.Getenv(lifetimeVar); state != "" {
		s := Postgres(t)
		if state == "frozen" {
			if err := s.Freeze(); err != nil {
				t.Fatal(err)
			}
		}
		os.Stdout.WriteString("data " + s.data() + "\n")
		select {} // until it is killed
	}
	for _, state := range []string{"running", "frozen"} {
		t.Run(state, func(t *testing.T) { dieWithStarter(t, state) })
	}
}

func dieWithStarter(t *testing.T, state string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheirStarter$")
	cmd.Env = append(os.Environ(), lifetimeVar+"="+state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if _, data, ok := strings.Cut(lines.Text(), "data "); ok {
			dir := strings.TrimSuffix(data, "/data")
			defer os.RemoveAll(dir)
			defer forgetPostgres(&Server{dir: dir})
			files := watchAll(t, data, state == "frozen")
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			awaitAll(t, files)
		}
	}
	if err := cmd.Wait(); !strings.Contains(said, "data ") {
		t.Errorf("no server was started: %v\n%s", err, said)
	}
}

// watchAll returns files of a server's processes that tell when they end.
func watchAll(t *testing.T, data string, frozen bool) []unix.PollFd {
	pids, err := (&process{dir: data}).all()
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) < 4 {
		t.Errorf("PostgreSQL has processes %v only", pids)
	}
	var files []unix.PollFd
	for _, pid := range pids {
		if frozen && !stands(pid) {
			t.Errorf("process %d of a frozen server does not stand still", pid)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		files = append(files, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return files
}

func awaitAll(t *testing.T, files []unix.PollFd) {
	end := time.Now().Add(30 * time.Second)
	for i := range files {
		for files[i].Revents == 0 {
			left := time.Until(end).Milliseconds()
			if n, err := unix.Poll(files[i:i+1], int(max(left, 0))); n == 0 || err != nil && err != unix.EINTR {
				t.Errorf("process %d of %d is still there: %v", i, len(files), err)
				break
			}
		}
	}
}
