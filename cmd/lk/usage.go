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
)

// problems collects all that is wrong with the arguments, so that it can be
// told at once.
type problems struct{ list []string }

// Error tells everything in one line.
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

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return p
}

// flagError goes on where pflag stops at the first flag that it can't parse: it
// names that one, parses again without it, and at the end lets the verb check
// what is left, so that one run names all that is wrong.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	_, rest, _ := cmd.Root().Find(a.args)
	for err != nil {
		a.bad.addf("%s", err)
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

// culprit is the index of the argument that err is about, -1 if it can't be told.
func culprit(args []string, err error) int {
	var long, short string
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		long, short = unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()
	case errors.As(err, &valueless):
		long, short = valueless.GetSpecifiedName(), valueless.GetSpecifiedShortnames()
	}
	return slices.IndexFunc(args, func(arg string) bool {
		if short != "" {
			return strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, short)
		}
		name, _, _ := strings.Cut(arg, "=")
		return long != "" && name == "--"+long
	})
}

// number is a flag's value that is a whole number. Text that is none is noted
// among the problems, with words that say what the flag is for.
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
		value = 1 // anything in range, so that nothing else is said of it
	}
	*n.to = value
	return nil
}

// span is a flag's value that is a duration, see parseDuration.
type span struct {
	to   *time.Duration
	bad  *problems
	name string
}

func (s span) String() string {
	if s.to == nil || *s.to == lockkeeper.Forever {
		return ""
	}
	return s.to.String()
}

func (s span) Type() string { return "D" }

func (s span) Set(text string) error {
	value, err := parseDuration(text)
	if err != nil {
		s.bad.addf("%s takes a duration such as 90s, 5m or 2w3d, not %q", s.name, text)
		return nil
	}
	*s.to = value
	return nil
}
