package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// built is a release for Linux on the architecture of this machine, made once for all tests.
var built *release

var build = sync.OnceValue(func() error {
	out, err := os.MkdirTemp("", "lockkeeper-release-test")
	if err != nil {
		return err
	}
	if built, err = newRelease(out); err != nil {
		return err
	}
	return built.make([]target{{"linux", runtime.GOARCH}})
})

func theRelease(t *testing.T) *release {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return built
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built != nil {
		os.RemoveAll(built.out)
		os.RemoveAll(built.work)
	}
	os.Exit(code)
}

// made returns the one file of the release that a pattern matches.
func (r *release) made(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.out, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q (%v), want one file", pattern, found, err)
	}
	return found[0]
}

// What a person unpacks has one folder with everything in it, and lk runs.
func TestArchiveHasProgramAndDocuments(t *testing.T) {
	r := theRelease(t)
	modes := map[string]fs.FileMode{}
	var program, readme []byte
	packed, err := os.ReadFile(filepath.Join(r.out, archiveName(target{"linux", runtime.GOARCH})))
	if err != nil {
		t.Fatal(err)
	}
	folder := "lockkeeper-" + r.version + "-linux-" + runtime.GOARCH
	for header, content := range untar(t, packed) {
		name, inside := strings.CutPrefix(header.Name, folder+"/")
		if !inside || header.Uname != "root" || !header.ModTime.Equal(r.date) {
			t.Errorf("%s is not in %s, of another user, or of another time: %v", header.Name, folder, header)
		}
		modes[name] = fs.FileMode(header.Mode)
		switch name {
		case "lk":
			program = content
		case "README.md":
			readme = content
		}
	}
	for name, mode := range map[string]fs.FileMode{
		"lk": 0o755, "README.md": 0o644, "LICENSE": 0o644, "CHANGELOG.md": 0o644, "man/man1/lk.1": 0o644,
		"man/man1/lk-run.1": 0o644, "completions/lk.bash": 0o644, "completions/_lk": 0o644, "completions/lk.fish": 0o644,
		"completions/lk.ps1": 0o644, "deploy/lockkeeper.service": 0o644, "deploy/lockkeeper.yaml": 0o644,
	} {
		if modes[name] != mode {
			t.Errorf("%s: mode %o, want %o", name, modes[name], mode)
		}
	}
	linksWork(t, r, readme)
	lk := filepath.Join(t.TempDir(), "lk")
	if err := os.WriteFile(lk, program, 0o755); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(lk, "version").CombinedOutput()
	if want := "lk v" + r.version + " ("; err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("lk version: %s (%v), want %s", said, err, want)
	}
}

// linksWork checks that each link of a text leads to the web, and those to the repository to a file of the
// commit.
func linksWork(t *testing.T, r *release, text []byte) {
	t.Helper()
	links := regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 20 {
		t.Errorf("%d links, want those of the README", len(links))
	}
	for _, link := range links {
		at, ours := strings.CutPrefix(link[1], home+"/blob/"+r.commit+"/")
		if !ours {
			at, ours = strings.CutPrefix(link[1], home+"/raw/"+r.commit+"/")
		}
		at, _, _ = strings.Cut(at, "#")
		if ours {
			if _, err := git(r.source, "cat-file", "-e", "HEAD:"+at); err != nil {
				t.Errorf("%s: %v", link[1], err)
			}
		} else if !strings.HasPrefix(link[1], "https://") {
			t.Errorf("%s leads to nothing in an archive", link[1])
		}
	}
	if !bytes.Contains(text, []byte("]("+home+"/raw/"+r.commit+"/docs/page.png)")) {
		t.Error("the picture is no address of a picture")
	}
}

// untar returns the files of a compressed tar file.
func untar(t *testing.T, packed []byte) map[*tar.Header][]byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	all := map[*tar.Header][]byte{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[header], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// Two runs on one commit make the same bytes, so that anybody can check what we publish.
func TestSameCommitMakesSameBytes(t *testing.T) {
	r := theRelease(t)
	again := &release{
		source: r.source, out: t.TempDir(), work: t.TempDir(), version: r.version, commit: r.commit, date: r.date,
	}
	if err := again.make([]target{{"linux", runtime.GOARCH}}); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(r.out, checksumsName))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(again.out, checksumsName))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the first run: %s\nthe second: %s (%v)", first, second, err)
	}
}

