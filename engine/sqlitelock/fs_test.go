package sqlitelock

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		kind fileSystem
		want reach
	}{
		{fileSystem{magic: 0x6969}, network},                             // NFS
		{fileSystem{magic: 0xff534d42}, network},                         // CIFS
		{fileSystem{magic: 0xfe534d42}, network},                         // SMB 2 and 3
		{fileSystem{magic: 0x517b}, network},                             // SMB 1
		{fileSystem{magic: 0x01021997}, network},                         // 9p
		{fileSystem{magic: 0x00c36400}, network},                         // Ceph
		{fileSystem{magic: 0x65735546, name: "fuse.sshfs"}, network},     //
		{fileSystem{magic: 0x65735546, name: "fuse.glusterfs"}, network}, //
		{fileSystem{name: "nfs"}, network},                               // macOS
		{fileSystem{name: "smbfs"}, network},                             //
		{fileSystem{magic: 0x65735546, name: "virtiofs"}, twoSides},      //
		{fileSystem{magic: 0x786f4256}, twoSides},                        // VirtualBox
		{fileSystem{magic: 0x65735546, name: "fuse.encfs"}, local},       // on a local disk
		{fileSystem{magic: 0x65735546, name: "fuseblk"}, local},          // NTFS
		{fileSystem{magic: 0x65735546}, local},                           // the list of mounts could not be read
		{fileSystem{magic: 0xef53}, local},                               // ext4
		{fileSystem{magic: 0x01021994}, local},                           // tmpfs
		{fileSystem{magic: 0x794c7630}, local},                           // overlay, as in containers
		{fileSystem{name: "apfs"}, local},                                //
		{fileSystem{magic: 0x12345678}, local}, {fileSystem{}, local},    // what nobody knows passes
	} {
		if got := c.kind.classify(); got != c.want {
			t.Errorf("%s: %d, want %d", c.kind, got, c.want)
		}
	}
}

func TestNetworkIsRefused(t *testing.T) {
	ask := func(string) (fileSystem, error) { return fileSystem{magic: 0x6969}, nil }
	err := refuseNetwork("/net/home", ask)
	if !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, word := range []string{"/net/home", "network file system (nfs)", "disk of this computer"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if err := refuseNetwork("/gone", func(string) (fileSystem, error) {
		return fileSystem{}, os.ErrNotExist
	}); err != nil {
		t.Errorf("what can't be asked: %v", err)
	}
}

// On this computer, in truth: the temporary folder, and the kernel's own.
func TestFileSystemHere(t *testing.T) {
	kind, err := fileSystemOf(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the temporary folder is on %s", kind)
	if runtime.GOOS != "linux" {
		return
	}
	for path, want := range map[string]uint32{"/proc": 0x9fa0, "/sys": 0x62656572} {
		if kind, err := fileSystemOf(path); err == nil && kind.magic != want {
			t.Errorf("%s is %s, want %#x", path, kind, want)
		}
	}
}
