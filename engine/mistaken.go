package engine

import (
	"net"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
)

// otherNames maps schemes that people write by mistake to the schemes of engines.
var otherNames = map[string]string{
	"http": "lk", "https": "lks", "tcp": "lk", "tls": "lks", "lkss": "lks", "lockkeeper": "lk", "server": "lk",
	"sqlite3": "sqlite", "sqlight": "sqlite", "file": "sqlite",
	"pg": "postgres", "pgsql": "postgres", "pgx": "postgres", "postgress": "postgres", "postgre": "postgres",
	"maria": "mariadb", "mysqls": "mysql", "memory": "mem", "journal": "disk",
}

// unknown returns the error of a URL that names no engine. It lists the engines, and the one that
// was probably meant.
func unknown(url string) error {
	shown := sqllock.Redacted(url)
	if meant := likely(shown); meant != "" {
		return lockkeeper.Invalid("engine %q is none: did you mean %s?", shown, meant)
	}
	var forms []string
	for _, s := range schemes {
		if !s.alone && s.form != "" {
			forms = append(forms, s.form)
		}
	}
	return lockkeeper.Invalid("engine %q is none: there are %s", shown, strings.Join(forms, ", "))
}

// likely returns the URL that was probably meant; "" if none is likely.
func likely(url string) string {
	name, rest, found := strings.Cut(url, ":")
	lower := strings.ToLower(name)
	if s, known := otherNames[lower]; found && known {
		name, lower = s, s
	}
	for _, s := range schemes {
		if !found || s.name != lower {
			continue
		}
		if name == "lk" || name == "lks" { // of an address of HTTP, only the host is right for lk
			host, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
			if alone, _, err := net.SplitHostPort(host); err == nil && strings.HasPrefix(strings.ToLower(url), "http") {
				host = alone
			}
			rest = "//" + host
		}
		return s.name + ":" + rest
	}
	switch _, port, err := net.SplitHostPort(url); {
	case err == nil && isPort(port) && !strings.Contains(url, "/"):
		return "lk://" + url
	case strings.Contains(url, "://"), found && !strings.Contains(name, "/"), url == "":
		return ""
	case url == "localhost":
		return "lk://localhost"
	}
	return "sqlite:" + url
}

func isPort(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
