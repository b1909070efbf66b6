package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// httpPeer speaks HTTP and JSON on a connection for each client: to our server, or to
// the limit of such servers, net/http with a handler that does nothing but to read and
// to write as much JSON. Both are asked the same by the same client, which is as
// simple as can be, so that it hides as little as can be.
type httpPeer struct {
	ownServer
	kind string // of the server, by ownServers
	name string
	how  string
}

func httpPeers() []peer {
	return []peer{
		&httpPeer{
			kind: "http",
			name: httpName,
			how: "net/http, ServeMux and encoding/json: a POST and a DELETE with as much JSON as ours has, and nothing " +
				"done; a connection each",
		},
		&httpPeer{
			kind: "lk-http",
			name: overHTTPName,
			how:  "our server on memlock over HTTP: POST /v1/claims and DELETE /v1/claims/{claim}; a connection each",
		},
	}
}

func (p *httpPeer) about() about { return about{name: p.name, how: p.how, kinds: []kind{distinct}} }

func (p *httpPeer) start(_ context.Context, at place) error { return p.launch(p.kind, at) }

func (p *httpPeer) open(ctx context.Context, n int) (clients, error) {
	return dialEach(ctx, p.addr(), n, func(conn net.Conn, _ int) (load.Locker, error) {
		return &httpClient{conn: conn, in: bufio.NewReader(conn), host: p.addr()}, nil
	})
}

// httpClient writes requests as bytes, and reads of answers what it needs.
type httpClient struct {
	conn  net.Conn
	in    *bufio.Reader
	host  string
	out   bytes.Buffer
	claim []byte // the URL of what it holds
}

func (c *httpClient) Acquire(_ context.Context, path string) error {
	body := `{"path":"` + path + `","ttl":30,"as":"bench"}`
	c.out.Reset()
	fmt.Fprintf(&c.out, "POST /v1/claims HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", c.host, len(body), body)
	status, err := c.ask()
	if err == nil && status != 201 {
		err = fmt.Errorf("POST: status %d", status)
	}
	return err
}

func (c *httpClient) Release(context.Context, string) error {
	c.out.Reset()
	fmt.Fprintf(&c.out, "DELETE %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n\r\n", c.claim, c.host)
	status, err := c.ask()
	if err == nil && status != 204 {
		err = fmt.Errorf("DELETE: status %d", status)
	}
	return err
}

// ask sends what is in out, and reads the answer.
func (c *httpClient) ask() (status int, err error) {
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return 0, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, errors.New("no answer of HTTP")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := 0
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case len(line) == 0:
			_, err = io.CopyN(io.Discard, c.in, int64(length))
			return status, err
		case string(name) == "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		case string(name) == "Location":
			c.claim = append(c.claim[:0], value...)
		}
	}
}
