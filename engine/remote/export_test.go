package remote

import "errors"

// Break ends the connection of e as a failing write would.
func Break(e *Engine) { e.conn.Fail(errors.New("broken by the test")) }

// Subscriptions returns the number of sessions that e keeps.
func Subscriptions(e *Engine) int {
	e.subscriptions.mu.Lock()
	defer e.subscriptions.mu.Unlock()
	return e.subscriptions.sessions.Len()
}

// Servers returns the number of servers that e knows.
func Servers(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.nodes.all())
}
