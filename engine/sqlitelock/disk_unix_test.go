//go:build unix

package sqlitelock

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
)

func init() { parts["cramped"] = playCramped }

// playCramped may write no file beyond a size, until it fails.
func playCramped(args []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	e, err := Open(context.Background(), args[0])
	if err != nil {
		return err
	}
	granted, err := cramped(e, func() (func() error, error) {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return nil, err
		}
		most := limit.Cur
		limit.Cur = 256 << 10
		return func() error {
			limit.Cur = most
			return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
		}, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	})
	fmt.Println("cramped", granted)
	return err
}
