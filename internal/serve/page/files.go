package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// Index is the name of the file that a browser loads first.
const Index = "index.html"

// A File is one file of the page.
type File struct {
	Type string // its Content-Type
	Tag  string // its ETag: a hash of the text, with quotation marks
	Text []byte // read only
}

// files returns all files by name.
var files = sync.OnceValue(load)

func load() map[string]*File {
	all := make(map[string]*File)
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	for _, entry := range entries {
		text, err := static.ReadFile("static/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		all[entry.Name()] = &File{
			Type: contentType(entry.Name()), Tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, Text: text,
		}
	}
	return all
}

// contentType does not ask package mime, whose answer depends on the machine.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// Find returns the file of that name; false if there is none.
func Find(name string) (*File, bool) {
	f, ok := files()[name]
	return f, ok
}

// policy is the Content-Security-Policy of the page. It permits the page's own files and its own
// server, and nothing else: no inline script or style, no frame, no form that a browser submits
// itself, and no text that is parsed as HTML or as a script (trusted types).
var policy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
	"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
	"trusted-types 'none'",
}, "; ")

// Confine sets the headers that confine a page in a browser.
func Confine(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
