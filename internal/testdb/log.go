package testdb

import (
	"bufio"
	"io"
	"strings"
	"sync"
)

// keptLines is how much of a server's log is kept, from its end.
const keptLines = 60

// A serverLog is what a server says.
type serverLog struct {
	phrase string
	ready  chan struct{} // closed when it has said the phrase

	mu    sync.Mutex
	lines []string
}

func newLog(phrase string) *serverLog {
	return &serverLog{phrase: phrase, ready: make(chan struct{})}
}

// follow reads the log to its end: that comes when nobody has it open any more.
func (l *serverLog) follow(from io.Reader) {
	said := false
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		if line != "" {
			l.keep(line)
		}
		if !said && l.phrase != "" && strings.Contains(line, l.phrase) {
			said = true
			close(l.ready)
		}
		if err != nil {
			return
		}
	}
}

func (l *serverLog) keep(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == keptLines {
		l.lines = append(l.lines[:0], l.lines[1:]...)
	}
	l.lines = append(l.lines, line)
}

// String is the end of the log.
func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}
