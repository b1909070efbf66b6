// Package mutants checks the checkers: its test plants bugs into the code, one
// at a time, and holds each against the test that must catch it. The table of
// them is docs/mutants.md.
package mutants
