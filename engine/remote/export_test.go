package remote

import "errors"

// Break ends the connection of e as a failing write would.
func Break(e *Engine) { e.conn.Fail(errors.New("broken by the test")) }

// Hearings is of how many sessions e would tell somebody.
func Hearings(e *Engine) int {
	e.hearings.mu.Lock()
	defer e.hearings.mu.Unlock()
	return len(e.hearings.of)
}
