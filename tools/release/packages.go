package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // a format of nfpm.Get
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the packages of a Linux target for Debian and for Red Hat, and their relatives.
func (r *release) packages(t target) error {
	contents, err := r.installed(t)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(r.describePackage(t, contents))
		if format == "deb" {
			info.Depends = []string{"passwd"} // groupadd, which every Red Hat has
		}
		var packed bytes.Buffer
		if err := packager.Package(info, &packed); err != nil {
			return fmt.Errorf("the %s package for %s: %w", format, t, err)
		}
		to := filepath.Join(r.out, packager.ConventionalFileName(info))
		if err := os.WriteFile(to, packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const summary = "lock manager for shell commands, CI jobs and Go programs"

// describePackage is what package managers show.
func (r *release) describePackage(t target, contents files.Contents) *nfpm.Info {
	scripts := filepath.Join(r.source, "deploy", "package")
	return &nfpm.Info{
		Name:       "lockkeeper",
		Arch:       t.arch,
		Platform:   t.os,
		Version:    r.version,
		Section:    "admin",
		Priority:   "optional",
		Maintainer: "The Lockkeeper authors <maintainers@lockkeeper.dev>",
		Vendor:     "Lockkeeper",
		Homepage:   home,
		License:    "Apache-2.0",
		Description: summary + "\n" +
			"Locks are granted in order, you can always see who holds one and why you wait,\n" +
			"and a job that loses its lock is stopped before the next one starts.",
		MTime: r.date,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinstall"),
				PreRemove:   filepath.Join(scripts, "preremove"),
				PostRemove:  filepath.Join(scripts, "postremove"),
			},
			RPM: nfpm.RPM{
				Group:     "System Environment/Base",
				Summary:   summary,
				BuildHost: "localhost", // the same on every machine
			},
		},
	}
}

// installed lists the files of a package. Only the place of zsh's completions differs.
func (r *release) installed(t target) (files.Contents, error) {
	const docs = "/usr/share/doc/lockkeeper"
	var all files.Contents
	add := func(from, to string, mode os.FileMode, kind, format string) {
		all = append(all, &files.Content{
			Source:      from,
			Destination: to,
			Type:        kind,
			Packager:    format,
			FileInfo:    &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date},
		})
	}
	add(r.binary(t), "/usr/bin/lk", 0o755, files.TypeFile, "")
	unit, err := r.unit()
	if err != nil {
		return nil, err
	}
	add(unit, "/usr/lib/systemd/system/lockkeeper.service", 0o644, files.TypeFile, "")
	deploy := filepath.Join(r.source, "deploy")
	add(filepath.Join(deploy, "lockkeeper.yaml"), "/etc/lockkeeper/lockkeeper.yaml", 0o644,
		files.TypeConfigNoReplace, "")
	for _, name := range []string{"alerts.yml", "grafana.json", "prometheus.yml"} {
		add(filepath.Join(deploy, name), path.Join(docs, name), 0o644, files.TypeFile, "")
	}
	add(r.linked("README.md"), path.Join(docs, "README.md"), 0o644, files.TypeFile, "")
	add(r.linked("CHANGELOG.md"), path.Join(docs, "CHANGELOG.md"), 0o644, files.TypeFile, "")
	add(filepath.Join(r.source, "LICENSE"), path.Join(docs, "copyright"), 0o644, files.TypeFile, "")

	completion := func(file string) string { return filepath.Join(r.completionFolder(), file) }
	add(completion("lk.bash"), "/usr/share/bash-completion/completions/lk", 0o644, files.TypeFile, "")
	add(completion("lk.fish"), "/usr/share/fish/vendor_completions.d/lk.fish", 0o644, files.TypeFile, "")
	add(completion("_lk"), "/usr/share/zsh/vendor-completions/_lk", 0o644, files.TypeFile, "deb")
	add(completion("_lk"), "/usr/share/zsh/site-functions/_lk", 0o644, files.TypeFile, "rpm")
	pages, err := r.compressedPages()
	for _, page := range pages {
		add(page, path.Join("/usr/share/man/man1", filepath.Base(page)), 0o644, files.TypeFile, "")
	}
	return all, err
}

// unit writes the systemd unit with the place of lk in a package, and without the words about
// installation in front of it.
func (r *release) unit() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.source, "deploy", "lockkeeper.service"))
	if err != nil {
		return "", err
	}
	_, unit, found := strings.Cut(string(text), "[Unit]\n")
	if !found || !strings.Contains(unit, "/usr/local/bin/lk ") {
		return "", fmt.Errorf("deploy/lockkeeper.service has no [Unit], or does not start /usr/local/bin/lk")
	}
	to := filepath.Join(r.work, "lockkeeper.service")
	unit = "[Unit]\n" + strings.ReplaceAll(unit, "/usr/local/bin/lk ", "/usr/bin/lk ")
	return to, os.WriteFile(to, []byte(unit), 0o644)
}

// compressedPages compresses the manual pages, as packages have them.
func (r *release) compressedPages() ([]string, error) {
	pages, err := loadAll(filepath.Join(r.manFolder(), "*.1"), "")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, page := range pages {
		to := filepath.Join(r.manFolder(), page.to+".gz")
		if err := os.WriteFile(to, compress(page.content), 0o644); err != nil {
			return nil, err
		}
		all = append(all, to)
	}
	return all, nil
}
