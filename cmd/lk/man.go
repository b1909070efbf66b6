package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of lk",
		Long: `Write the manual pages of lk and of each verb and topic into the directory DIR,
which is made if it is not there. It is for packages: lk.1, lk-run.1, and so on.
The date in them is that of SOURCE_DATE_EPOCH, else today's.`,
		Example: `  # for a package
  lk man ./build/share/man/man1

  # for you alone
  lk man ~/.local/share/man/man1`,
		Hidden: true,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if len(args) != 1 {
				a.bad.addf("%s: name the directory to write to, as in: lk man ./man1", plural(len(args), "argument"))
			}
		}),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			n, err := writeMan(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s in %s\n", plural(n, "page"), filepath.Clean(args[0]))
			return err
		}),
	}
}

// writeMan writes the pages and counts them.
func writeMan(root *cobra.Command, folder string) (int, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	forMan(root)
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "lk " + version(), Manual: "Lockkeeper"}, folder)
	if err != nil {
		return 0, err
	}
	pages, err := filepath.Glob(filepath.Join(folder, "lk*.1"))
	return len(pages), err
}

// forMan prepares the texts of a command and those below it: topics become pages
// too, and what is indented in help stays as it is in the page.
func forMan(c *cobra.Command) {
	c.DisableAutoGenTag = true
	if c.IsAdditionalHelpTopicCommand() {
		c.Run = func(*cobra.Command, []string) {}
	}
	c.Long = keepIndented(c.Long)
	for _, sub := range c.Commands() {
		forMan(sub)
	}
}

// keepIndented makes indented lines what Markdown takes as they are.
func keepIndented(text string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		if indented != inside && strings.TrimSpace(line) != "" {
			b.WriteString("\n")
			inside = indented
		}
		if indented {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
