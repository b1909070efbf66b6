//go:build !linux

package testdb

import (
	"os/exec"
	"syscall"
	"time"
)

// process is a running server: there is none.
type process struct {
	pid  int
	gone chan struct{}
	err  error
}

func launch(*exec.Cmd, string, *serverLog) (*process, error) { return nil, errElsewhere }
func (p *process) stop(syscall.Signal) error                 { return errElsewhere }
func (p *process) await(time.Duration) error                 { return errElsewhere }
func (p *process) kill() error                               { return errElsewhere }
func (p *process) freeze() error                             { return errElsewhere }
func (p *process) thaw() error                               { return errElsewhere }

func ownFolder(string) (string, error) { return "", errElsewhere }
func whoRuns() string                  { return "" }
func forgetPostgres(*Server)           {}
