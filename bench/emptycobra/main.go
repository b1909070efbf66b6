// The command emptycobra does nothing: what any program costs whose commands and flags are those of
// package cobra.
package main

import (
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "emptycobra", Run: func(*cobra.Command, []string) {}}
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}
