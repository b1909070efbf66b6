package membership

import (
	"context"
	"strings"
	"testing"
)

// silentConn is a server that no test sends anything to.
type silentConn struct{ t *testing.T }

func (silentConn) Address() string { return "a:6379" }

func (c silentConn) Pipeline(context.Context, [][]any) ([]any, error) {
	c.t.Error("a command was sent")
	return nil, nil
}

func TestStepOfUnknownKindIsRefused(t *testing.T) {
	s := NewServers("p:", []Conn{silentConn{t}})
	changed, err := s.Apply(t.Context(), Plan{}, make([]Record, 1), Step{Kind: Join + 1}, nil)
	if changed || err == nil || !strings.Contains(err.Error(), "a:6379") {
		t.Errorf("changed: %t, error %v; want an error that names the server", changed, err)
	}
}
