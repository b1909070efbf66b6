package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
	date, err := manDate()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	pages := 0
	var write func(c *cobra.Command) error
	write = func(c *cobra.Command) error {
		pages++
		file := filepath.Join(folder, pageName(c)+".1")
		if err := os.WriteFile(file, []byte(manPage(c, date)), 0o644); err != nil {
			return err
		}
		for _, sub := range c.Commands() {
			if !hasPage(sub) {
				continue
			}
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return pages, write(root)
}

// manDate is the date of the pages: that of SOURCE_DATE_EPOCH, so that packages can be built again
// alike, else today.
func manDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now(), nil
	}
	unix, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%q: it is a number of seconds since 1970", epoch)
	}
	return time.Unix(unix, 0).UTC(), nil
}

func hasPage(c *cobra.Command) bool {
	return c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()
}

// pageName is the name of a command's page.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command or topic, in roff.
func manPage(c *cobra.Command, date time.Time) string {
	topic := c.IsAdditionalHelpTopicCommand()
	use := c.UseLine()
	if topic {
		use = c.Root().Name() + " help " + c.Name()
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".nh\n.TH %q \"1\" %q %q \"Lockkeeper\"\n", strings.ToUpper(pageName(c)), date.Format("Jan 2006"),
		"lk "+version())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", pageName(c), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fP\n", roff(use))
	b.WriteString(".SH DESCRIPTION\n" + roffText(cmp.Or(c.Long, c.Short)))
	if !topic {
		c.InitDefaultHelpFlag()
		roffFlags(&b, "OPTIONS", c.NonInheritedFlags())
		roffFlags(&b, "OPTIONS OF EVERY VERB", c.InheritedFlags())
	}
	if !c.HasParent() {
		roffCommands(&b, "VERBS", c, (*cobra.Command).IsAvailableCommand)
		roffCommands(&b, "TOPICS", c, (*cobra.Command).IsAdditionalHelpTopicCommand)
	}
	if c.HasExample() {
		b.WriteString(".SH EXAMPLE\n" + roffBlock(c.Example))
	}
	if see := seeAlso(c); len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n" + strings.Join(see, ", ") + "\n")
	}
	return b.String()
}

// seeAlso returns the pages of the command above and of those below, if they are not listed already.
func seeAlso(c *cobra.Command) (pages []string) {
	name := func(c *cobra.Command) string { return "\\fB" + pageName(c) + "(1)\\fP" }
	if !c.HasParent() {
		return nil
	}
	pages = append(pages, name(c.Parent()))
	for _, sub := range c.Commands() {
		if hasPage(sub) {
			pages = append(pages, name(sub))
		}
	}
	return pages
}

// roffCommands writes a list of commands.
func roffCommands(b *strings.Builder, title string, parent *cobra.Command, wanted func(*cobra.Command) bool) {
	fmt.Fprintf(b, ".SH %s\n", title)
	for _, c := range parent.Commands() {
		if wanted(c) {
			fmt.Fprintf(b, ".TP\n\\fB%s(1)\\fP\n%s\n", pageName(c), roff(c.Short))
		}
	}
}

// roffFlags writes a list of flags, with the names of their values.
func roffFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB-%s\\fP, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB--%s\\fP", f.Name)
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fP", value)
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// roffText turns the text of a help into paragraphs and, of indented lines, blocks.
func roffText(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		var block []string
		flush := func() {
			if len(block) > 0 {
				b.WriteString(roffBlock(strings.Join(block, "\n")))
			}
			block = nil
		}
		for line := range strings.SplitSeq(part, "\n") {
			if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
				block = append(block, line)
				continue
			}
			flush()
			b.WriteString(roff(line) + "\n")
		}
		flush()
	}
	return b.String()
}

// roffBlock returns lines that stay as they are.
func roffBlock(text string) string {
	var b strings.Builder
	b.WriteString(".EX\n")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".EE\n")
	return b.String()
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.ReplaceAll(line, `\`, `\e`)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
