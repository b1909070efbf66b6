package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const imageName = "localhost/lockkeeper-test"

// containers runs commands of buildah and podman that keep images and containers in a folder.
type containers struct{ storage, runtime string }

func newContainers(t *testing.T) *containers {
	t.Helper()
	folder := t.TempDir()
	c := &containers{storage: filepath.Join(folder, "storage.conf")}
	conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(folder, "images"),
		filepath.Join(folder, "run"))
	if err := os.WriteFile(c.storage, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a command as root.
func (c *containers) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := asRoot(ctx, append([]string{"env", "CONTAINERS_STORAGE_CONF=" + c.storage}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return string(said), err
}

func (c *containers) mustPodman(t *testing.T, args ...string) string {
	t.Helper()
	said, err := c.podman(args...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// podman runs a podman command. Not every machine lets containers raise limits, or has what crun needs.
func (c *containers) podman(args ...string) (string, error) {
	return c.run(append([]string{"podman", "--runtime", "runc"}, args...)...)
}

// The image serves without a configuration file and without a network, as a user without rights, and
// its locks are in its volume.
func TestImageServesWithoutConfiguration(t *testing.T) {
	c := newContainers(t)
	if _, err := c.run("env", "BUILDER=buildah", "../image", imageName); err != nil {
		t.Fatal(err)
	}
	serving := func() {
		t.Helper()
		began := time.Now()
		c.mustPodman(t, "run", "--detach", "--name", "locks", "--timeout", "1800", "--network", "none", "--read-only",
			"--cap-drop", "all", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024", "--no-healthcheck",
			"--volume", "locks:/data", imageName)
		for {
			_, err := c.podman("exec", "locks", "/lk", "ls")
			if err == nil {
				break
			}
			if time.Since(began) > patience {
				log, _ := c.podman("logs", "locks")
				t.Fatalf("%v\nthe log: %s", err, log)
			}
		}
		t.Logf("time from podman run to the first answer: %d ms", time.Since(began).Milliseconds())
	}
	serving()
	t.Cleanup(func() { c.podman("rm", "--force", "--volumes", "locks") })
	c.mustPodman(t, "exec", "locks", "/lk", "run", "demo/hello", "--", "/lk", "version")
	c.mustPodman(t, "exec", "locks", "/lk", "doctor")
	c.mustPodman(t, "exec", "locks", "/lk", "grab", "db", "--as", "nightly", "--ttl", "1h")
	c.mustPodman(t, "rm", "--force", "locks")
	serving()
	if said := c.mustPodman(t, "exec", "locks", "/lk", "ls"); !strings.Contains(said, "nightly") {
		t.Errorf("in a new container with the same volume: %s, want the lock of the one before", said)
	}
	if said := c.mustPodman(t, "image", "inspect", "--format", "{{.Config.User}}", imageName); said != "65532:65532\n" {
		t.Errorf("the image runs as %s", said)
	}
}
