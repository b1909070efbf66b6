package sqlitelock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// fileSystem is the kind of a file system as the system names it: by its name,
// or on Linux by a number, and a name only for those in user space.
type fileSystem struct {
	magic uint32
	name  string
}

func (f fileSystem) String() string {
	known := nameOf(f.magic)
	switch {
	case f.name != "":
		return f.name
	case known != "":
		return known
	case f.magic != 0:
		return fmt.Sprintf("type %#x", f.magic)
	}
	return "of an unknown type"
}

// magics are the numbers by which Linux names file systems. A map would be made at every start.
var magics = [...]struct {
	magic uint32
	name  string
}{
	{0x6969, "nfs"}, {0x517b, "smb"}, {0xff534d42, "cifs"}, {0xfe534d42, "smb3"},
	{0x01021997, "9p"}, {0x5346414f, "afs"}, {0x6b414653, "afs"}, {0x73757245, "coda"},
	{0x564c, "ncp"}, {0x00c36400, "ceph"}, {0x0bd00bd0, "lustre"}, {0x47504653, "gpfs"},
	{0x01161970, "gfs2"}, {0x7461636f, "ocfs2"}, {0x19830326, "beegfs"}, {0x20030528, "orangefs"},

	{0xef53, "ext4"}, {0x58465342, "xfs"}, {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
	{0x794c7630, "overlay"}, {0x2fc12fc1, "zfs"}, {0xf2f52010, "f2fs"}, {0xca451a4e, "bcachefs"},
	{0x4d44, "vfat"}, {0x2011bab0, "exfat"}, {0x65735546, "fuse"}, {0x786f4256, "vboxsf"},
	{0xbacbacbc, "vmhgfs"},
}

// nameOf returns the name of a file system by its number; "" if it is unknown.
func nameOf(magic uint32) string {
	for _, known := range magics {
		if known.magic == magic {
			return known.name
		}
	}
	return ""
}

// networks are file systems that several computers use at once. Locks of SQLite
// on them hold for one computer, for all, or for nobody; its log needs memory
// that all share, which they can't have.
const networks = "nfs nfs3 nfs4 smb smbfs smb3 cifs 9p afs afpfs coda ncp ceph lustre gpfs gfs2 ocfs2 beegfs " +
	"orangefs webdav ftp " +
	"sshfs rclone s3fs s3ql goofys geesefs gcsfuse mount-s3 davfs davfs2 glusterfs ceph-fuse cephfs juicefs seaweedfs " +
	"moosefs mfs lizardfs curlftpfs " +
	"blobfuse blobfuse2 smbnetfs alluxio-fuse hdfs fuse_dfs"

// halves are folders of another computer that a virtual machine sees: two
// kernels, which know nothing of each other's locks.
const halves = "virtiofs vboxsf vmhgfs vmhgfs-fuse prl_fs fakeowner grpcfuse osxfs"

func isOneOf(name, list string) bool { return slices.Contains(strings.Fields(list), name) }

// reach says who may use a file system at once.
type reach int

const (
	local    reach = iota // one computer, or it is not known
	twoSides              // a virtual machine and its host
	network               // several computers
)

// classify returns who may use a file system at once. An unknown one passes as local.
func (f fileSystem) classify() reach {
	kind := f.String()
	for _, prefix := range []string{"fuse.", "fuseblk."} {
		kind = strings.TrimPrefix(kind, prefix)
	}
	switch {
	case isOneOf(kind, networks):
		return network
	case isOneOf(kind, halves):
		return twoSides
	}
	return local
}

// refuseNetwork refuses a folder on a network file system. If the system can't name the file
// system, the folder passes, and opening the file reports the error.
func refuseNetwork(folder string, ask func(string) (fileSystem, error)) error {
	kind, err := ask(folder)
	if err != nil || kind.classify() != network {
		return nil
	}
	return lockkeeper.Invalid("%s is on a network file system (%s), where SQLite can't keep processes of several "+
		"computers apart: name a file on a disk of this computer, such as below /var/lib or /var/tmp",
		folder, kind)
}
