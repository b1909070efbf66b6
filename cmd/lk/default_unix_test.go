//go:build unix

package main

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// publicProgram returns a folder with this program as lk that all users may enter.
func publicProgram(t *testing.T) (folder, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if ci := os.Getenv("CI"); ci != "" && ci != "false" {
			t.Fatal("only root can act as other users: run CI as root")
		}
		t.Skip("only root can act as other users")
	}
	folder, err := os.MkdirTemp("", "lk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(folder, "lk")
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return folder, program
}

// runAs runs a program as another user, and returns its output.
func runAs(uid uint32, group uint32, environment []string, program string, args ...string) string {
	cmd := exec.Command(program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{group}}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

// Members of the group of the machine's folder share its locks. Every verb refuses other users with
// a remedy, and creates no file for them.
func TestMachinesFileIsForMembers(t *testing.T) {
	folder, program := publicProgram(t)
	machine, home := filepath.Join(folder, "machine"), filepath.Join(folder, "home")
	for at, mode := range map[string]fs.FileMode{machine: 0o770 | fs.ModeSetgid, home: 0o777} {
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(at, 0, 54321); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
	}
	environment := []string{"HOME=" + home, "TEST_MACHINE_FOLDER=" + machine}
	for _, uid := range []uint32{0, 50001, 50002, 0} {
		inner := "if " + program + " run --try db -- true 2>/dev/null; then echo within; fi; echo $LOCKKEEPER_URL"
		got := runAs(uid, 54321, environment, program, "run", "db", "--", "sh", "-c", inner)
		if got != "within\nsqlite:"+machine+"/locks.db\n" {
			t.Errorf("uid %d, a member: %s", uid, got)
		}
	}
	for _, verb := range []string{"run db -- true", "ls", "doctor", "grab db --as me", "revoke db"} {
		args := strings.Fields(verb)
		got := runAs(50003, 50003, environment, program, args...)
		for _, word := range []string{machine, "may not write", "usermod -aG 54321", "--engine sqlite:$HOME/locks.db"} {
			if !strings.Contains(got, word) {
				t.Errorf("lk %s of a stranger: %q does not say %q", args[0], got, word)
			}
		}
	}
	if names, err := os.ReadDir(home); err != nil || len(names) > 0 {
		t.Errorf("the stranger has made %v (%v)", names, err)
	}
}

// Root with the home of a user, as by sudo -E, creates no folder there that the user could not use. It
// shares the user's locks if they exist. Its commands still run as root.
func TestRootWithAUsersHome(t *testing.T) {
	folder, program := publicProgram(t)
	home := filepath.Join(folder, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, 50001, 50001); err != nil {
		t.Fatal(err)
	}
	environment := []string{"HOME=" + home, "SUDO_USER=anna"}
	got := runAs(0, 0, environment, program, "run", "db", "--", "true")
	if !strings.Contains(got, "sudo -u '#50001' lk …") {
		t.Errorf("got %q, want it refused, and how else", got)
	}
	if names, err := os.ReadDir(home); err != nil || len(names) > 0 {
		t.Errorf("root has made %v (%v)", names, err)
	}
	if got := runAs(50001, 50001, environment, program, "run", "db", "--", "true"); got != "" {
		t.Errorf("the user: %s", got)
	}
	if got := runAs(0, 0, environment, program, "run", "db", "--", "id", "-u"); got != "0\n" {
		t.Errorf("root after that: %q, want that its command is root's", got)
	}
	err := filepath.WalkDir(home, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != 50001 {
			t.Errorf("%s is not the user's", at)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
