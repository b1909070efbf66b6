package main

import "github.com/spf13/cobra"

// completion makes lk completion one of the verbs, with examples.
func (a *app) completion(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.GroupID = groupMore
		c.Args = a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("no completions for %q: there are some for bash, zsh, fish and powershell", args[0])
			}
		})
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		c.Short = "Write the completions of a shell"
		c.Long = `Write a script that lets a shell complete verbs, flags, paths that are held or
waited for, claims and names. A completion never waits longer than a moment, and
makes no file.`
		c.Example = `  # bash, for you alone
  lk completion bash > ~/.local/share/bash-completion/completions/lk

  # zsh: a directory of $fpath
  lk completion zsh > "${fpath[1]}/_lk"

  # fish
  lk completion fish > ~/.config/fish/completions/lk.fish

  # PowerShell, in the profile
  lk completion powershell | Out-String | Invoke-Expression`
		for _, shell := range c.Commands() {
			shell.Example = "  # in this shell, now\n  " + now(shell.Name()) + "\n\n  # " + shell.Name() + ": for every shell from now on, see\n  lk completion --help"
		}
	}
}

// now is how a shell takes up completions at once.
func now(shell string) string {
	switch shell {
	case "fish":
		return "lk completion fish | source"
	case "powershell":
		return "lk completion powershell | Out-String | Invoke-Expression"
	}
	return "source <(lk completion " + shell + ")"
}
