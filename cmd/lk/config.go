package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// serveVariables is the prefix of the environment variables of lk serve; the name of a flag
// follows.
const serveVariables = "LOCKKEEPER_SERVE_"

// maxConfig bounds the configuration file.
const maxConfig = 1 << 20

// notInConfig are the flags that a configuration file can't set.
var notInConfig = []string{"config", "help"}

// A configFile is the configuration of lk serve: values of flags by name, with _ for -, and the
// rules and quotas, which have no flags.
type configFile struct {
	Settings map[string]setting
	Rules    []access.Rule
	Quotas   []access.Quota
}

// readConfig reads a configuration file. It refuses unknown keys below the first level; the caller
// checks those of the first.
func readConfig(path string) (*configFile, error) {
	return readKeys(path, "leave the key out (without rules every authenticated client may do everything)")
}

// readKeys reads a file as readConfig does; noRules says what to do instead of an empty list of rules.
func readKeys(path, noRules string) (*configFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxConfig {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxConfig)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) { // an empty file sets nothing
		return nil, fmt.Errorf("%s: %s", path, inOneLine(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is a second document after ---: write one", path)
	}
	return (&configTree{path: path, noRules: noRules}).read(&document)
}

// typeName matches the Go type in an error of the YAML decoder, which means nothing to users.
var typeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(` (in|into) (type )?(main|access|duration)\.\w+`)
})

// inOneLine joins the lines of an error of the YAML decoder.
func inOneLine(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	return typeName().ReplaceAllString(strings.ReplaceAll(text, "\n  ", "; "), "")
}

// applyConfig sets each flag of lk serve that is not on the command line: from the environment,
// else from the configuration file. It collects all problems of these.
func (o *serveOptions) applyConfig(a *app, cmd *cobra.Command) {
	typed := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { typed[f.Name] = true })
	o.applyEnvironment(a, cmd, typed)
	if o.config == "" {
		return
	}
	if absolute, err := filepath.Abs(o.config); err == nil {
		o.config = absolute
	}
	c, err := readConfig(o.config)
	if all, ok := err.(joinedErrors); ok {
		for _, err := range all.Unwrap() {
			a.bad.addf("--config: %s", err)
		}
		return
	}
	if err != nil {
		a.bad.addf("--config: %s", err)
		return
	}
	o.file = c
	for key, node := range c.Settings {
		where := fmt.Sprintf("%s:%d", o.config, node.line)
		f := cmd.Flags().Lookup(strings.ReplaceAll(key, "_", "-"))
		switch {
		case f == nil || strings.Contains(key, "-") || slices.Contains(notInConfig, f.Name):
			a.bad.addf("%s: unknown key %q%s", where, key, likeKey(cmd, key))
		case node.Kind != yaml.ScalarNode || node.Tag == "!!null":
			a.bad.addf("%s: %s takes one value, such as: %s: %s", where, key, key, exampleOf(f))
		case typed[f.Name]:
		default:
			if err := f.Value.Set(node.Value); err != nil {
				a.bad.addf("%s: %s: %q is no value for it%s", where, key, node.Value, ifBool(f))
			}
			f.Changed = true
		}
	}
}

// applyEnvironment sets the flags that are not in typed from environment variables, and adds their
// names to typed.
func (o *serveOptions) applyEnvironment(a *app, cmd *cobra.Command, typed map[string]bool) {
	for _, line := range os.Environ() {
		variable, value, _ := strings.Cut(line, "=")
		rest, ours := strings.CutPrefix(variable, serveVariables)
		if !ours {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		f := cmd.Flags().Lookup(name)
		switch {
		case f == nil || f.Name == "help":
			a.bad.addf("unknown environment variable %s%s", variable, likeVariable(cmd, name))
		case typed[name]:
		default:
			if err := f.Value.Set(value); err != nil {
				a.bad.addf("%s=%q: that is no value for it%s", variable, value, ifBool(f))
			}
			f.Changed, typed[name] = true, true
		}
	}
}

// likeKey suggests keys similar to an unknown one, or lists all keys.
func likeKey(cmd *cobra.Command, key string) string {
	if like := likeFlag(cmd, strings.ReplaceAll(key, "_", "-")); like != "" && !strings.Contains(like, "--config") {
		return strings.NewReplacer("--", "", "-", "_").Replace(like)
	}
	return ": there are " + strings.Join(keysOf(cmd, notInConfig, policyKeys...), ", ")
}

// likeVariable is likeKey for the name of an environment variable.
func likeVariable(cmd *cobra.Command, name string) string {
	if slices.Contains(policyKeys, name) {
		return ": " + name + " stand in the configuration file (--config) alone"
	}
	if like := likeFlag(cmd, name); like != "" {
		return strings.NewReplacer("--", "", "-", "_").Replace(like)
	}
	return ": after " + serveVariables + " goes one of " +
		strings.ToUpper(strings.Join(keysOf(cmd, []string{"help"}), ", "))
}

// policyKeys are the configuration keys that have no flag.
var policyKeys = []string{"rules", "quotas"}

// keysOf returns the flags of cmd as configuration keys, except those in without, together with
// more, sorted.
func keysOf(cmd *cobra.Command, without []string, more ...string) []string {
	keys := slices.Clone(more)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(without, f.Name) {
			keys = append(keys, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	slices.Sort(keys)
	return keys
}

// ifBool returns the remedy for a wrong value of a boolean flag; "" for other flags.
func ifBool(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return ": write true or false"
	}
	return ""
}

// exampleOf returns an example value of a flag, for messages.
func exampleOf(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return "true"
	}
	if f.DefValue != "" {
		return f.DefValue
	}
	name, _ := pflag.UnquoteUsage(f)
	return name
}

// joinedErrors is implemented by the errors of errors.Join.
type joinedErrors interface {
	Unwrap() []error
}
