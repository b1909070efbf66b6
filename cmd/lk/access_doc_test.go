package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first try in docs/access.md can be typed on one machine: its commands are there, no
// secret is for others to read, and the URL names what the commands before have made.
func TestFirstTryOfAccess(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(block, "\\\n", "")
	made := map[string]bool{"lk-ca/ca.pem": true, "lk-ca/server.pem": true, "lk-ca/server-key.pem": true} // by lk ca
	verbs := ""
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, " #")
		if url, found := strings.CutPrefix(line, "export "+engineVariable+"="); found {
			host, query, _ := strings.Cut(strings.Trim(strings.TrimSpace(url), `"`), "?")
			if host != "lks://localhost:7420" {
				t.Errorf("%s: not this machine", host)
			}
			for part := range strings.SplitSeq(query, "&") {
				if _, file, _ := strings.Cut(part, "="); !strings.HasPrefix(file, "$PWD/") ||
					!made[strings.TrimPrefix(file, "$PWD/")] {
					t.Errorf("%s: no absolute file that was made before", part)
				}
			}
			continue
		}
		line = strings.Trim(strings.TrimSpace(line), "()")
		command, file, secret := strings.Cut(line, " >")
		if secret {
			made[file], made["tokens"] = true, true
			if !strings.HasPrefix(command, "umask 077; ") {
				t.Errorf("%s: others may read it", line)
			}
		}
		words := strings.Fields(strings.TrimPrefix(command, "umask 077; "))
		verb, rest, err := quietApp().newRoot("").Find(words[1:])
		if err == nil {
			err = verb.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		verbs += verb.Name() + " "
		for _, flag := range []string{"tls-cert", "tls-key", "client-ca", "tokens"} {
			if f := verb.Flags().Lookup(flag); f != nil && verb.Name() == "serve" && !made[f.Value.String()] {
				t.Errorf("%s: --%s names what no line before makes", line, flag)
			}
		}
	}
	if verbs != "ca new serve " {
		t.Errorf("it runs %s", verbs)
	}
}
