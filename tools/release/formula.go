package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// home is where the files of a release are downloaded.
const home = "https://github.com/lockkeeper/lockkeeper"

const formulaName = "lockkeeper.rb"

// formula writes the Homebrew formula, if the archives that it names were made: those of macOS and
// of Linux. It is for a tap: a repository named homebrew-tap, in its folder Formula.
func (r *release) formula() error {
	digests := map[string]string{}
	for _, t := range targets {
		if t.os == "windows" {
			continue
		}
		digest, err := sha256Of(filepath.Join(r.out, archiveName(t)))
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		digests[t.String()] = digest
	}
	to, err := os.Create(filepath.Join(r.out, formulaName))
	if err != nil {
		return err
	}
	defer to.Close()
	return formulaText.Execute(to, map[string]any{"Home": home, "Version": r.version, "SHA256": digests})
}

var formulaText = template.Must(template.New(formulaName).Funcs(template.FuncMap{
	"url": func(version, os, arch string) string {
		return fmt.Sprintf("%s/releases/download/v%s/%s", home, version, archiveName(target{os, arch}))
	},
}).Parse(`class Lockkeeper < Formula
  desc "Lock manager for shell commands, CI jobs and Go programs"
  homepage "{{.Home}}"
  version "{{.Version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "{{url .Version "darwin" "arm64"}}"
      sha256 "{{index .SHA256 "darwin/arm64"}}"
    end
    on_intel do
      url "{{url .Version "darwin" "amd64"}}"
      sha256 "{{index .SHA256 "darwin/amd64"}}"
    end
  end

  on_linux do
    on_arm do
      url "{{url .Version "linux" "arm64"}}"
      sha256 "{{index .SHA256 "linux/arm64"}}"
    end
    on_intel do
      url "{{url .Version "linux" "amd64"}}"
      sha256 "{{index .SHA256 "linux/amd64"}}"
    end
  end

  def install
    bin.install "lk"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/lk.bash" => "lk"
    zsh_completion.install "completions/_lk"
    fish_completion.install "completions/lk.fish"
  end

  test do
    assert_match "v#{version}", shell_output("#{bin}/lk version")
    assert_equal "mine", shell_output("#{bin}/lk run --engine sqlite:#{testpath}/locks.db test -- echo mine").strip
  end
end
`))

const checksumsName = "checksums.txt"

// checksums writes the SHA-256 digest of every file, as sha256sum -c reads them.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files { // sorted by name
		digest, err := sha256Of(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", digest, f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, checksumsName), []byte(lines.String()), 0o644)
}

func sha256Of(name string) (string, error) {
	content, err := os.ReadFile(name)
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:]), err
}
