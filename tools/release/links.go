package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
)

// relativeLink is a link or a picture of Markdown that names a file of the repository.
var relativeLink = regexp.MustCompile(`!?\[[^\]]*\]\([a-zA-Z][a-zA-Z0-9_./-]*(#[^)\s]*)?\)`)

// linkTexts writes the texts that archives and packages have, with links that work there: they lead to the
// files of the same commit on the web, because most of those are in no archive.
func (r *release) linkTexts() error {
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.linked(name), r.absolute(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// linked is where the text of that name is, with links that work anywhere.
func (r *release) linked(name string) string { return filepath.Join(r.work, name) }

// absolute makes the relative links of a text absolute. Pictures need the address of the file alone.
func (r *release) absolute(text []byte) []byte {
	return relativeLink.ReplaceAllFunc(text, func(link []byte) []byte {
		before, to, _ := bytes.Cut(link, []byte("]("))
		show := "/blob/"
		if link[0] == '!' {
			show = "/raw/"
		}
		return []byte(string(before) + "](" + home + show + r.commit + "/" + string(to))
	})
}
