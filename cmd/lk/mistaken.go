package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMistake says what is wrong with a flag, and what would be right. rest are
// the arguments.
func flagMistake(cmd *cobra.Command, err error, rest []string) string {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &value) && value.GetFlag().Value.Type() == "bool":
		return fmt.Sprintf("--%s takes no value, or true or false, not %q", value.GetFlag().Name, value.GetValue())
	case !errors.As(err, &unknown):
	case unknown.GetSpecifiedShortnames() == "":
		return "unknown flag: --" + unknown.GetSpecifiedName() + likeFlag(cmd, unknown.GetSpecifiedName())
	default:
		text := "unknown flag: -" + unknown.GetSpecifiedName()
		if say := ofFlock(cmd, unknown.GetSpecifiedName(), rest); say != "" {
			text += ": " + say
		}
		return text
	}
	return err.Error()
}

// likeFlag suggests the flags of a verb that are like a name.
func likeFlag(cmd *cobra.Command, name string) string {
	var names cobra.Command // of commands, which cobra can compare
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	names.SuggestionsMinimumDistance = 2
	like := names.SuggestionsFor(name)
	if len(like) == 0 {
		return ""
	}
	return ": did you mean --" + strings.Join(like, ", or --") + "?"
}

// ofFlock answers those who write lk run as they write flock.
func ofFlock(cmd *cobra.Command, short string, rest []string) string {
	if cmd.Name() != "run" {
		return ""
	}
	switch short {
	case "w":
		seconds := "5"
		if i := slices.Index(rest, "-w"); i >= 0 && i+1 < len(rest) && isNumber(rest[i+1]) {
			seconds = rest[i+1]
		}
		return fmt.Sprintf("to wait for at most %s seconds is --wait %ss", seconds, seconds)
	case "c":
		return "the command stands after --, as in: lk run mydatabase/mytest -- sh -c 'make test'"
	case "x", "e":
		return "it needs no flag to hold a path alone"
	case "o":
		return "it needs no flag: what the command leaves in the background does not hold the lock"
	case "u":
		return "the lock is released when the command ends; what lk grab took, lk release gives back"
	}
	return ""
}

// isNumber reports whether text is digits alone.
func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
