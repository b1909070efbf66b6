package redislink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
)

// Content is what one server keeps, for people.
type Content struct{ Address, Text string }

// Contents returns what the servers keep. All must answer.
func (g *Group) Contents(ctx context.Context) ([]Content, error) {
	records := g.servers.Observe(ctx)
	var all []Content
	for i := range records {
		r := &records[i]
		c := Content{Address: g.conns[i].Address()}
		switch {
		case !r.Answered && damaged(r):
			c.Text = "its record of the set is damaged: " + r.Why.Error()
		case !r.Answered:
			return nil, fmt.Errorf("%w: there is no answer from %s (%v), and all servers are needed", membership.ErrNotYet,
				c.Address, g.denied(r.Why))
		case r.Generation == 0:
			c.Text = "nothing is stored"
		case r.Vector.Set == "":
			c.Text = "it was no member of a set"
		default:
			e, err := g.servers.Ends(ctx, i, r.Vector)
			if err != nil {
				return nil, err
			}
			c.Text = fmt.Sprintf("server %d of %s; sessions: %d; the last of them ends in %v", r.Index+1,
				strings.Join(r.Names, ","), e.Sessions, e.Left.Round(1e6))
		}
		all = append(all, c)
	}
	return all, nil
}

// damaged reports whether a server answered something that is no record of a set.
func damaged(r *membership.Record) bool {
	var refused redisconn.ReplyError
	return r.RunID != "" || errors.As(r.Why, &refused) && !redisconn.Denied(refused)
}

// Reset makes all servers empty, and then makes a new set. Data of the old one is removed in small
// steps. Every step can be repeated.
func (g *Group) Reset(ctx context.Context) error {
	records := g.servers.Observe(ctx)
	var floor uint64
	for i := range records {
		if v := records[i].Vector; v.Set != "" {
			if e, err := g.servers.Ends(ctx, i, v); err == nil {
				floor = max(floor, e.Floor)
			}
		}
	}
	var errs []error
	for i := range g.conns {
		errs = append(errs, g.servers.Forget(ctx, i))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s := g.advance(ctx)
	if s.plan.Err != nil {
		return s.plan.Err
	}
	for i := range g.conns {
		errs = append(errs, g.servers.RaiseFloor(ctx, i, g.current(), floor))
	}
	for i := range g.conns {
		g.sweep(ctx, i)
	}
	return errors.Join(errs...)
}
