package soak

import (
	"context"
	"os"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// leaky is an engine that leaks something with each claim.
type leaky struct {
	lockkeeper.Engine
	leak func()
}

func (l *leaky) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	l.leak()
	return l.Engine.Claim(ctx, k, w)
}

// leaked keeps what a leaky engine has leaked.
var leaked struct {
	sync.Mutex
	memory [][]byte
	files  []*os.File
}

// withLeak returns e with a leak: of a goroutine, of 64 KB of memory, or of a file. Without one it
// returns e itself.
func withLeak(e lockkeeper.Engine, what string) lockkeeper.Engine {
	never := make(chan struct{})
	switch what {
	case "goroutine":
		return &leaky{e, func() { go func() { <-never }() }}
	case "memory":
		return &leaky{e, func() {
			leaked.Lock()
			defer leaked.Unlock()
			leaked.memory = append(leaked.memory, make([]byte, 64<<10))
		}}
	case "file":
		return &leaky{e, func() {
			leaked.Lock()
			defer leaked.Unlock()
			if f, err := os.Open(os.DevNull); err == nil {
				leaked.files = append(leaked.files, f)
			}
		}}
	}
	return e
}
