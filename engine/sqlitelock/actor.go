package sqlitelock

import (
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"

	"github.com/lockkeeper/lockkeeper"
)

// actorOf returns the user as whom this process uses the file at path, which need not exist. Only
// root can act as another user, and it must: the owner of the file or its directory can replace
// what root creates and opens there.
func actorOf(path string) (actor, error) {
	me := actor{uid: os.Geteuid()}
	if me.uid != 0 {
		return me, nil
	}
	directory, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return me, nil // opening the file reports the error
	}
	above, group, known := owner(directory)
	if !known {
		return me, nil
	}
	file, err := os.Lstat(path)
	if err != nil {
		return actor{above, group, above != 0}, nil
	}
	uid, gid, _ := owner(file)
	if uid == 0 && above != 0 {
		return me, lockkeeper.Invalid("%s is root's, in a directory of another user, who can put another file in its place: "+
			"give it to that user (chown %d %[1]s), or name another file", path, above)
	}
	return actor{uid, gid, uid != 0}, nil
}

// cantBecome returns the error of root that can't act as another user.
func (a actor) cantBecome(why error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
		"root can't act here as the user whose file this is (%v): write sudo -u %s lk …", why, userName(a.uid))}
}

// userName returns the name of a user as a shell and sudo accept it.
func userName(uid int) string {
	u, err := osuser.LookupId(strconv.Itoa(uid))
	if err != nil || u.Username == "" {
		return "'#" + strconv.Itoa(uid) + "'"
	}
	return u.Username
}

// ownershipOf describes the owner, group and mode of a file.
func ownershipOf(info fs.FileInfo) string {
	if uid, gid, known := owner(info); known {
		return fmt.Sprintf("%s of uid %d, gid %d", info.Mode(), uid, gid)
	}
	return info.Mode().String()
}

// ownership is ownershipOf the file at a path.
func ownership(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return ownershipOf(info)
}
