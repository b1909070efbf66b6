package readme

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine"
)

var write = flag.Bool("write", false, "write the matrix into README.md")

const file = "../../README.md"

// An engine that joins the map of engine.Open gets a URL here.
func urls(t *testing.T) []string {
	return []string{"mem:", "sqlite:" + filepath.Join(t.TempDir(), "locks.db")}
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
