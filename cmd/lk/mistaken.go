package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMistake describes a mistake in a flag, with a correction. rest are the arguments.
func flagMistake(cmd *cobra.Command, err error, rest []string) string {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &value) && value.GetFlag().Value.Type() == "bool":
		return fmt.Sprintf("--%s takes no value, or true or false, not %q", value.GetFlag().Name, value.GetValue())
	case !errors.As(err, &unknown):
	case unknown.GetSpecifiedShortnames() == "":
		name := "--" + unknown.GetSpecifiedName()
		if say := ofOtherTools(cmd, name, rest); say != "" {
			return "unknown flag: " + name + ": " + say
		}
		return "unknown flag: " + name + likeFlag(cmd, unknown.GetSpecifiedName())
	default:
		name := "-" + unknown.GetSpecifiedName()
		if say := ofOtherTools(cmd, name, rest); say != "" {
			return "unknown flag: " + name + ": " + say
		}
		return "unknown flag: " + name
	}
	return err.Error()
}

// likeFlag suggests the flags of a verb that are similar to name.
func likeFlag(cmd *cobra.Command, name string) string {
	var names cobra.Command // cobra compares names of commands only
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	like := similar(&names, name)
	if len(like) == 0 {
		return ""
	}
	return ": did you mean --" + strings.Join(like, ", or --") + "?"
}

// ofOtherTools answers flags of other tools. name includes the dashes; rest are the other
// arguments.
func ofOtherTools(cmd *cobra.Command, name string, rest []string) string {
	if cmd.Name() != "run" && cmd.Name() != "grab" {
		return ""
	}
	if name == "-w" {
		seconds := "5"
		if i := slices.Index(rest, "-w"); i >= 0 && i+1 < len(rest) && isNumber(rest[i+1]) {
			seconds = rest[i+1]
		}
		return fmt.Sprintf("to wait for at most %s seconds is --wait %ss", seconds, seconds)
	}
	return habitSays(name)
}

// isNumber reports whether text is digits alone.
func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
