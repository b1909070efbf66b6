package remote

import "errors"

// Break ends the connection of e as a failing write would.
func Break(e *Engine) { e.conn.fail(errors.New("broken by the test")) }
