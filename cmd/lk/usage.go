package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// problems collects all mistakes in the arguments, so that lk can report them at once.
type problems struct{ list []string }

// Error returns all problems in one line.
func (p *problems) Error() string { return strings.Join(p.list, "; ") }

func (p *problems) addf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.list, text) {
		p.list = append(p.list, text)
	}
}

// add adds what a check of the package lockkeeper found, one problem for each
// thing that it names. It ignores nil.
func (p *problems) add(err error) {
	var e *lockkeeper.Error
	switch {
	case err == nil:
	case errors.As(err, &e):
		for text := range strings.SplitSeq(e.Detail, "; ") {
			p.addf("%s", text)
		}
	default:
		p.addf("%s", err)
	}
}

// flagOf returns the flag of cmd for an error of the package lockkeeper, which knows no flags;
// empty if there is none.
func flagOf(cmd *cobra.Command, text string) string {
	for _, known := range [...]struct{ begins, flag string }{
		{"priority ", "priority"}, {"name ", "as"}, {"note ", "note"}, {"link ", "link"},
		{"quiet period ", "quiet-period"},
	} {
		if strings.HasPrefix(text, known.begins) && cmd.Flags().Lookup(known.flag) != nil {
			return "--" + known.flag + ": "
		}
	}
	return ""
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return p
}

// flagError handles a flag that pflag can't parse. pflag stops there, so flagError records the
// problem, parses the other arguments again, and lets the verb check them: one run of lk reports
// all problems. Flags after an unknown verb are no problems of their own, because nobody knows the flags of that verb.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	_, rest, _ := cmd.Root().Find(a.args)
	for err != nil {
		if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
			break
		}
		a.bad.addf("%s", flagMistake(cmd, err, rest))
		i := culprit(rest, err)
		if i < 0 {
			return a.bad.err()
		}
		rest = slices.Delete(slices.Clone(rest), i, i+1)
		err = cmd.ParseFlags(rest)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return a.bad.err()
}

// culprit returns the index of the argument that err is about; -1 if unknown.
func culprit(args []string, err error) int {
	var long, short string
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		long, short = unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	case errors.As(err, &valueless):
		long, short = valueless.GetSpecifiedName(), valueless.GetSpecifiedShortnames()
	case errors.As(err, &invalid):
		long = invalid.GetFlag().Name
	}
	return slices.IndexFunc(args, func(arg string) bool {
		if short != "" {
			return strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, short)
		}
		name, _, _ := strings.Cut(arg, "=")
		return long != "" && name == "--"+long
	})
}

// number is the value of a flag that takes an integer. For other text it adds a problem that says
// what the flag is for.
type number struct {
	to    *int
	bad   *problems
	wrong string // a format with one %q for the text
}

func (n number) String() string {
	if n.to == nil || *n.to == 0 {
		return ""
	}
	return strconv.Itoa(*n.to)
}

func (n number) Type() string { return "N" }

func (n number) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil {
		n.bad.addf(n.wrong, text)
		value = 1 // in range, so that no second problem is reported
	}
	*n.to = value
	return nil
}

// addSpan adds a flag whose value is a duration (see parseDuration) from least to ten years.
// Problems quote the text of the user.
func addSpan(cmd *cobra.Command, bad *problems, to *time.Duration, name string, least time.Duration, usage string) {
	cmd.Flags().Var(span{to, bad, "--" + name, least}, name, usage)
}

// years is lockkeeper.MaxDuration in words.
const years = "10 years"

type span struct {
	to    *time.Duration
	bad   *problems
	name  string
	least time.Duration
}

// String is empty for 0 and forever: as defaults of flags they mean no bound.
func (s span) String() string {
	if s.to == nil || *s.to == 0 || *s.to == lockkeeper.Forever {
		return ""
	}
	return s.to.String()
}

// Type stands for the value in the help.
func (s span) Type() string { return "D" }

// Set reads a duration.
func (s span) Set(text string) error {
	value, err := duration.Parse(text)
	switch {
	case err != nil && isNumber(text):
		s.bad.addf("%s takes a duration such as 90s, 5m or 2w3d, not %q, which has no unit: did you mean %ss?", s.name, text,
			text)
	case err != nil:
		s.bad.addf("%s takes a duration such as 90s, 5m or 2w3d, not %q", s.name, text)
	case value < s.least || value > lockkeeper.MaxDuration:
		least := "0"
		if s.least > 0 {
			least = duration.Text(s.least)
		}
		s.bad.addf("%s %s is out of range: %s to %s", s.name, text, least, years)
	default:
		*s.to = value
	}
	return nil
}

// path parses a path of the arguments, and collects its problem.
func (a *app) path(text string) lockkeeper.Path {
	path, err := lockkeeper.ParsePath(text)
	a.bad.add(err)
	return path
}

// onePath reads the path of verbs that take one, or none for everything.
func (a *app) onePath(args []string) lockkeeper.Path {
	if len(args) > 1 {
		a.bad.addf("%d paths: name one, or none to see everything", len(args))
	}
	return a.firstPath(args)
}

// thePath reads the path of verbs that need exactly one.
func (a *app) thePath(cmd *cobra.Command, args []string) lockkeeper.Path {
	if len(args) != 1 {
		a.bad.addf("%s: name one, as in: %s mydatabase/mytest", plural(len(args), "path"), program(cmd))
	}
	return a.firstPath(args)
}

// firstPath returns the first of the paths, if there is one, and collects the problems of all.
func (a *app) firstPath(args []string) lockkeeper.Path {
	var first lockkeeper.Path
	for i, text := range args {
		if path := a.path(text); i == 0 {
			first = path
		}
	}
	return first
}
