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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// serveVariables is how the environment variables of lk serve begin. Behind it
// follows the name of a flag.
const serveVariables = "LOCKKEEPER_SERVE_"

// maxConfig bounds the configuration file.
const maxConfig = 1 << 20

// notInConfig are the flags that a configuration file can't set.
var notInConfig = []string{"config", "help"}

// A configFile is what lk serve reads: flags by their names, with _ for -, and what
// has no flag since it is no one line.
type configFile struct {
	Settings map[string]setting
	Rules    []access.Rule
	Quotas   []access.Quota
}

// readConfig reads a configuration file. Unknown keys below the first level are
// refused; those of the first are the caller's to judge.
func readConfig(path string) (*configFile, error) {
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
	return (&configTree{path: path}).read(&document)
}

// typeName is how the YAML decoder calls where it is.
var typeName = regexp.MustCompile(` (in|into) (type )?(main|access|duration)\.\w+`)

// inOneLine is the text of an error of the YAML decoder, which speaks in several.
func inOneLine(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	return typeName.ReplaceAllString(strings.ReplaceAll(text, "\n  ", "; "), "")
}

// settle gives each flag of lk serve that was not typed its value: from the
// environment, else from the configuration file. Everything that is wrong with those
// is noted.
func (o *serveOptions) settle(a *app, cmd *cobra.Command) {
	typed := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { typed[f.Name] = true })
	o.settleEnvironment(a, cmd, typed)
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

// settleEnvironment takes what the environment has for flags that were not typed.
func (o *serveOptions) settleEnvironment(a *app, cmd *cobra.Command, typed map[string]bool) {
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

// likeKey suggests keys that are like one that is not there, or lists all.
func likeKey(cmd *cobra.Command, key string) string {
	if like := likeFlag(cmd, strings.ReplaceAll(key, "_", "-")); like != "" && !strings.Contains(like, "--config") {
		return strings.NewReplacer("--", "", "-", "_").Replace(like)
	}
	return ": there are " + strings.Join(keysOf(cmd, notInConfig, policyKeys...), ", ")
}

// likeVariable is likeKey for a flag's name in the environment.
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

// policyKeys are the keys of a configuration that are no flags.
var policyKeys = []string{"rules", "quotas"}

// keysOf are the names of flags as keys, and more, in order, without some.
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

// ifBool says what a flag takes that is true or false; nothing of others.
func ifBool(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return ": write true or false"
	}
	return ""
}

// exampleOf is a value of a flag, for messages.
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

// joinedErrors is what errors.Join returns.
type joinedErrors interface {
	Unwrap() []error
}
