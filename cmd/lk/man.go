package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func (a *app) newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of lk",
		Long: `Write the manual pages of lk, its verbs and topics (lk.1, lk-run.1, ...) into the directory
DIR, and create it if necessary. Their date is SOURCE_DATE_EPOCH, else today.`,
		Example: `  # for a package
  lk man ./build/share/man/man1

  # for you alone
  lk man ~/.local/share/man/man1`,
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
	topics := map[string]bool{}
	for _, c := range root.Commands() {
		topics[c.Name()] = c.IsAdditionalHelpTopicCommand()
	}
	list := listForMan(root)
	forMan(root)
	root.Long += list
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "lk " + version(), Manual: "Lockkeeper"}, folder)
	if err != nil {
		return 0, err
	}
	for _, c := range root.Commands() {
		if topics[c.Name()] {
			if err := nameTopic(filepath.Join(folder, "lk-"+c.Name()+".1"), c.Name()); err != nil {
				return 0, err
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(folder, "lk*.1"))
	return len(pages), err
}

// forMan prepares the texts of a command and its subcommands: topics become pages too, and indented
// lines of the help stay as they are in the page.
func forMan(c *cobra.Command) {
	c.DisableAutoGenTag = true
	c.Long = keepIndented(c.Long) + optionsForMan(c)
	if c.IsAdditionalHelpTopicCommand() {
		c.Run = func(*cobra.Command, []string) {}
		c.DisableFlagsInUseLine = true
	}
	for _, sub := range c.Commands() {
		forMan(sub)
	}
}

// nameTopic replaces the name in the page of a topic by the command that shows it: a topic is no
// verb.
func nameTopic(file, topic string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := strings.Replace(string(page), "\\fBlk "+topic+"\\fP", "\\fBlk help "+topic+"\\fP", 1)
	return os.WriteFile(file, []byte(text), 0o644)
}

// listForMan lists the verbs and the topics.
func listForMan(root *cobra.Command) string {
	var verbs, topics strings.Builder
	for _, c := range root.Commands() {
		to := &verbs
		if c.IsAdditionalHelpTopicCommand() {
			to = &topics
		} else if !c.IsAvailableCommand() {
			continue
		}
		fmt.Fprintf(to, "**lk-%s(1)**\n\t%s\n\n", c.Name(), c.Short)
	}
	return "\n\n# VERBS\n" + verbs.String() + "# TOPICS\n" + topics.String()
}

// optionsForMan writes the flags of a command with the names of their values,
// which the generator leaves out, and hides them from it.
func optionsForMan(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	if c.IsAdditionalHelpTopicCommand() {
		hideFlags(c.Flags())
		return ""
	}
	if c.HasAvailableFlags() && !c.DisableFlagsInUseLine && !strings.Contains(c.Use, "[flags]") {
		c.Use += " [flags]"
	}
	var b strings.Builder
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"OPTIONS", c.NonInheritedFlags()}, {"OPTIONS OF EVERY VERB", c.InheritedFlags()}} {
		if !set.flags.HasFlags() {
			continue
		}
		fmt.Fprintf(&b, "\n\n# %s\n", set.title)
		set.flags.VisitAll(func(f *pflag.Flag) {
			value, usage := pflag.UnquoteUsage(f)
			short := ""
			if f.Shorthand != "" {
				short = "**-" + f.Shorthand + "**, "
			}
			if value != "" {
				value = " *" + value + "*"
			}
			if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" {
				usage += " (default " + d + ")"
			}
			fmt.Fprintf(&b, "%s**--%s**%s\n\t%s\n\n", short, f.Name, value, usage)
		})
	}
	hideFlags(c.Flags())
	hideFlags(c.PersistentFlags())
	return b.String()
}

func hideFlags(flags *pflag.FlagSet) { flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true }) }

// keepIndented turns indented lines into Markdown code blocks.
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
