package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of lk",
		Example: `  # which version is it?
  lk version

  # for a script
  lk version --json | jq -r .version`,
		Args: a.takes(0, 0),
		RunE: verb(func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string]string{
					"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintln(a.stdout, versionLine())
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: version, go, os, arch")
	return cmd
}

func versionLine() string {
	return fmt.Sprintf("lk %s (%s, %s/%s)", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// stamp is the version that make build found in git, if it could.
var stamp string

// version returns the version of make build, else the module's version that the build recorded: a
// tag, a commit's pseudo-version, or "(devel)" outside version control.
func version() string {
	if stamp != "" {
		return stamp
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
