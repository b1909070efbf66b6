package sqllock

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// playObey runs obey with the database and the TTL of its arguments.
func playObey(args []string) error {
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	return obey(args[0], ttl)
}

// obey opens the locks, and does what each line of the input says until that ends:
//
//	lock PATH...  takes paths, however long that takes:  "granted FENCE"
//	release       gives back what was taken:             "released", or "lost WHY"
//	state         tells of what was taken:               "held", or "lost WHY"
func obey(url string, ttl time.Duration) error {
	ctx := context.Background()
	e, err := Open(ctx, url)
	if err != nil {
		return err
	}
	c := lockkeeper.New(e, lockkeeper.SessionTTL(ttl))
	fmt.Println("open")
	var h *lockkeeper.Hold
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "lock":
			var all []lockkeeper.Request
			for _, path := range words[1:] {
				all = append(all, lockkeeper.Exclusive(path))
			}
			if h, err = c.Acquire(ctx, all...); err != nil {
				fmt.Println("refused", strings.ReplaceAll(err.Error(), "\n", " "))
				continue
			}
			fmt.Println("granted", h.Fence())
		case "release":
			if err := h.Release(ctx); err != nil {
				fmt.Println("lost", strings.ReplaceAll(err.Error(), "\n", " "))
				continue
			}
			fmt.Println("released")
		case "state":
			if err := h.Err(); err != nil {
				fmt.Println("lost", strings.ReplaceAll(err.Error(), "\n", " "))
				continue
			}
			fmt.Println("held")
		}
	}
	return c.Close()
}

// process is another process of a test, which obeys.
type process struct {
	*roles.Process
	t testing.TB
}

// start starts a process that opens the locks of a database.
func start(t testing.TB, url string, ttl time.Duration) *process {
	t.Helper()
	return &process{roles.Start(t, "obey", url, ttl.String()), t}
}
