package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// engineVariable names the engine where --engine does not; a child of lk run
// finds the URL of its engine in it.
const engineVariable = "LOCKKEEPER_URL"

// chosenEngine is the engine of this run of lk.
type chosenEngine struct {
	url   string
	named bool // by --engine or by the environment; else it is the user's own file
}

// chooseEngine picks the engine: --engine, else LOCKKEEPER_URL, else a file in
// the user's state directory, whose folder it makes.
func (a *app) chooseEngine() (chosenEngine, error) {
	url := a.engineFlag
	if url == "" {
		url = os.Getenv(engineVariable)
	}
	if url != "" {
		url, err := absoluteURL(url)
		return chosenEngine{url, true}, err
	}
	folder, err := stateFolder()
	if err != nil {
		return chosenEngine{}, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return chosenEngine{}, &exit{exitUnavailable, fmt.Errorf("no place for the locks: %w", err)}
	}
	return chosenEngine{"sqlite:" + filepath.Join(folder, "locks.db"), false}, nil
}

// stateFolder is lockkeeper's folder in the user's state directory, as the XDG
// base directory specification has it.
func stateFolder() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "lockkeeper"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return "", &exit{exitUsage, fmt.Errorf("no home directory to keep the locks in: name an engine with --engine or %s", engineVariable)}
	}
	return filepath.Join(home, ".local", "state", "lockkeeper"), nil
}

// absoluteURL makes the file of a URL absolute, so that a child that works in
// another directory finds the same engine.
func absoluteURL(url string) (string, error) {
	scheme, file, _ := strings.Cut(url, ":")
	if (scheme != "sqlite" && scheme != "disk") || file == "" || strings.HasPrefix(file, ":") || filepath.IsAbs(file) {
		return url, nil
	}
	absolute, err := filepath.Abs(file)
	return scheme + ":" + absolute, err
}

// connect opens the engine of this run.
func (a *app) connect(ctx context.Context, options ...lockkeeper.ClientOption) (*lockkeeper.Client, chosenEngine, error) {
	chosen, err := a.chooseEngine()
	if err != nil {
		return nil, chosen, err
	}
	client, err := a.open(ctx, chosen.url, options...)
	return client, chosen, err
}
