package redlock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

func TestURLNamesServers(t *testing.T) {
	t.Setenv(passwordVariable, "from-env")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from-file\r\nrest"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string][]string{ // address, user, password
		"redis://h":                             {"h:6379", "", "from-env"},
		"redis://[::1]:7000/3":                  {"[::1]:7000", "", "from-env"},
		"redis://me:p%40ss@a,b:7,c":             {"a:6379", "me", "p@ss", "b:7", "me", "p@ss", "c:6379", "me", "p@ss"},
		"redis://:x@a,you:y@b,c":                {"a:6379", "", "x", "b:6379", "you", "y", "c:6379", "", "x"},
		"redis://me@h?password_file=" + file:    {"h:6379", "me", "from-file"},
		"rediss://me@h?prefix=a:&create=off":    {"h:6379", "me", "from-env"},
		"redis://me:a?b@h":                      nil, // a ? in a password is written %3F
		"redis://me:p@h?password_file=" + file:  nil,
		"redis://h?password_file=" + file + "x": nil, // found out when it is opened
	} {
		a, err := parse(url)
		if want == nil && err == nil {
			_, err = a.options()
		}
		if want == nil {
			if !errors.Is(err, lockkeeper.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", url, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		options, err := a.options()
		var got []string
		for _, o := range options {
			got = append(got, o.Addr, o.Username, o.Password)
		}
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %q, %v, want %q", url, got, err, want)
		}
	}
}

// Every fault of a URL is named at once, and no password.
func TestURLFaultsAreNamedTogether(t *testing.T) {
	for url, words := range map[string][]string{
		"redis:h":                      {"write redis://h"},
		"rediss:":                      {"write rediss://HOST"},
		"redis://":                     {"HOST,HOST,HOST"},
		"redis://a,b":                  {"2 servers: name 1, 3, 5 or 7", "majority of 2 is 2"},
		"redis://a,b,c,d,e,f,g,h":      {"8 servers"},
		"redis://a,a:6379,b":           {"a:6379 is there twice"},
		"redis://a:x,b,c/y?z=1&ca=f":   {"port of server 1", "database of server 3", `parameter "z"`, "write rediss://"},
		"redis://u:s3cret@a:x,:s3cr@b": {"port of server 1", "2 servers"},
		"rediss://h?cert=f":            {"cert and key belong together"},
		"redis://h?password=s3cret":    {"password_file=FILE"},
		"redis://h?prefix=*":           {"prefix has 1 to 64"},
	} {
		err := Check(url)
		if !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", url, err)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q", url, err, word)
			}
		}
		if strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%s: the message has the password: %v", url, err)
		}
	}
}

func TestRedactedURLHasNoPassword(t *testing.T) {
	for _, url := range []string{
		"redis://:s3cret@a,b,c", "redis://a,u:s3cret@b:1/2,c", "redis://u:s3cret@a:1,v:s3cret@b,:s3cret@c?prefix=x:",
		"rediss://a:7000,:s3cret@b", "redis://u:s3cret:s3cret@a", "redis://a?password=s3cret",
	} {
		if shown := lockkeeper.RedactURL(url); strings.Contains(shown, "s3cret") || !strings.HasPrefix(shown, "redis") {
			t.Errorf("%s is shown as %s", url, shown)
		}
	}
}
