package sqlitelock

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// realPath resolves the links of a path. The log and the session files are beside the file under
// its name, so all processes must use the same name.
func realPath(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(absolute)
	if err == nil && info.IsDir() {
		in := filepath.Join(path, "locks.db")
		return "", lockkeeper.Invalid("%s is a directory: name a file in it, such as %s", path, in)
	}
	if err == nil && !info.Mode().IsRegular() {
		return "", lockkeeper.Invalid("%s is %s: name a file that is new, or one of lockkeeper's", path, kindOf(info))
	}
	if err := refuseLinks(absolute); err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(absolute); err == nil {
		return real, nil
	}
	if end, err := os.Readlink(absolute); err == nil {
		// The link may lead to a disk that is not mounted, so the file is not created there.
		return "", lockkeeper.Invalid("%s is a symbolic link to %s, which can't be reached: "+
			"make that file (touch), or remove the link, or name another file", path, end)
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(absolute)); err == nil {
		return filepath.Join(folder, filepath.Base(absolute)), nil
	}
	return absolute, nil // its directory is missing; opening the file reports that
}

// refuseLinks refuses a path whose links another user may have made to redirect this user's writes:
// a link in the place of the file must belong to this user, to root, or to the owner of the file
// that it leads to. For root the same holds for the directories of the path.
func refuseLinks(path string) error {
	there, err := os.Stat(path)
	if err != nil {
		if there, err = os.Stat(filepath.Dir(path)); err != nil {
			return nil // opening the file reports it
		}
	}
	me := os.Geteuid()
	owns, _, known := owner(there)
	if !known {
		return nil
	}
	for _, link := range linksOf(path) {
		uid, _, _ := owner(link.info)
		if uid == 0 || uid == me || uid == owns || !link.last && me != 0 {
			continue
		}
		return lockkeeper.Invalid("%s: %s is a symbolic link of another user (uid %d), and leads to %s: "+
			"name the file itself, if it is the right one", path, link.path, uid, ownershipOf(there))
	}
	return nil
}

// link is a symbolic link along a path; the last one may be the final component.
type link struct {
	path string
	info fs.FileInfo
	last bool
}

// mostLinks bounds the links followed, as the kernel does.
const mostLinks = 40

// linksOf finds the links that the kernel follows along an absolute path.
func linksOf(path string) (links []link) {
	at, remaining := filepath.VolumeName(path)+string(filepath.Separator), path[len(filepath.VolumeName(path)):]
	for remaining != "" && len(links) <= mostLinks {
		var name string
		name, remaining, _ = strings.Cut(strings.TrimLeft(remaining, string(filepath.Separator)), string(filepath.Separator))
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return links
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		links = append(links, link{at, info, remaining == ""})
		to, err := os.Readlink(at)
		if err != nil {
			return links
		}
		remaining = to + string(filepath.Separator) + remaining
		if at = filepath.Dir(at); filepath.IsAbs(to) {
			at = filepath.VolumeName(to) + string(filepath.Separator)
		}
	}
	return links
}
