package readme

import (
	"flag"
	"os"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/all"
)

var write = flag.Bool("write", false, "write the matrix into docs/engines/README.md")

func TestMatrix(t *testing.T) {
	var engines []lockkeeper.Guarantees
	for _, s := range lockkeeper.Schemes() {
		if !s.Server { // a server promises what the engine behind it does
			engines = append(engines, s.Guarantees)
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
		t.Fatal("the matrix of engines in docs/engines/README.md is not what the engines declare: run make generate")
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
