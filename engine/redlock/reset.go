package redlock

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redislink"
)

// Reset starts a new set on the servers that url names: all locks are forgotten. It is for a set of
// which a majority has lost its data, and for servers that shall belong to another set. All servers
// must answer. It returns what is lost, in lines for people. Unless sure is set, it changes nothing.
//
// A program that holds a lock of the old set learns that it lost it at its next renewal, which is
// within a third of its TTL, or at its deadline. Until then it and a holder of the new set can hold the
// same lock. Fences of the new set are higher than those of the old one, as far as clocks do not step
// back.
func Reset(ctx context.Context, url string, sure bool) (lost string, err error) {
	a, err := parse(url)
	if err != nil {
		return "", err
	}
	servers, err := a.servers()
	if err != nil {
		return "", err
	}
	group := redislink.New(servers, a.prefix)
	defer group.Close()
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	if err := group.Inspect(ctx); err != nil {
		return "", refusal(err)
	}
	records, err := group.Contents(ctx)
	if err != nil {
		return "", refusal(err)
	}
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%s: %s\n", r.Address, r.Text)
	}
	if !sure {
		return b.String(), nil
	}
	if err := group.Reset(ctx); err != nil {
		return b.String(), &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the reset did not reach all servers: " +
			"repeat it", Cause: err}
	}
	return b.String(), nil
}
