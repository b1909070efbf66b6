package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Verb does what a request asks for. arguments is JSON, and so will be the result. Its ctx ends when
// the caller goes away, and after a minute at the latest.
type Verb func(ctx context.Context, arguments json.RawMessage) (result any, err error)

const (
	socketName = "control.sock"
	makingName = ".control" // the directory in which a socket is made

	maxRequest  = 512 << 10        // bytes
	readTime    = 10 * time.Second // for a request to arrive, and for its answer to leave
	verbTime    = time.Minute
	maxRequests = 16 // at a time; others wait
)

// maxPath is the length of a socket's name that all systems allow, in bytes.
const maxPath = 103

// CheckFolder returns an ErrInvalid if the name of the folder is too long for a socket in it. The
// system bounds the names of sockets, unlike those of files.
func CheckFolder(folder string) error {
	path, err := filepath.Abs(folder)
	if err != nil {
		return lockkeeper.Invalid("%s: %v", folder, err)
	}
	if longest := filepath.Join(path, makingName, socketName); len(longest) > maxPath {
		return lockkeeper.Invalid("the folder %s has a name of %d bytes: the socket in it, by which operators reach the "+
			"server, allows %d; name a folder with a shorter name", path, len(path), maxPath-(len(longest)-len(path)))
	}
	return nil
}

// Listen makes the socket of a folder, in the place of that of a former process. The caller makes sure
// that no other process has the folder.
func Listen(folder string) (net.Listener, error) {
	if err := CheckFolder(folder); err != nil {
		return nil, err
	}
	making := filepath.Join(folder, makingName)
	if err := os.RemoveAll(making); err != nil {
		return nil, err
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(making)
	path := filepath.Join(making, socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the socket of the next process
	if err = os.Chmod(path, 0o600); err == nil {
		err = os.Rename(path, filepath.Join(folder, socketName))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Serve answers requests until ctx ends, and then returns nil. It closes l, and returns after all
// verbs have returned, whose contexts have ended by then. log may be nil.
func Serve(ctx context.Context, l net.Listener, verbs map[string]Verb, log *slog.Logger) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { l.Close(); close(closed) })
	defer func() {
		if stop() {
			l.Close()
		} else {
			<-closed // Accept has failed before, and a client could still connect
		}
	}()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxRequests)
	for {
		slots <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			if err := answer(ctx, conn, verbs); err != nil && log != nil {
				log.Warn("a request of an operator was not answered", "error", err)
			}
		})
	}
}

type request struct {
	Verb      string          `json:"verb"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

type response struct {
	Code   string          `json:"code,omitempty"` // of an error; see codes
	Detail string          `json:"detail,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// answer reads one request, does what it asks for, and answers.
func answer(ctx context.Context, conn net.Conn, verbs map[string]Verb) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(readTime)); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxRequest))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the request did not end within %d bytes and %s: %w", maxRequest, readTime, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	work, gone := context.WithTimeout(ctx, verbTime)
	defer gone()
	go func() {
		defer gone()
		_, _ = in.ReadByte() // the caller sends nothing more, so this ends when the connection does
	}()
	text, err := json.Marshal(perform(work, line, verbs))
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(readTime)); err != nil {
		return err
	}
	_, err = conn.Write(append(text, '\n'))
	return err
}

func perform(ctx context.Context, line []byte, verbs map[string]Verb) response {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return refusal(lockkeeper.Invalid("the request is no JSON of this protocol: %v", err))
	}
	verb, ok := verbs[r.Verb]
	if !ok {
		return refusal(lockkeeper.Invalid("the server does not know the request %.40q: use lk of the server's version",
			r.Verb))
	}
	result, err := verb(ctx, r.Arguments)
	if err != nil {
		return refusal(err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return refusal(err)
	}
	return response{Result: text}
}

// codes are the sentinels of errors, by their names in responses. Any other error is "failed".
var codes = []struct {
	name     string
	sentinel error
}{
	{"invalid", lockkeeper.ErrInvalid},
	{"unsupported", lockkeeper.ErrUnsupported},
	{"denied", lockkeeper.ErrDenied},
	{"unavailable", lockkeeper.ErrUnavailable},
}

const codeFailed = "failed"

func refusal(err error) response {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err} // the outcome is unknown
	}
	r := response{Code: codeFailed, Detail: err.Error()}
	for _, c := range codes {
		if errors.Is(err, c.sentinel) {
			r.Code = c.name
			break
		}
	}
	if e, ok := errors.AsType[*lockkeeper.Error](err); ok {
		r.Detail = e.Detail
		if e.Cause != nil && e.Detail != "" {
			r.Detail += ": "
		}
		if e.Cause != nil {
			r.Detail += e.Cause.Error()
		}
	}
	return r
}
