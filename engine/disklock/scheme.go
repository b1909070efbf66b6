package disklock

import (
	"context"
	"io"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// prefix begins a URL of this engine; the name of the directory follows without escapes.
const prefix = "disk:"

// URL returns the URL of the engine whose journal is in a directory.
func URL(dir string) string { return prefix + dir }

// The optional abilities of the engine.
var (
	_ lockkeeper.Examiner        = (*Engine)(nil)
	_ lockkeeper.RefusalNotifier = (*Engine)(nil)
	_ lockkeeper.CommitReporter  = (*Engine)(nil)
	_ lockkeeper.GroupCommitter  = (*Engine)(nil)
)

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:      []string{"disk"},
		Form:       "disk:DIR",
		Example:    "disk:/var/lib/lockkeeper",
		About:      "a directory that one process, such as a server, has for itself",
		Help:       "locks in a directory, so that they outlive the process",
		Page:       "docs/engines/disk.md",
		Guarantees: guarantees(),
		File:       true,
		Misspelt:   []string{"journal"},
		Check:      checkURL,
		Open: func(ctx context.Context, url string) (lockkeeper.Engine, error) {
			return Open(ctx, strings.TrimPrefix(url, prefix))
		},
		Dump: func(ctx context.Context, url string, w io.Writer) error {
			return Dump(ctx, strings.TrimPrefix(url, prefix), w)
		},
	})
}

func checkURL(url string) error {
	switch dir := strings.TrimPrefix(url, prefix); {
	case dir == "":
		return lockkeeper.Invalid("engine %q names no directory: write disk:DIR, such as disk:/var/lib/lockkeeper", url)
	case strings.HasPrefix(dir, "//") && !strings.HasPrefix(dir, "///"):
		return lockkeeper.Invalid("engine %q names a host: write disk:DIR, such as disk:%s; a directory has no host",
			url, dir[1:])
	}
	return nil
}
