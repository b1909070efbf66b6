package all_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/all"
)

func TestOpen(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for url, file := range map[string]string{
		"mem:":                           "",
		"sqlite:locks.db":                "locks.db",
		"sqlite:" + folder + "/a":        "a",
		"disk:new/journal":               "new/journal/journal.db",
		"sqlite://" + folder + "/b:c.db": "b:c.db",
	} {
		e, err := lockkeeper.Open(context.Background(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		c := lockkeeper.New(e)
		if err := c.Do(context.Background(), "db", func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if file == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if info, err := os.Stat("new"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory that was made: %v (%v), want it private", info.Mode(), err)
	}
}

// A file that is opened to look at it is not made, and nothing is locked in it.
func TestOpenToLook(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	if _, err := lockkeeper.Open(context.Background(), "sqlite:"+file+"?mode=ro"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want that it does not exist", err)
	}
	e, err := lockkeeper.Open(context.Background(), "sqlite:"+file)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	e, err = lockkeeper.Open(context.Background(), "sqlite:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	c := lockkeeper.New(e)
	defer c.Close()
	if _, err := c.Lock(context.Background(), "db"); !errors.Is(err, lockkeeper.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}

// Nothing is made of a URL that looks like a mistake.
func TestMistakesMakeNothing(t *testing.T) {
	folder := t.TempDir()
	for url, word := range map[string]string{
		"sqlite:" + folder + "/a.db?x=1":       "\"x=1\" is no parameter of a file",
		"sqlite:" + folder + "/new/locks.db":   "make it (mkdir -p " + folder + "/new)",
		"sqlite:" + folder + "/a.db?mode=ro&":  "no parameter",
		"sqlite:" + folder + "/a.db?":          "no parameter",
		"sqlite:" + folder + "/what?.db":       "a ? in its name can't be named",
		"sqlite:" + folder + "/n/e/w/locks.db": "or name another file",
	} {
		if _, err := lockkeeper.Open(context.Background(), url); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got %v, want %q", url, err, word)
		}
	}
	if names, err := os.ReadDir(folder); err != nil || len(names) > 0 {
		t.Errorf("there is %v (%v), want nothing", names, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for url, word := range map[string]string{
		"":         "sqlite:FILE",
		"locks.db": "did you mean sqlite:locks.db?",
		"oracle://localhost": "there are lk://HOST, lks://HOST, mysql://HOST/DATABASE, " +
			"postgres://HOST/DATABASE, redis://HOST,HOST,HOST, sqlite:FILE",
		"valkey://me:s3cret@h":    "did you mean redis://me:xxxxx@h?",
		"redis:h":                 "write redis://h",
		"redis://h,g":             "name 1, 3, 5 or 7",
		"http://127.0.0.1:7421":   "did you mean lk://127.0.0.1?",
		"https://locks.example/":  "did you mean lks://locks.example?",
		"127.0.0.1:7420":          "did you mean lk://127.0.0.1:7420?",
		"[::1]:7420":              "did you mean lk://[::1]:7420?",
		"localhost":               "did you mean lk://localhost?",
		"SQLite3:/x/y.db":         "did you mean sqlite:/x/y.db?",
		"pg://me:s3cret@h/d":      "did you mean postgres://me:xxxxx@h/d?",
		"/var/lib/x:y.db":         "did you mean sqlite:/var/lib/x:y.db?",
		"mem:x":                   "nothing follows",
		"sqlite:":                 "names no file",
		"sqlite://host/db":        "host",
		"disk:":                   "names no directory",
		"disk://host/db":          "host",
		"lk:host":                 "lk://HOST",
		"lks://":                  "lks://HOST",
		"postgres:locks":          "postgres://HOST/DATABASE",
		"postgresql://h/d?pool=1": "from 2 to 100",
		"mysql://h":               "names no database",
		"mariadb://h":             "names no database",
		"oracle://me:s3cret@h/d":  "oracle://me:xxxxx@h/d",
		"lks://host?insecure=1":   "not known",
		"lk://host?ca=ca.pem":     "write lks://",
		"sqlite:" + os.TempDir():  "directory",
	} {
		_, err := lockkeeper.Open(context.Background(), url)
		if checked := lockkeeper.CheckURL(url); word != "directory" && (checked == nil || checked.Error() != err.Error()) {
			t.Errorf("%q: Check says %v, Open says %v", url, checked, err)
		}
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: got %v, want ErrInvalid and %q", url, err, word)
		}
	}
}

// What a scheme states before its engine is open, the engine states too.
func TestGuaranteesBeforeOpening(t *testing.T) {
	for name, url := range map[string]string{
		"mem":    "mem:",
		"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "locks.db"),
		"disk":   "disk:" + filepath.Join(t.TempDir(), "disk"),
	} {
		e, err := lockkeeper.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		g := e.Guarantees()
		g.Epoch = ""
		if stated := lockkeeper.SchemeOf(url).Guarantees; g != stated || stated.Name != name {
			t.Errorf("%s: the engine states %+v, its scheme %+v", url, g, stated)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The example of a scheme is a URL that the scheme accepts, and its page of documentation is there.
func TestSchemesAreComplete(t *testing.T) {
	for _, s := range lockkeeper.Schemes() {
		if err := s.Check(s.Example); err != nil {
			t.Errorf("%s: %v", s.Name(), err)
		}
		if s.Form == "" || s.About == "" || s.Guarantees.Name == "" || s.Guarantees.Reach == "" {
			t.Errorf("%s: form %q, about %q, guarantees %+v", s.Name(), s.Form, s.About, s.Guarantees)
		}
		if _, err := os.Stat(filepath.Join("../..", s.Page)); err != nil || s.Page == "" {
			t.Errorf("%s: its page: %v", s.Name(), err)
		}
	}
}
