package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of lk",
		Args:  a.takes(0, 0),
		RunE: verb(func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "lk %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}
}

// version is the module's version as the build recorded it: a tag, a commit's
// pseudo-version, or "(devel)" for a build outside version control.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
