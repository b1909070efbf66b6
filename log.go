package lockkeeper

import (
	"context"
	"log/slog"
)

// maxRecords bounds the records that wait for a slow handler; more are dropped.
const maxRecords = 256

// record is a line for the program's logger.
type record struct {
	level slog.Level
	text  string
	args  []any
}

// log hands a line to the program's logger; c.mu is locked. The handler is code of the program: it
// may block, or call the client. So neither the goroutine that ends contexts at their deadlines nor
// any caller with c.mu locked runs it: a goroutine of its own does, while there are records.
func (c *Client) log(level slog.Level, text string, args ...any) {
	if len(c.records) == maxRecords {
		return
	}
	c.records = append(c.records, record{level, text, args})
	if !c.logging {
		c.logging = true
		go c.writeRecords()
	}
}

func (c *Client) writeRecords() {
	for {
		c.mu.Lock()
		records := c.records
		c.records = nil
		c.logging = len(records) > 0
		c.mu.Unlock()
		if len(records) == 0 {
			return
		}
		for _, r := range records {
			c.logger.Log(context.Background(), r.level, r.text, r.args...)
		}
	}
}
