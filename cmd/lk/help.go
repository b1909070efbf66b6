package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

// The groups of verbs in lk help, in this order.
const (
	groupHold    = "hold"
	groupLook    = "look"
	groupOperate = "operate"
	groupServe   = "serve"
	groupMore    = "more"
)

var groups = []*cobra.Group{
	{ID: groupHold, Title: "Hold locks:"},
	{ID: groupLook, Title: "Inspect:"},
	{ID: groupOperate, Title: "Intervene:"},
	{ID: groupServe, Title: "Serve:"},
	{ID: groupMore, Title: "More:"},
}

// newHelp returns lk help. It refuses unknown verbs and topics.
func (a *app) newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB or TOPIC]",
		Short:   "Explain a verb or a topic",
		GroupID: groupMore,
		Example: `  # all verbs
  lk help

  # one verb: the same as lk run --help
  lk help run

  # what the exit codes mean
  lk help exit-codes`,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if _, unknown := subjectOfHelp(cmd.Root(), args); unknown != "" {
				a.bad.addf("no verb or topic %q%s", unknown, didYouMean(cmd.Root(), unknown))
			}
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && !c.Hidden && strings.HasPrefix(c.Name(), begun) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _ := subjectOfHelp(cmd.Root(), args)
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// subjectOfHelp is the command that args name, or the first word that names none.
func subjectOfHelp(root *cobra.Command, args []string) (c *cobra.Command, unknown string) {
	c = root
	for _, word := range args {
		i := slices.IndexFunc(c.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if i < 0 {
			return c, word
		}
		c = c.Commands()[i]
	}
	return c, ""
}

// didYouMean suggests the equivalent of another tool's verb, else verbs and topics with
// a similar name.
func didYouMean(root *cobra.Command, word string) string {
	if say := habitSays(word); say != "" {
		return ": " + say
	}
	names := similar(root, word)
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() && strings.HasPrefix(c.Name(), word) {
			names = append(names, "help "+c.Name())
		}
	}
	if len(names) == 0 {
		return ": lk help lists all"
	}
	slices.Sort(names)
	return ": did you mean lk " + strings.Join(slices.Compact(names), ", or lk ") + "?"
}

// similar returns the names of subcommands that word may stand for: those within one edit, else those
// within two.
func similar(c *cobra.Command, word string) []string {
	var names []string
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2 && len(names) == 0; {
		names = c.SuggestionsFor(word)
		c.SuggestionsMinimumDistance++
	}
	return names
}

// writeUsage writes the part of help after the description: the verbs of lk itself, the examples and
// flags of a verb.
func writeUsage(c *cobra.Command) error {
	to := c.OutOrStderr()
	fmt.Fprintf(to, "Usage:\n  %s\n", c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(to, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range c.Groups() {
		fmt.Fprintf(to, "\n%s\n", g.Title)
		writeNames(to, c, func(sub *cobra.Command) bool { return sub.GroupID == g.ID && !sub.Hidden })
	}
	if c.HasAvailableSubCommands() && len(c.Groups()) == 0 {
		fmt.Fprintf(to, "\nOne of:\n")
		writeNames(to, c, func(sub *cobra.Command) bool { return sub.IsAvailableCommand() })
	}
	if c.HasHelpSubCommands() {
		fmt.Fprintf(to, "\nTopics, for lk help:\n")
		writeNames(to, c, (*cobra.Command).IsAdditionalHelpTopicCommand)
	}
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(to, "\nFlags:\n%s", c.LocalFlags().FlagUsages())
	}
	if usages := c.InheritedFlags().FlagUsages(); usages != "" {
		fmt.Fprintf(to, "\nCommon flags:\n%s", usages)
	}
	if !c.HasParent() {
		fmt.Fprint(to, "\n"+lastWords)
	}
	return nil
}

func writeNames(to io.Writer, c *cobra.Command, wanted func(*cobra.Command) bool) {
	for _, sub := range c.Commands() {
		if wanted(sub) {
			fmt.Fprintf(to, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
}

// lastWords end lk help.
const lastWords = `A lock is a path: a name of your choice, such as mydatabase/mytest. A lock of mydatabase
covers all paths below it. mydatabase/a and mydatabase/b are independent.

Exit codes: the command's own, or 75 it is taken, 76 it was lost, 69 the engine
can't be reached, 2 bad usage.

lk help VERB explains one verb, with examples.
`

// newTopics are the help topics: commands that can't be run.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "paths", Short: "Names of locks, and which exclude each other", Long: pathsTopic},
		{Use: "exit-codes", Short: "Exit codes of lk", Long: exitCodesTopic},
		{Use: "engines", Short: "Where locks are kept, and how to choose", Long: enginesTopic()},
	}
}

const pathsTopic = `A lock is named by a path: names joined by slashes, such as mydatabase/mytest. You choose
the names. They need not be created before, or removed afterwards.

Modes
  exclusive     lk run PATH        PATH and all paths below it, alone
  shared        lk run -s PATH     together with other shared locks
  permits       lk run -n 3 PATH   at most 3 at a time, by this caller's limit

  mydatabase     waits for             mydatabase/mytest, mydatabase/a/b, mydatabase
  mydatabase/a   is independent of     mydatabase/b
  mydatabase/a   waits for             mydatabase

lk run takes several paths together or not at all, so two runs of the same paths can't
deadlock.

The line is fair: claims of one priority are granted in the order in which they came. A
claim of mydatabase keeps its position: a later claim of mydatabase/b waits behind it.

Valid paths
  Extra slashes are ignored: /a//b/ is a/b.
  At most 16 names and 512 bytes; case matters.
  Not . or .. as a name, and no control or invisible characters.`

const exitCodesTopic = `lk run ends with the exit code of its command, if the command ran. Else:

` + exitCodesTable + `

To tell "taken" from a command's own 75, choose another code:

  lk run --try -E 200 deploy -- ./deploy
  [ $? -eq 200 ] && echo "somebody else deploys"

69 does not mean "taken": the state of the lock is unknown. Try again later.`

// urlForms lists the forms of engines' URLs, those for several processes or those for one.
func urlForms(several bool) string {
	const column = 22
	var b strings.Builder
	for _, s := range lockkeeper.Schemes() {
		if several != (s.Guarantees.Reach != lockkeeper.InProcess) {
			continue
		}
		line := "  " + s.Form
		if len(line) >= column {
			b.WriteString(line + "\n")
			line = ""
		}
		for word := range strings.FieldsSeq(s.Help) {
			if len(line) >= column && len(line)+1+len(word) > helpWidth {
				b.WriteString(line + "\n")
				line = ""
			}
			line = fmt.Sprintf("%-*s", column-1, line) + " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// helpWidth is how many columns a help text has.
const helpWidth = 83

func enginesTopic() string {
	return `An engine keeps the locks. Programs that use the same engine exclude each other.

  --engine URL        names it for one command
  LOCKKEEPER_URL      names it for all commands that see this variable
  without both        it is /var/lib/lockkeeper-local/locks.db where that directory
                      exists, for all users of this machine; else a file for you
                      alone in your state directory ($XDG_STATE_HOME/lockkeeper, or
                      ~/.local/state/lockkeeper)

What URL can be
` + urlForms(true) + `
Only within one process, and so for lk serve to serve, or for lk bench to measure
` + urlForms(false) + `
At a server and in a database, the locks of a process that is killed or cut off end
with their TTL; in a file they end at once. A client that is cut off for less than that has lost
nothing.

In CI the default is not enough: it excludes only processes of the same machine. Name
an engine that all jobs reach, such as a server.

lk doctor says which engine is used, why, what it promises, and what is wrong with
it.`
}
