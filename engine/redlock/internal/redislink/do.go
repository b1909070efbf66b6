package redislink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/script"
)

// maxTries bounds how often Do repeats requests that the server refused without executing them: for
// a script that it lacks, or for the marker.
const maxTries = 4

// Do implements link.Link. A pipeline has a script call for each request, or for several. Its connection
// leads to the process under which the link is up.
func (l *redisLink) Do(ctx context.Context, requests []quorum.Request) ([]quorum.Reply, error) {
	replies := make([]quorum.Reply, len(requests))
	left := make([]int, len(requests)) // indexes of the requests without a reply
	for i := range left {
		left[i] = i
	}
	sent := false
	for range maxTries {
		var err error
		left, err = l.try(ctx, requests, left, replies, &sent)
		if err != nil && !sent {
			return nil, fmt.Errorf("%w: %w", link.ErrUnsent, err)
		}
		if err != nil {
			return nil, err
		}
		if len(left) == 0 {
			return replies, nil
		}
	}
	err := fmt.Errorf("%w: its marker changes all the time", link.ErrDown)
	l.fail(err)
	return nil, err
}

// try sends the requests that are left, and returns those that the server refused without
// executing them. sent is set when the server may have executed one.
func (l *redisLink) try(ctx context.Context, requests []quorum.Request, left []int, replies []quorum.Reply,
	sent *bool) ([]int, error) {
	v, up, err := l.joined()
	if err != nil {
		return nil, err
	}
	commands, groups, err := l.commands(v, requests, left)
	if err != nil {
		return nil, err // a fault of the caller: nothing is wrong with the server
	}
	raw, err := up.conn.Pipeline(ctx, commands)
	if err != nil {
		*sent = *sent || !errors.Is(err, redisconn.ErrUnsent)
		l.fail(err)
		return nil, err
	}
	var again []int
	for k, group := range groups {
		refused, isError := raw[k].(error)
		answers, _ := raw[k].([]any)
		if !isError && len(answers) != len(group) {
			*sent = true
			err := fmt.Errorf("the Redis server answers %.80v to %d requests", raw[k], len(group))
			l.fail(err)
			return nil, err
		}
		var same quorum.Reply
		if isError {
			if err := l.refused(ctx, v, up, refused, &same); err != nil {
				*sent = true
				return nil, err
			}
		}
		for j, i := range group {
			replies[i] = same
			if !isError {
				*sent = true
				err = l.take(ctx, v, up, answers[j], requests[i].Kind, &replies[i])
			}
			if err != nil {
				return nil, err
			}
			if replies[i].Outcome == 0 {
				again = append(again, i)
			}
		}
	}
	return again, nil
}

// take sets the reply of a request from what the server answered to it: the text of a reply, or an error.
func (l *redisLink) take(ctx context.Context, v membership.Vector, up process, answer any, kind quorum.Kind,
	reply *quorum.Reply) (err error) {
	if refused, ok := answer.(error); ok {
		return l.refused(ctx, v, up, refused, reply)
	}
	if *reply, err = script.Decode(kind, answer); err != nil {
		l.fail(err)
	}
	return err
}

// joined returns the vector and the process under which the link is up.
func (l *redisLink) joined() (v membership.Vector, up process, err error) {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.up:
		return l.group.vector, l.process, nil
	case l.lost:
		return v, up, link.ErrLost
	}
	return v, up, link.ErrDown
}

// commands returns the pipeline for the requests that are left, and the requests of each command.
func (l *redisLink) commands(v membership.Vector, requests []quorum.Request, left []int) (commands [][]any,
	groups [][]int, err error) {
	set := script.Set{
		SetKey:  l.group.servers.Key(),
		Marker:  v.String(),
		Data:    v.Data(l.group.prefix, l.index),
		Channel: l.group.prefix,
	}
	var batch []quorum.Request
	for len(left) > 0 {
		n := 1
		batch = append(batch[:0], requests[left[0]])
		for n < len(left) && n < script.MaxBatch && script.Together(&batch[0], &requests[left[n]]) {
			batch = append(batch, requests[left[n]])
			n++
		}
		call, err := script.Encode(set, batch...)
		if err != nil {
			return nil, nil, err
		}
		command := make([]any, 0, 3+len(call.Keys)+len(call.Args))
		command = append(command, "EVALSHA", call.Script.SHA, len(call.Keys))
		for _, key := range call.Keys {
			command = append(command, key)
		}
		commands, groups = append(commands, append(command, call.Args...)), append(groups, left[:n])
		left = left[n:]
	}
	return commands, groups, nil
}

// refused deals with the error that a script answered. It returns nil if the request can be
// repeated, or if it has set a reply.
func (l *redisLink) refused(ctx context.Context, v membership.Vector, up process, refusal error,
	reply *quorum.Reply) error {
	if strings.HasPrefix(refusal.Error(), "NOSCRIPT") {
		if err := load(ctx, up.conn); err != nil {
			l.fail(err)
			return err
		}
		return nil
	}
	meaning := script.Refusal(refusal)
	var other *script.OtherSetError
	switch {
	case errors.As(meaning, &other):
		return l.otherMarker(ctx, v, up.run, other.Marker)
	case errors.Is(meaning, script.ErrGone):
		l.lose(fmt.Errorf("%w: its marker is gone", link.ErrLost))
		return link.ErrLost
	case errors.Is(meaning, script.ErrDamaged):
		// Somebody wrote to the keys. Only what is about these keys suffers.
		*reply = quorum.Reply{Outcome: quorum.Full, Text: meaning.Error()}
		return nil
	}
	l.fail(refusal)
	return refusal
}

// otherMarker brings the marker of the server and ours together: the higher generations win.
func (l *redisLink) otherMarker(ctx context.Context, v membership.Vector, run, marker string) error {
	other, err := membership.ParseVector(marker)
	if err != nil || other.Set != v.Set || len(other.Generations) != len(v.Generations) {
		l.lose(fmt.Errorf("%w: it belongs to another set now", link.ErrLost))
		return link.ErrLost
	}
	l.group.raise(other)
	now := l.group.current()
	if now.Set != v.Set {
		return link.ErrLost
	}
	if !now.Equal(other) {
		if err := l.group.servers.Merge(ctx, l.index, now, run); err != nil {
			l.fail(err)
			return err
		}
	}
	return nil
}
