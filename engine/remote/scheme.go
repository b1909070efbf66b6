package remote

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

const (
	plainPrefix  = "lk://"
	securePrefix = "lks://"
)

// URL returns the URL of the server at an address, which is reached over TLS if secure is set.
func URL(address string, secure bool) string {
	if secure {
		return securePrefix + address
	}
	return plainPrefix + address
}

var _ lockkeeper.ServerClient = (*Engine)(nil)

func init() {
	plain := lockkeeper.Scheme{
		Names:   []string{"lk"},
		Form:    "lk://HOST",
		Example: "lk://127.0.0.1:7420",
		About:   "a server",
		Help: "locks of a server (lk serve), for all machines that reach it. The port follows a colon, unless it is " +
			"7420; several servers that share one engine are written lk://HOST,HOST. After ? can follow token=FILE",
		Page:          "docs/engines/remote.md",
		Guarantees:    lockkeeper.Guarantees{Name: "lk", Reach: lockkeeper.OnNetwork},
		Server:        true,
		FileParameter: func(string, string) bool { return true },
		Variables:     []string{TokenVariable, TokenFileVariable},
		Misspelt:      []string{"tcp", "lockkeeper", "server"},
		Guess:         guessServer,
		Check:         checkURL,
		Open:          openURL,
		Examine:       examineToken,
	}
	secure := plain
	secure.Names = []string{"lks"}
	secure.Form = "lks://HOST"
	secure.Example = "lks://locks.example.com"
	secure.About = "a server, over TLS"
	secure.Help = "the same, over TLS. After ? and between & can follow ca=FILE, cert=FILE, key=FILE and token=FILE"
	secure.Misspelt = []string{"tls", "lkss"}
	secure.Guess = guessSecureServer
	lockkeeper.Register(plain)
	lockkeeper.Register(secure)
}

func checkURL(url string) error {
	scheme, rest, _ := strings.Cut(url, ":")
	if addresses, found := strings.CutPrefix(rest, "//"); !found || addresses == "" {
		return lockkeeper.Invalid("engine %q names no server: write %[2]s://HOST or %[2]s://HOST:PORT, such as "+
			"%[2]s://127.0.0.1:7420", url, scheme)
	}
	return Check(url)
}

func openURL(ctx context.Context, url string) (lockkeeper.Engine, error) {
	e, err := Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// guessServer suggests the lk:// URL for an address without a scheme, or for an http:// URL: a
// Lockkeeper server may run on the same host.
func guessServer(url string) string {
	if host := webHost(url, "http"); host != "" {
		return plainPrefix + host
	}
	_, port, err := net.SplitHostPort(url)
	if url == "localhost" || err == nil && port != "" && strings.Trim(port, "0123456789") == "" &&
		!strings.Contains(url, "/") {
		return plainPrefix + url
	}
	return ""
}

func guessSecureServer(url string) string {
	if host := webHost(url, "https"); host != "" {
		return securePrefix + host
	}
	return ""
}

// webHost returns the host of a URL with the scheme http or https, without port and path, because a
// server listens for HTTP and for its own protocol on different ports. It returns "" for other
// URLs.
func webHost(url, scheme string) string {
	name, rest, _ := strings.Cut(url, "://")
	if !strings.EqualFold(name, scheme) {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	if alone, _, err := net.SplitHostPort(host); err == nil {
		return alone
	}
	return host
}

// examineToken reports whether other users may read the token file. It ignores a file that can't be
// read, because Open reports that.
func examineToken(engine string) []lockkeeper.Finding {
	file := ""
	if os.Getenv(TokenVariable) == "" {
		file = os.Getenv(TokenFileVariable)
	}
	_, query, _ := strings.Cut(engine, "?")
	for part := range strings.SplitSeq(query, "&") {
		if named, is := strings.CutPrefix(part, "token="); is {
			file, _ = url.PathUnescape(named)
		}
	}
	info, err := os.Stat(file)
	if file == "" || err != nil || runtime.GOOS == "windows" {
		return nil
	}
	if info.Mode().Perm()&0o077 == 0 {
		return []lockkeeper.Finding{{Check: "token", Grade: lockkeeper.Fine, Detail: file + " is for its owner alone"}}
	}
	return []lockkeeper.Finding{{
		Check:  "token",
		Grade:  lockkeeper.Doubtful,
		Detail: fmt.Sprintf("%s is open to others (%s): anybody who reads it can act as you", file, info.Mode().Perm()),
		Remedy: "chmod go-rwx " + file,
	}}
}
