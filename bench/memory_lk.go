package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
)

// Occupations that targets are about.
const (
	heldOccupation   = "held, each on a path of its own"
	behindOccupation = "waiting, each behind another holder"
	lineOccupation   = "waiting, all for one path"

	// What has ended is remembered for a TTL (R16), so a busy server has more of
	// these than of all others.
	endedOccupation = "held and released within the last TTL"
)

// inUse asks the server.
func (p *lkPeer) inUse(context.Context) (uint64, error) {
	if _, err := fmt.Fprintln(p.process.in, "memory"); err != nil {
		return 0, err
	}
	line, err := p.process.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(line), 10, 64)
}

func (p *lkPeer) occupations() []occupation {
	if p.name != oursName {
		return nil // the table is the same
	}
	return []occupation{
		{heldOccupation, p.occupyHeld},
		{behindOccupation, p.occupyBehind},
		{lineOccupation, p.occupyLine},
		{endedOccupation, p.occupyEnded},
	}
}

func (p *lkPeer) occupyHeld(ctx context.Context, n int, counted func(func() error) error) error {
	return p.withSessions(ctx, func(holder, _ *lkSession) error {
		return counted(func() error { return holder.occupy(ctx, n, countedPath, lockkeeper.Held) })
	})
}

func (p *lkPeer) occupyBehind(ctx context.Context, n int, counted func(func() error) error) error {
	return p.withSessions(ctx, func(holder, waiter *lkSession) error {
		if err := holder.occupy(ctx, n, countedPath, lockkeeper.Held); err != nil {
			return err
		}
		return counted(func() error { return waiter.occupy(ctx, n, countedPath, lockkeeper.Waiting) })
	})
}

func (p *lkPeer) occupyLine(ctx context.Context, n int, counted func(func() error) error) error {
	one := func(int) string { return countedPath(0) }
	return p.withSessions(ctx, func(holder, waiter *lkSession) error {
		if err := holder.occupy(ctx, 1, one, lockkeeper.Held); err != nil {
			return err
		}
		return counted(func() error { return waiter.occupy(ctx, n, one, lockkeeper.Waiting) })
	})
}

func (p *lkPeer) occupyEnded(ctx context.Context, n int, counted func(func() error) error) error {
	return p.withSessions(ctx, func(holder, _ *lkSession) error {
		return counted(func() error {
			if err := holder.occupy(ctx, n, countedPath, lockkeeper.Held); err != nil {
				return err
			}
			return fill(n, func(i int) error {
				return holder.engine.End(ctx, holder.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: uint64(i) + 1})
			})
		})
	})
}

// withSessions opens two sessions, each on a connection of its own.
func (p *lkPeer) withSessions(ctx context.Context, do func(holder, waiter *lkSession) error) error {
	var both []*lkSession
	for _, id := range []string{"bench-holder", "bench-waiter"} {
		engine, err := remote.Open(ctx, p.addr())
		if err != nil {
			return err
		}
		defer engine.Close()
		s, err := openSession(ctx, engine, id)
		if err != nil {
			return err
		}
		defer s.close()
		both = append(both, s)
	}
	return do(both[0], both[1])
}

// occupy makes n claims, which must come to the state.
func (s *lkSession) occupy(ctx context.Context, n int, path func(int) string, state lockkeeper.State) error {
	return fill(n, func(i int) error {
		w := wantOf(uint64(i)+1, path(i))
		w.Label = countedLabel(i)
		status, err := s.engine.Claim(ctx, s.key, w)
		if err == nil && status.State != state {
			err = fmt.Errorf("%s is %s instead of %s", path(i), status.State, state)
		}
		return err
	})
}
