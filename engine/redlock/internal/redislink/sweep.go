package redislink

import (
	"context"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
)

// Old data is removed in small steps, so that no step delays a server's other work.
const (
	sweepStep  = 100 // keys
	sweepPause = 5 * time.Millisecond
)

// forget makes the next advance inspect the server again.
func (g *Group) forget(i int) {
	g.advancing.Lock()
	g.facts[i] = redisconn.Facts{}
	g.advancing.Unlock()
}

// inspected returns the facts of a server as inspected last.
func (g *Group) inspected(i int) redisconn.Facts {
	g.advancing.Lock()
	defer g.advancing.Unlock()
	return g.facts[i]
}

// sweepAfterReturn removes the data of former generations of a server, if this process has brought
// it back to the set. It returns early if ctx ends; the next return continues.
func (g *Group) sweepAfterReturn(ctx context.Context, i int) {
	g.advancing.Lock()
	returned := g.forgetful[i]
	g.forgetful[i] = false
	g.advancing.Unlock()
	if returned {
		g.sweep(ctx, i)
	}
}

// sweep removes all keys of server i that have the form of data and belong to no present generation.
func (g *Group) sweep(ctx context.Context, i int) {
	v := g.current()
	data := v.Data(g.prefix, i)
	for cursor := "0"; ctx.Err() == nil; {
		replies, err := g.conns[i].Pipeline(ctx, [][]any{{"SCAN", cursor, "MATCH", glob(g.prefix) + "*", "COUNT", sweepStep}})
		if err != nil {
			return
		}
		page, _ := replies[0].([]any)
		if len(page) != 2 {
			return
		}
		cursor, _ = page[0].(string)
		keys, _ := page[1].([]any)
		var old []string
		for _, k := range keys {
			if key, _ := k.(string); g.isData(key) && !strings.HasPrefix(key, data) {
				old = append(old, key)
			}
		}
		if len(old) > 0 && g.servers.Sweep(ctx, i, v, old) != nil {
			return
		}
		if cursor == "0" || cursor == "" {
			return
		}
		wait(ctx, sweepPause, nil)
	}
}

// isData reports whether a key has the form of data of a generation: PREFIX, 16 digits in hex, ".",
// digits, ":".
func (g *Group) isData(key string) bool {
	rest, ours := strings.CutPrefix(key, g.prefix)
	set, rest, dot := strings.Cut(rest, ".")
	generation, _, colon := strings.Cut(rest, ":")
	return ours && dot && colon && len(set) == 16 && strings.Trim(set, "0123456789abcdef") == "" &&
		generation != "" && strings.Trim(generation, "0123456789") == ""
}

// glob returns a text as a pattern of SCAN that matches only itself.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
