package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
)

// An invariantError says that raft found one of its own invariants broken, which happens if a node
// lost a part of its log or runs under the id of another one.
type invariantError string

func (e invariantError) Error() string { return "raft: " + string(e) }

// A logger drops what raft logs, and turns its panics into an invariantError.
type logger struct{}

var _ raft.Logger = logger{}

func (logger) Debug(...any)            {}
func (logger) Debugf(string, ...any)   {}
func (logger) Info(...any)             {}
func (logger) Infof(string, ...any)    {}
func (logger) Warning(...any)          {}
func (logger) Warningf(string, ...any) {}
func (logger) Error(...any)            {}
func (logger) Errorf(string, ...any)   {}

func (logger) Fatal(v ...any)                 { panic(invariantError(fmt.Sprint(v...))) }
func (logger) Fatalf(format string, v ...any) { panic(invariantError(fmt.Sprintf(format, v...))) }
func (logger) Panic(v ...any)                 { panic(invariantError(fmt.Sprint(v...))) }
func (logger) Panicf(format string, v ...any) { panic(invariantError(fmt.Sprintf(format, v...))) }
