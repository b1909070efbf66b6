package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper"
)

// completionBound is the longest time that completion takes after a Tab.
const completionBound = 500 * time.Millisecond

// completes adds completions to verbs and flags: of paths that are held or waited for (segment by
// segment), claims, names and engines. On an error there are none.
func (a *app) completes(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("engine", func(_ *cobra.Command, _ []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		return completeEngine(begun)
	})
	describe := func(f *pflag.Flag) {
		if len(a.args) > 0 && strings.HasPrefix(a.args[0], cobra.ShellCompRequestCmd) {
			f.Usage = strings.ReplaceAll(f.Usage, "`", "") // they mark the value's name, which only the help needs
		}
	}
	root.PersistentFlags().VisitAll(describe)
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			describe(f)
			a.completeFlag(c, f)
		})
		switch {
		case c.ValidArgsFunction != nil || c.IsAdditionalHelpTopicCommand() || c.HasSubCommands():
		case strings.Contains(c.Use, "PATH"):
			c.ValidArgsFunction = a.completePaths
		case c.Name() == "serve":
			_ = c.RegisterFlagCompletionFunc("data", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
			_ = c.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
			c.ValidArgsFunction = cobra.NoFileCompletions
		case c.Name() == "bench" || c.Name() == "migrate" || c.Name() == "dump" || c.Name() == "top":
			c.ValidArgsFunction = func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return completeEngine(begun)
			}
		case c.Name() == "man":
			c.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		default:
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// listed is a flag value that is one of a list of words.
type listed interface {
	list(separator string) string
}

func (a *app) completeFlag(c *cobra.Command, f *pflag.Flag) {
	var complete cobra.CompletionFunc
	words, few := f.Value.(listed)
	switch {
	case few:
		complete = cobra.FixedCompletions(strings.Split(words.list("\n"), "\n"), cobra.ShellCompDirectiveNoFileComp)
	case f.Name == "with":
		complete = a.completeWith
	case f.Name == "claim":
		complete = a.completeClaims
	case f.Name == "as" && c.Name() != "run":
		complete = a.completeNames
	case f.Name == "as", f.Name == "note", f.Name == "link", f.Name == "prefix", f.Value.Type() == "D",
		f.Value.Type() == "N":
		complete = cobra.NoFileCompletions
	default:
		return
	}
	_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails only if there is one already
}

// completePaths completes the paths of a verb. After -- the shell completes a command.
func (a *app) completePaths(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if slices.Contains(a.args[:max(0, len(a.args)-1)], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if len(args) > 0 && !strings.Contains(c.Use, "PATH...") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeSegments(a.livePaths(args, c.Name() == "thaw"), begun)
}

// completeWith completes the path of --with after its mode.
func (a *app) completeWith(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	how := withSpec().FindString(begun)
	list, directive := completeSegments(a.livePaths(args, false), begun[len(how):])
	for i := range list {
		list[i] = how + list[i]
	}
	return list, directive
}

// livePaths returns the paths in use, except those in args, each with a description of its claims.
func (a *app) livePaths(args []string, frozenOnly bool) map[string]string {
	about := map[string]string{}
	for _, s := range a.live() {
		if frozenOnly && s.State != lockkeeper.Freezing {
			continue
		}
		for _, g := range s.Grants {
			if path := string(g.Path); g.Path != lockkeeper.Root && !slices.Contains(args, path) {
				text := fmt.Sprintf("%s by %s", s.State, who(s.Label, s.Ref))
				if s.State == lockkeeper.Waiting {
					text = who(s.Label, s.Ref) + " waits for it"
				}
				if about[path] == "" {
					about[path] = text
				}
			}
		}
	}
	return about
}

// completeSegments completes one segment of a path, and offers the next level only after it. No
// space follows a segment that has deeper ones.
func completeSegments(about map[string]string, begun string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	offers := map[string]string{}
	for path, text := range about {
		if !strings.HasPrefix(path, begun) {
			continue
		}
		rest := path[len(begun):]
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			offers[begun+rest[:i+1]] = ""
			directive |= cobra.ShellCompDirectiveNoSpace
		} else {
			offers[path] = text
		}
	}
	var list []string
	for offer, text := range offers {
		if text != "" {
			offer = cobra.CompletionWithDesc(offer, text)
		}
		list = append(list, offer)
	}
	slices.Sort(list)
	return list, directive
}

func (a *app) completeClaims(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, s := range a.live() {
		if ref := s.Ref.String(); s.State != lockkeeper.Freezing && strings.HasPrefix(ref, begun) {
			verb := "holds"
			if s.State == lockkeeper.Waiting {
				verb = "waits for"
			}
			list = append(list, cobra.CompletionWithDesc(ref,
				fmt.Sprintf("%s %s %s", who(s.Label, s.Ref), verb, briefTargets(s))))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) completeNames(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, s := range a.live() {
		if s.State != lockkeeper.Freezing && s.As != "" && strings.HasPrefix(s.As, begun) && !slices.Contains(list, s.As) {
			list = append(list, s.As)
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// completeEngine completes a URL: its scheme, then a file.
func completeEngine(begun string) ([]string, cobra.ShellCompDirective) {
	s := schemeOf(begun)
	if !s.File {
		var list []string
		for _, s := range lockkeeper.Schemes() {
			begins := s.Form[:strings.IndexFunc(s.Form+"A", unicode.IsUpper)]
			if s.Served || s.Guarantees.Reach == lockkeeper.InProcess {
				continue
			}
			if strings.HasPrefix(begins, begun) && begins != begun {
				list = append(list, cobra.CompletionWithDesc(begins, s.About))
			}
		}
		return list, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	scheme, file, _ := strings.Cut(begun, ":")
	scheme += ":"
	folder, begunName := filepath.Split(file)
	entries, err := os.ReadDir(filepath.Join(".", folder))
	if filepath.IsAbs(folder) {
		entries, err = os.ReadDir(folder)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	var list []string
	for _, e := range entries {
		name := e.Name()
		beside := strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, "-sessions")
		hidden := strings.HasPrefix(name, ".") && !strings.HasPrefix(begunName, ".")
		if !strings.HasPrefix(name, begunName) || beside || hidden {
			continue
		}
		if e.IsDir() {
			name += "/"
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		list = append(list, scheme+folder+name)
	}
	return list, directive
}

// live lists the claims within completionBound, without creating a file; nil if that is not
// possible.
func (a *app) live() []lockkeeper.Status {
	a.makesNothing, a.readOnly = true, true
	if a.checkEngine(); len(a.bad.list) > 0 || a.missingFile() != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionBound)
	defer cancel()
	listed := make(chan []lockkeeper.Status, 1)
	go func() { // if it takes longer, the exit of lk ends it
		var all []lockkeeper.Status
		client, err := a.connect(ctx)
		if err == nil {
			all, _ = listAll(ctx, client.Client, lockkeeper.Query{Stale: true})
			client.Close() // before lk ends, so that SQLite removes its files
		}
		listed <- all
	}()
	select {
	case all := <-listed:
		return all
	case <-ctx.Done():
		return nil
	}
}

// completion adds a group and examples to cobra's lk completion.
func (a *app) completion(root *cobra.Command) {
	i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == "completion" })
	c := root.Commands()[i]
	c.GroupID = groupMore
	c.Use = "completion SHELL"
	c.DisableFlagsInUseLine = true
	c.Args = a.checkedAlone(func(_ *cobra.Command, args []string) {
		if len(args) > 0 {
			a.bad.addf("no completions for %q: there are some for bash, zsh, fish and powershell", args[0])
		} else {
			a.bad.addf("no SHELL: name one of bash, zsh, fish and powershell, as in: lk completion bash")
		}
	})
	c.RunE = func(*cobra.Command, []string) error { return nil } // cobra checks Args only of a command with RunE
	c.Short = "Write the completions of a shell"
	c.Long = `Write a script that lets a shell complete verbs, flags, paths that are held or
waited for, claims and names. A completion never waits longer than a moment, and
makes no file. SHELL is bash, zsh, fish or powershell; bash needs the package
bash-completion for it.`
	c.Example = `  # bash, for you alone
  lk completion bash > ~/.local/share/bash-completion/completions/lk

  # zsh: a directory of $fpath
  lk completion zsh > "${fpath[1]}/_lk"

  # fish
  lk completion fish > ~/.config/fish/completions/lk.fish

  # PowerShell, in the profile
  lk completion powershell | Out-String | Invoke-Expression`
	for _, shell := range c.Commands() {
		shell.Example = "  # in this shell, now\n  " + takeUp(shell.Name()) +
			"\n\n  # for every shell from now on, see\n  lk completion --help"
	}
}

// takeUp returns the command by which a shell loads the completions at once.
func takeUp(shell string) string {
	switch shell {
	case "fish":
		return "lk completion fish | source"
	case "powershell":
		return "lk completion powershell | Out-String | Invoke-Expression"
	}
	return "source <(lk completion " + shell + ")"
}
