package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// BenchmarkAttachNamed attaches a session again that names all of its many claims.
func BenchmarkAttachNamed(b *testing.B) {
	t := New()
	const claims = 100_000
	s := lockkeeper.Session{ID: "ann", TTL: time.Hour}
	if _, err := t.Step(&Command{Op: Attach, Session: s}); err != nil {
		b.Fatal(err)
	}
	for id := range uint64(claims) {
		w := lockkeeper.Want{ID: id + 1,
			Targets: []lockkeeper.Target{{Path: lockkeeper.Path(fmt.Sprint("a/", id)), Mode: lockkeeper.ModeExclusive}}}
		if _, err := t.Step(&Command{Op: Claim, Key: lockkeeper.Key{Session: "ann", Epoch: 1}, Want: w}); err != nil {
			b.Fatal(err)
		}
		s.Named = append(s.Named, id+1)
	}
	for b.Loop() {
		s.Epoch = t.Counters().Epochs
		if _, err := t.Step(&Command{Op: Attach, Session: s}); err != nil {
			b.Fatal(err)
		}
	}
}
