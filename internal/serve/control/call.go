package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"

	"github.com/lockkeeper/lockkeeper"
)

const maxResponse = 16 << 20 // bytes

// ErrNoServer is the cause of an ErrUnavailable of Call: no process serves the folder.
var ErrNoServer = errors.New("no server runs on this folder")

// Call asks the process that has the folder to do something. arguments and result are what the verb
// takes and returns; each may be nil. An error of the verb keeps its sentinel and its text. An
// ErrUnavailable means that it is unknown whether it was done, unless its cause is ErrNoServer.
func Call(ctx context.Context, folder, verb string, arguments, result any) error {
	text, err := json.Marshal(arguments)
	if err != nil {
		return lockkeeper.Invalid("%s: %v", verb, err)
	}
	line, err := json.Marshal(request{Verb: verb, Arguments: text})
	if err != nil {
		return lockkeeper.Invalid("%s: %v", verb, err)
	}
	conn, err := dial(ctx, folder)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return lost(ctx, err)
	}
	in := bufio.NewReader(io.LimitReader(conn, maxResponse))
	answer, err := in.ReadBytes('\n')
	if err != nil {
		return lost(ctx, err)
	}
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		return lost(ctx, err)
	}
	if r.Code != "" {
		return r.err()
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result, result)
}

func dial(ctx context.Context, folder string) (net.Conn, error) {
	if err := CheckFolder(folder); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, socketName))
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, &lockkeeper.Error{
			Err:    lockkeeper.ErrUnavailable,
			Detail: folder,
			Cause:  fmt.Errorf("%w; lk serve --data %s starts one", ErrNoServer, folder),
		}
	case errors.Is(err, fs.ErrPermission):
		return nil, &lockkeeper.Error{
			Err:    lockkeeper.ErrDenied,
			Detail: fmt.Sprintf("%s belongs to another user: run this as the user of the server", folder),
			Cause:  err,
		}
	}
	return nil, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
}

// lost returns the error of an answer that did not come.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Detail: "the server has not answered, so it may have done this",
		Cause:  err,
	}
}

func (r *response) err() error {
	for _, c := range codes {
		if c.name == r.Code {
			return &lockkeeper.Error{Err: c.sentinel, Detail: r.Detail}
		}
	}
	return errors.New(r.Detail)
}
