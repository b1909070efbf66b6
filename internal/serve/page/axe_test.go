package page_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// axe-core judges whether people with disabilities can use a page: names, roles, contrast, focus.
const (
	axePackage = "axe-core@4.14.1"
	axeSum     = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c" // SHA-256 of its file axe.min.js
)

// loadAxe returns the script of axe-core from the npm registry. It skips the test where there is no
// npm, or the registry does not answer.
func loadAxe(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("there is no npm, which gets axe-core")
	}
	folder := t.TempDir()
	cmd := exec.Command(npm, "pack", axePackage, "--silent", "--ignore-scripts", "--pack-destination", folder)
	cmd.Dir = folder
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm pack %s: %v\n%s", axePackage, err, text)
	}
	archives, _ := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if len(archives) != 1 {
		t.Fatalf("npm pack has left %v", archives)
	}
	script, err := fileOf(archives[0], "package/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(script); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe.min.js of %s has the sum %x", axePackage, sum)
	}
	return string(script)
}

// fileOf returns a file of a compressed archive.
func fileOf(archive, name string) ([]byte, error) {
	text, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s has no %s: %w", archive, name, err)
		}
		if header.Name == name {
			return io.ReadAll(r)
		}
	}
}

// serious returns in words what axe-core finds serious or critical in the page of now.
const serious = `axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary).join("; "))
	.join("\n"))`
