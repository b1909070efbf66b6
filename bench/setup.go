package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// etcdPackage is built in the module in folder etcd, which fixes its version:
// go install refuses it, since its go.mod replaces modules.
const etcdPackage = "go.etcd.io/etcd/server/v3"

// setup installs the servers that are missing. It needs apt-get for most, as root
// or by sudo, and a Go module proxy for etcd. It is to be called in the folder of
// this module.
func setup(ctx context.Context) error {
	if err := installPackages(ctx); err != nil {
		return err
	}
	if etcdMissing() != nil {
		program, err := etcdProgram()
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
			return err
		}
		if err := show(ctx, "etcd", "go", "build", "-o", program, etcdPackage); err != nil {
			return fmt.Errorf("etcd can't be built: %w", err)
		}
	}
	fmt.Println("all servers are installed")
	return nil
}

// installPackages installs what comes in packages of the system.
func installPackages(ctx context.Context) error {
	var packages []string
	for name, lacks := range map[string]func() error{
		"redis-server":        redisMissing,
		"postgresql":          (&postgres{}).missing,
		"mariadb-server-core": (&mariaDB{}).missing,
		"mariadb-client-core": (&mariaDB{}).missing, // has a program that the server's installation calls
	} {
		if lacks() != nil {
			packages = append(packages, name)
		}
	}
	if packages == nil {
		return nil
	}
	install := append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, packages...)
	for _, line := range [][]string{{"apt-get", "update", "-q"}, install} {
		if os.Getuid() != 0 {
			line = append([]string{"sudo"}, line...)
		}
		if err := show(ctx, ".", line...); err != nil {
			return fmt.Errorf("%v can't be installed: %w", packages, err)
		}
	}
	return nil
}

// show runs a command for the user to see.
func show(ctx context.Context, dir string, words ...string) error {
	fmt.Println("+", words)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	return cmd.Run()
}
