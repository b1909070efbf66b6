package dbfolder

import "runtime/debug"

const modulePath = "github.com/lockkeeper/lockkeeper"

// Writer returns the version of Lockkeeper in this program, which databases store for people.
func Writer() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "lockkeeper (unknown version)"
	}
	version := ""
	if info.Main.Path == modulePath {
		version = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			version = m.Version
		}
	}
	if version == "" {
		version = "(devel)"
	}
	return "lockkeeper " + version
}
