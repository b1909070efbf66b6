// Package all registers every engine of this module, for programs whose users choose the
// engine by a URL. A program that needs one engine imports that engine alone, and links no
// database driver for the others.
package all

import (
	_ "github.com/lockkeeper/lockkeeper/engine/disklock"
	_ "github.com/lockkeeper/lockkeeper/engine/memlock"
	_ "github.com/lockkeeper/lockkeeper/engine/quorumlock"
	_ "github.com/lockkeeper/lockkeeper/engine/redlock"
	_ "github.com/lockkeeper/lockkeeper/engine/remote"
	_ "github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	_ "github.com/lockkeeper/lockkeeper/engine/sqllock"
)
