package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
)

// machineFolder, where it exists, holds the locks of all users of this machine. The system
// package creates it, with a group for it.
var machineFolder = "/var/lib/lockkeeper-local"

// lockFile is the name of the default file.
const lockFile = "locks.db"

// hasMachineFolder reports whether all users of the machine share the default file.
func hasMachineFolder() bool {
	_, err := os.Stat(machineFolder)
	return err == nil
}

// defaultURL is the engine if the user names none.
func defaultURL() (string, error) {
	if hasMachineFolder() {
		return sqlitelock.URL(filepath.Join(machineFolder, lockFile)), nil
	}
	folder, err := stateFolder()
	return sqlitelock.URL(filepath.Join(folder, lockFile)), err
}

// defaultReach says what the default excludes.
func defaultReach() string {
	if hasMachineFolder() {
		return "only what runs on this machine"
	}
	return "only what this user runs on this machine"
}

// prepareDefault refuses the default file if locks in it would not exclude all that they
// should. Otherwise it creates the folder of a user's own file.
func (a *app) prepareDefault(ctx context.Context) error {
	if hasMachineFolder() {
		if !mayWrite(machineFolder) {
			return refuseDefault("%s", notInGroup())
		}
		return a.refuseWhileOwnFileIsUsed(ctx)
	}
	folder, err := stateFolder()
	if err != nil || a.makesNothing {
		return err
	}
	return makeOwnFolder(folder)
}

// refuseDefault is the error of a refused default file.
func refuseDefault(format string, args ...any) error {
	return &exit{code: exitUnavailable, say: fmt.Errorf(format, args...)}
}

// notInGroup is the remedy for a user without write permission to the machine's folder.
func notInGroup() string {
	group, name := "GROUP", "$USER"
	if _, gid, known := ownerIDs(machineFolder); known {
		group = strconv.Itoa(gid)
		if g, err := user.LookupGroupId(group); err == nil {
			group = g.Name
		}
	}
	if me, err := user.Current(); err == nil {
		name = me.Username
	}
	return fmt.Sprintf("the locks of this machine are in %s, where you may not write: "+
		"join the group (sudo usermod -aG %s %s, then log in again), or name a file of your own, "+
		"which excludes only what you run: --engine %s", machineFolder, group, name, sqlitelock.URL("$HOME/"+lockFile))
}

// refuseWhileOwnFileIsUsed refuses the machine's file while claims are left in the user's
// earlier default file: locks in the machine's file would not exclude their holders.
func (a *app) refuseWhileOwnFileIsUsed(ctx context.Context) error {
	folder, err := stateFolder()
	if err != nil {
		return nil // there is no such file
	}
	file := filepath.Join(folder, lockFile)
	url := sqlitelock.URL(file)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old, err := a.open(ctx, withParameter(url, schemeOf(url).ReadOnly))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, lockkeeper.ErrInvalid) {
		return nil // nobody can have locks in it
	}
	if err == nil {
		defer old.Close()
		for _, failed := range old.List(ctx, lockkeeper.Query{}) {
			if err = failed; err == nil {
				return refuseDefault("locks are left in %s, your default before %s was made: "+
					"wait until they end (lk ls --engine %[3]s), or keep using it with --engine %[3]s", file,
					machineFolder, url)
			}
		}
	}
	if err != nil {
		return refuseDefault("%s, your default before %s was made, may still be in use: %w", file, machineFolder, err)
	}
	return nil
}

// makeOwnFolder creates the folder of a user's own default file. Root creates none in another
// user's home, since that user could not use it.
func makeOwnFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	above := filepath.Dir(folder)
	for {
		if _, err := os.Stat(above); err == nil || above == filepath.Dir(above) {
			break
		}
		above = filepath.Dir(above)
	}
	if uid, _, known := ownerIDs(above); known && os.Geteuid() == 0 && uid != 0 {
		name := "'#" + strconv.Itoa(uid) + "'"
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			name = u.Username
		}
		return refuseDefault("%s would be root's, in the folder of another user: "+
			"use sudo -u %s lk … for the locks of that user, sudo -H lk … for those of root, or name one file for both "+
			"with --engine", folder, name)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return refuseDefault("there is no folder for the locks: %w "+
			"(name another engine with --engine or %s, such as %s)", err, engineVariable, sqlitelock.URL("/var/tmp/locks.db"))
	}
	return nil
}

// noteSudo warns, under sudo, that the default file is not that of the calling user.
func (a *app) noteSudo(named bool) {
	caller := os.Getenv("SUDO_USER")
	if named || caller == "" || caller == "root" || os.Geteuid() != 0 || hasMachineFolder() {
		return
	}
	folder, err := stateFolder()
	if uid, _, known := ownerIDs(folder); err == nil && known && uid != 0 {
		return // the file is the user's
	}
	a.noted.Do(func() {
		fmt.Fprintf(a.stderr, "lk: warning: under sudo these locks are root's own, and exclude nothing that %s runs; "+
			"name one file for both with --engine\n", caller)
	})
}
