package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// file is one file of an archive or of a package.
type file struct {
	to      string // slash-separated
	mode    fs.FileMode
	content []byte
}

// load reads a file from disk. The program alone is executable.
func load(from, to string) (file, error) {
	content, err := os.ReadFile(from)
	mode := fs.FileMode(0o644)
	if base := filepath.Base(from); base == "lk" || base == "lk.exe" {
		mode = 0o755
	}
	return file{to, mode, content}, err
}

// loadAll reads the files that the pattern matches, into one folder.
func loadAll(pattern, folder string) ([]file, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: no such file", pattern)
	}
	var all []file
	for _, name := range found {
		f, failed := load(name, path.Join(folder, filepath.Base(name)))
		if failed != nil {
			return nil, failed
		}
		all = append(all, f)
	}
	return all, err
}

// archiveName has no version, so that one link leads to the latest release.
func archiveName(t target) string {
	if t.os == "windows" {
		return fmt.Sprintf("lockkeeper-%s-%s.zip", t.os, t.arch)
	}
	return fmt.Sprintf("lockkeeper-%s-%s.tar.gz", t.os, t.arch)
}

// archive packs the program of a target with its documentation into one folder.
func (r *release) archive(t target) error {
	folder := fmt.Sprintf("lockkeeper-%s-%s-%s", r.version, t.os, t.arch)
	var all []file
	for _, part := range []struct{ from, to string }{
		{r.binary(t), "."},
		{r.linked("README.md"), "."},
		{r.linked("CHANGELOG.md"), "."},
		{filepath.Join(r.source, "LICENSE"), "."},
		{filepath.Join(r.manFolder(), "*.1"), "man/man1"},
		{filepath.Join(r.completionFolder(), "*"), "completions"},
		{filepath.Join(r.source, "deploy", "lockkeeper.*"), "deploy"},
	} {
		found, err := loadAll(part.from, path.Join(folder, part.to))
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	pack := packTar
	if t.os == "windows" {
		pack = packZip
	}
	var packed bytes.Buffer
	if err := pack(&packed, all, r.date); err != nil {
		return fmt.Errorf("%s: %w", archiveName(t), err)
	}
	return os.WriteFile(filepath.Join(r.out, archiveName(t)), packed.Bytes(), 0o644)
}

// packTar writes a compressed tar file. All files have the given time and belong to root.
func packTar(w io.Writer, all []file, date time.Time) error {
	compressed, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // the level is valid
	archive := tar.NewWriter(compressed)
	for _, f := range all {
		err := archive.WriteHeader(&tar.Header{
			Name:    f.to,
			Mode:    int64(f.mode),
			Size:    int64(len(f.content)),
			ModTime: date,
			Uname:   "root",
			Gname:   "root",
		})
		if err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// packZip writes a zip file. All files have the given time.
func packZip(w io.Writer, all []file, date time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range all {
		header := &zip.FileHeader{Name: f.to, Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// compress returns content as a gzip file without name and time.
func compress(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	w.Write(content)                                      // a buffer takes everything
	w.Close()
	return b.Bytes()
}
