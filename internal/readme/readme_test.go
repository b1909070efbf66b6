package readme

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

var write = flag.Bool("write", false, "write the matrix into README.md")

const file = "../../README.md"

// An engine that joins the map of engine.Open gets a URL here, or below if opening it
// takes more than this test has.
func urls(t *testing.T) []string {
	return []string{
		"mem:", "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), "disk:" + filepath.Join(t.TempDir(), "disk"),
		"lk://" + serve(t),
	}
}

// serve starts a server as "lk serve" does, and returns its address.
func serve(t *testing.T) string {
	e, err := engine.New(t.Context(), "disk:"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(e, server.Options{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		serving.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// unopened are the guarantees of engines that are told without a database.
func unopened(t *testing.T) (all []lockkeeper.Guarantees) {
	for _, url := range []string{"postgres://localhost/app", "mysql://localhost/app"} {
		g, err := sqllock.Guarantees(url)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

func TestMatrix(t *testing.T) {
	var engines []lockkeeper.Guarantees
	for _, url := range urls(t) {
		client, err := engine.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, client.Guarantees())
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	engines = slices.Insert(engines, len(engines)-1, unopened(t)...) // before the server
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := replace(string(text), Matrix(engines))
	if err != nil {
		t.Fatal(err)
	}
	if want == string(text) {
		return
	}
	if !*write {
		t.Fatal("the matrix of engines in README.md is not what the engines declare: run make generate")
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
