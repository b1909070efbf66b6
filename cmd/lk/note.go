package main

import "fmt"

// note prints a line about the progress of the verb on stderr, unless --quiet is given.
func (a *app) note(format string, args ...any) { a.noteText(fmt.Sprintf(format, args...)) }

// noteText is note for a text that is complete.
func (a *app) noteText(text string) {
	if !a.quiet {
		a.warn(text)
	}
}

// warn prints a line on stderr, even with --quiet.
func (a *app) warn(text string) { fmt.Fprintf(a.stderr, "lk: %s\n", text) }
