package lockkeeper_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// shelf is the scheme of an engine that keeps claims in memory. Its URL is "shelf:NUMBER".
var shelf = lockkeeper.Scheme{
	Names:      []string{"shelf", "board"},
	Form:       "shelf:NUMBER",
	Guarantees: lockkeeper.Guarantees{Name: "shelf", Reach: lockkeeper.OnMachine},
	Misspelt:   []string{"rack"},
	Guess: func(url string) string {
		if strings.Trim(url, "0123456789") == "" && url != "" {
			return "shelf:" + url
		}
		return ""
	},
	Check: func(url string) error {
		if _, number, _ := strings.Cut(url, ":"); number == "" || strings.Trim(number, "0123456789") != "" {
			return lockkeeper.Invalid("engine %q has no number: write shelf:NUMBER", url)
		}
		return nil
	},
	Open: func(context.Context, string) (lockkeeper.Engine, error) { return memlock.New(), nil },
}

func init() { lockkeeper.Register(shelf) }

func TestOpenUsesTheRegisteredEngine(t *testing.T) {
	for _, url := range []string{"shelf:7", "board:7"} {
		e, err := lockkeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		client := lockkeeper.New(e)
		if err := client.Do(t.Context(), "db", func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesUnknownURLs(t *testing.T) {
	for url, words := range map[string]string{
		"shelf:x":                "write shelf:NUMBER",
		"Shelf:7":                "did you mean shelf:7?",
		"rack:7":                 "did you mean shelf:7?",
		"12":                     "did you mean shelf:12?",
		"":                       "there are shelf:NUMBER",
		"postgres://h/d":         "there are shelf:NUMBER", // its package is not imported
		"oracle://me:s3cret@h/d": `engine "oracle://me:xxxxx@h/d" is unknown`,
	} {
		_, err := lockkeeper.Open(t.Context(), url)
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), words) ||
			strings.Contains(err.Error(), "mem:") {
			t.Errorf("%q: %v, want ErrInvalid with %q and without mem:", url, err, words)
		}
		if checked := lockkeeper.CheckURL(url); checked == nil || checked.Error() != err.Error() {
			t.Errorf("%q: CheckURL says %v, Open says %v", url, checked, err)
		}
	}
}

func TestRegisterPanics(t *testing.T) {
	unnamed, unopened := shelf, shelf
	unnamed.Names = nil
	unopened.Names, unopened.Open = []string{"unopened"}, nil
	for name, s := range map[string]lockkeeper.Scheme{"twice": shelf, "unnamed": unnamed, "unopened": unopened} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Register did not panic", name)
				}
			}()
			lockkeeper.Register(s)
		}()
	}
	if lockkeeper.SchemeOf("unopened:") != nil || lockkeeper.SchemeOf("shelf") != nil {
		t.Error("a scheme is there that was not registered")
	}
}

// A program links the engines that it imports, and no database driver for the others.
func TestDependencies(t *testing.T) {
	const module = "github.com/lockkeeper/lockkeeper"
	for _, pkg := range []string{"", "/engine/memlock"} {
		list := exec.Command("go", "list", "-deps", module+pkg)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			inside, ours := strings.CutPrefix(name, module)
			first, _, _ := strings.Cut(name, "/")
			var wrong bool
			switch {
			case ours && pkg == "":
				wrong = !slices.Contains([]string{"", "/internal/roundtrip", "/internal/deadlines"}, inside)
			case ours:
				wrong = strings.HasPrefix(inside, "/engine/") && inside != pkg
			case strings.Contains(first, "."):
				wrong = !strings.HasPrefix(name, "golang.org/x/sys/")
			default:
				wrong = slices.Contains([]string{"database/sql", "net/http", "crypto/tls"}, name)
			}
			if wrong {
				t.Errorf("%s links %s: every program that imports it pays for that", module+pkg, name)
			}
		}
	}
}
