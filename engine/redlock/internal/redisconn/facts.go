package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Facts are what a server states about itself.
type Facts struct {
	RunID    string
	Version  string // "7.0.15"; of Valkey the version of Redis that it is compatible with
	Mode     string // "standalone", "cluster" or "sentinel"
	Role     string // "master" or "slave"
	Eviction string // maxmemory-policy
	Limited  bool   // it has a maxmemory
	AOF      bool   // it writes changes to an append-only file
	Rewrites bool   // a rewrite of that file is under way: it may be the first one
	Fsync    string // appendfsync; "" if the user may not read the configuration
	Pauses   bool   // no-appendfsync-on-rewrite: it does not wait for the disk during a rewrite
	Clock    time.Time
	Trip     time.Duration // how long the answer took, of which Clock is somewhere in the middle
}

// Durable reports whether the server writes every change to disk before it answers, and has on disk
// what it was told before.
func (f *Facts) Durable() bool { return f.Fsync != "" && !f.Loses() && !f.Rewrites }

// Loses reports whether the server is known to answer before it has written a change to disk.
func (f *Facts) Loses() bool { return !f.AOF || f.Fsync != "" && f.Fsync != "always" || f.Pauses }

// Inspect asks a server for its facts.
func Inspect(ctx context.Context, s Server) (Facts, error) {
	began := time.Now()
	replies, err := s.Pipeline(ctx, [][]any{
		{"TIME"}, {"INFO", "server"}, {"INFO", "replication"}, {"INFO", "persistence"}, {"INFO", "memory"},
		{"CONFIG", "GET", "*appendfsync*"},
	})
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Trip: time.Since(began)}
	values := make(map[string]string)
	for _, reply := range replies[1:5] {
		if err, refused := reply.(error); refused {
			return Facts{}, err
		}
		text, _ := reply.(string)
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				values[name] = value
			}
		}
	}
	if f.Clock, err = clockOf(replies[0]); err != nil {
		return Facts{}, err
	}
	f.RunID, f.Version, f.Mode = values["run_id"], values["redis_version"], values["redis_mode"]
	f.Role, f.Eviction = values["role"], values["maxmemory_policy"]
	f.Limited = values["maxmemory"] != "" && values["maxmemory"] != "0"
	f.AOF = values["aof_enabled"] == "1"
	f.Rewrites = values["aof_rewrite_in_progress"] != "0" || values["aof_rewrite_scheduled"] != "0"
	if settings, ok := replies[5].([]any); ok {
		for i := 0; i+1 < len(settings); i += 2 {
			switch settings[i] {
			case "appendfsync":
				f.Fsync, _ = settings[i+1].(string)
			case "no-appendfsync-on-rewrite":
				f.Pauses = settings[i+1] != "no"
			}
		}
	}
	if f.RunID == "" {
		return Facts{}, errors.New("it is no Redis server: INFO states no run_id")
	}
	return f, nil
}

func clockOf(reply any) (time.Time, error) {
	if err, refused := reply.(error); refused {
		return time.Time{}, err
	}
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		seconds, err1 := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 43)
		micros, err2 := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 21)
		if err1 == nil && err2 == nil {
			return time.Unix(seconds, micros*1000), nil
		}
	}
	return time.Time{}, fmt.Errorf("it is no Redis server: TIME answers %.80v", reply)
}

// ErrUnfit: the server can't keep locks, for a reason that waiting does not change.
var ErrUnfit = errors.New("this server can't keep locks")

// Refusal returns an ErrUnfit with the reason why a server with these facts can't be used; nil if it
// can.
func (f *Facts) Refusal() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
	}
	switch {
	case f.Mode == "cluster":
		return refuse("it is a node of a Redis Cluster, which copies keys to replicas without waiting: after a failover " +
			"a lock could be held twice. Name independent servers")
	case f.Mode == "sentinel":
		return refuse("it is a Sentinel, which keeps no data. Name independent servers, and not what Sentinel watches: " +
			"after a failover a lock could be held twice")
	case f.Role != "master":
		return refuse("it is a replica, which can only be read. Name independent servers")
	case !atLeast(f.Version, 6, 2):
		return refuse("it is Redis %s: 6.2 or later is needed", f.Version)
	case f.Limited && strings.HasPrefix(f.Eviction, "allkeys-"):
		return refuse("its maxmemory-policy %s may remove locks when memory is short: set noeviction, or volatile-lru, "+
			"which leaves keys without an expiry alone", f.Eviction)
	}
	return nil
}

// atLeast compares a version such as "6.2.11".
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// Denied reports whether err is a refusal of Redis for want of a right.
func Denied(err error) bool {
	text := err.Error()
	for _, mark := range []string{
		"NOPERM", "NOAUTH", "WRONGPASS", "invalid username-password", "can't run this command",
		"without any password configured", "can't access at least one of the keys", "no permissions",
	} {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return false
}