// sha256sum accepts the checksums, and they name every file.
func TestChecksumsNameEveryFile(t *testing.T) {
	r := theRelease(t)
	cmd := exec.Command("sha256sum", "--check", "--strict", checksumsName)
	cmd.Dir = r.out
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", said, err)
	}
	files, err := os.ReadDir(r.out)
	if lines := strings.Count(string(said), ": OK\n"); err != nil || lines != len(files)-1 || lines < 3 {
		t.Errorf("%d files have checksums, of %d (%v)", lines, len(files)-1, err)
	}
}

// The archive of Windows is a zip file, with lk.exe in it.
func TestZipKeepsNamesAndModes(t *testing.T) {
	r := theRelease(t)
	var packed bytes.Buffer
	if err := packZip(&packed, []file{{"a/lk.exe", 0o755, []byte("program")}, {"a/b/c", 0o644, nil}}, r.date); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range archive.File {
		if !f.Modified.Equal(r.date) {
			t.Errorf("%s is of %s, want %s", f.Name, f.Modified, r.date)
		}
		got = append(got, f.Name+" "+f.Mode().String())
	}
	if want := []string{"a/lk.exe -rwxr-xr-x", "a/b/c -rw-r--r--"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The formula names the archive of each system by its checksum. Ruby accepts it, where there is one.
func TestFormulaNamesArchives(t *testing.T) {
	r := &release{out: t.TempDir(), version: "1.2.3"}
	for _, to := range targets {
		if err := os.WriteFile(filepath.Join(r.out, archiveName(to)), []byte(to.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.formula(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.out, formulaName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range targets {
		digest, err := sha256Of(filepath.Join(r.out, archiveName(to)))
		if err != nil {
			t.Fatal(err)
		}
		both := "releases/download/v1.2.3/" + archiveName(to) + "\"\n      sha256 \"" + digest + "\"\n"
		if wanted := to.os != "windows"; strings.Contains(string(text), both) != wanted {
			t.Errorf("%s: in the formula: %t, want %t:\n%s", to, !wanted, wanted, text)
		}
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		if said, err := exec.Command(ruby, "-c", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v", said, err)
		}
	}
}

// Only files that are those of a tagged commit get the version of the tag.
func TestVersionIsTagOfUnchangedCommit(t *testing.T) {
	top := t.TempDir()
	name := filepath.Join(top, "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must := func(args ...string) {
		t.Helper()
		author := []string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}
		if _, err := git(top, append(author, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(pattern string) {
		t.Helper()
		got, _, err := describe(top)
		if err != nil || !regexp.MustCompile("^("+pattern+")$").MatchString(got) {
			t.Errorf("version %q (%v), want %s", got, err, pattern)
		}
	}
	const dev = `0\.0\.0-dev\.\d{14}\.g[0-9a-f]{7,}`
	must("init", "--quiet")
	write("one")
	must("add", "file")
	must("commit", "--quiet", "--message", "one")
	expect(dev)
	must("tag", "v1.2.3")
	expect(`1\.2\.3`)
	write("two")
	expect(dev + `\.dirty`)
}

func TestTargetsAreNamed(t *testing.T) {
	if all, err := parseTargets(""); err != nil || len(all) != len(targets) {
		t.Errorf("all: %v (%v)", all, err)
	}
	if two, err := parseTargets("linux/arm64,darwin/arm64"); err != nil || len(two) != 2 || two[1].os != "darwin" {
		t.Errorf("two: %v (%v)", two, err)
	}
	if _, err := parseTargets("linux/amd64,plan9/386"); err == nil || !strings.Contains(err.Error(), `"plan9/386"`) {
		t.Errorf("an unknown one: %v", err)
	}
}

// A directory with files may be somebody's.
func TestFilesOfOthersAreNotOverwritten(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := newRelease(folder); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("got %v, want that it is not empty", err)
	}
}
