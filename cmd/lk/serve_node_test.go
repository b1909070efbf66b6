package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
)

// After a recovery into another folder, "lk serve" without --data must not begin an empty server beside the
// cluster that goes on: it names the folder of the node, which refuses.
func TestServeKnowsTheFolderOfARecoveredNode(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	node := filepath.Join(state, "lockkeeper", "cluster")
	for _, file := range []string{"node.db.retired", "joined.json", "node.db-wal"} {
		if err := os.MkdirAll(node, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(node, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var o serveOptions
		folder, err := o.defaultFolder()
		if err != nil || o.folderURL(folder) != quorumlock.URL(node) {
			t.Errorf("beside %s: %s (%v), want %s", file, o.folderURL(folder), err, quorumlock.URL(node))
		}
		if err := os.RemoveAll(node); err != nil {
			t.Fatal(err)
		}
	}
}
