package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	_ "github.com/lockkeeper/lockkeeper/fence"
	_ "github.com/lockkeeper/lockkeeper/semaphore" // so that this runs again when what the snippets use changes
)

// surroundings is what the Go snippets of documents leave out: what a reader has.
const surroundings = `package snippets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	"github.com/lockkeeper/lockkeeper/fence"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

var (
	_          = semaphore.New[string]
	_          = lockkeeper.Open
	_          = errors.Is
	_          = fence.Handler
	_          = fmt.Fprintln
	_          = http.Handle
	_          = log.Print
	_          = time.Second
	machines   = 2
	errTooBusy = errors.New("too busy")
	client     *lockkeeper.Client
	hold       *lockkeeper.Hold
	db         *sql.DB
	body       string
)

func runTest(context.Context) error { return nil }
`

// TestSnippets compiles the Go of documents, each block as the body of a function.
func TestSnippets(t *testing.T) {
	about := []string{"../../README.md", "../../docs/go.md"} // they are about Go; other pages may have some
	pages := slices.Clone(about)
	for _, folder := range []string{"coming-from", "recipes"} {
		found, err := filepath.Glob("../../docs/" + folder + "/*.md")
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s has no pages; %v", folder, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		t.Run(strings.TrimPrefix(page, "../../"), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			var source strings.Builder
			source.WriteString(surroundings)
			blocks := strings.Split(string(text), "```go\n")[1:]
			if len(blocks) == 0 {
				if slices.Contains(about, page) {
					t.Fatal("there is no Go in it")
				}
				return
			}
			for i, block := range blocks {
				body, _, _ := strings.Cut(block, "```")
				fmt.Fprintf(&source, "\nfunc snippet%d(ctx context.Context) (err error) {\n%s\n", i, body)
				if !strings.Contains(body, "\nreturn ") {
					source.WriteString("\treturn err\n")
				}
				source.WriteString("}\n")
			}
			compile(t, source.String())
		})
	}
}

// compile builds a package that is not in the tree.
func compile(t *testing.T, source string) {
	t.Helper()
	real := filepath.Join(t.TempDir(), "snippets.go")
	if err := os.WriteFile(real, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "snippets",
		"snippets.go"): real}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", list, "./snippets").CombinedOutput(); err != nil {
		t.Errorf("the Go does not compile: %v\n%s\n%s", err, out, source)
	}
}
