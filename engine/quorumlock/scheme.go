package quorumlock

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

// prefix begins a URL of this engine; the name of the folder follows without escapes.
const prefix = "cluster:"

// URL returns the URL of the node whose folder it is.
func URL(folder string) string { return prefix + folder }

// FolderOf returns the folder that a URL of this engine names; "" if it is a URL of another one.
func FolderOf(url string) string {
	folder, ok := strings.CutPrefix(url, prefix)
	if !ok || folder == "" {
		return ""
	}
	return filepath.Clean(folder)
}

// HasNode reports whether the folder is that of a node, though it may be damaged, have lost its log, or have been
// recovered into another folder. A caller that took such a folder for an unused one would serve no locks, beside
// those that the cluster has granted.
func HasNode(folder string) bool { return storage.HadLog(folder) || join.HasJoined(folder) }

// HasJoined reports whether Join has returned nil for this folder, and its log is there.
func HasJoined(folder string) bool { return storage.HasLog(folder) && join.HasJoined(folder) }

// TokenVariable is the environment variable that may have the text of a join token.
const TokenVariable = join.TokenVariable

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:      []string{"cluster"},
		Form:       "cluster:DIR",
		Example:    "cluster:/var/lib/lockkeeper",
		About:      "a majority of servers, of which this directory is one",
		Help:       "locks in a cluster of lk serve, one of which has this directory; lk cluster makes it",
		Page:       "docs/engines/cluster.md",
		Guarantees: guarantees(),
		File:       true,
		Served:     true,
		Variables:  []string{TokenVariable},
		Misspelt:   []string{"quorum", "raft"},
		Check:      checkURL,
		Open: func(ctx context.Context, url string) (lockkeeper.Engine, error) {
			return Open(ctx, FolderOf(url), Config{})
		},
	})
}

func checkURL(url string) error {
	switch folder := strings.TrimPrefix(url, prefix); {
	case folder == "":
		return lockkeeper.Invalid("engine %q names no directory: write cluster:DIR, such as cluster:/var/lib/lockkeeper", url)
	case strings.HasPrefix(folder, "//") && !strings.HasPrefix(folder, "///"):
		return lockkeeper.Invalid("engine %q names a host: write cluster:DIR, such as cluster:%s, on that host; clients use "+
			"lk://%s", url, folder[1:], strings.TrimPrefix(folder, "//"))
	}
	return nil
}
