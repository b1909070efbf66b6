package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func sampleToken() Token {
	return Token{
		Cluster:   strings.Repeat("0123456789abcdef", 2),
		Authority: Digest{1, 2, 3},
		Secret:    [32]byte{4, 5, 6},
		Addresses: []string{"10.0.0.1:7430", "[fd00::1]:7430", "db3.example.com:7430"},
	}
}

func TestTokenIsReadAsItIsWritten(t *testing.T) {
	want := sampleToken()
	text := want.String()
	got, err := ParseToken(" " + text + "\r\n")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range text {
		if got, err := ParseToken(text[:i]); err == nil {
			t.Errorf("its first %d characters are the token %+v", i, got)
		} else if i > 20 && strings.Contains(err.Error(), text[10:20]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func TestTokenComesFromAPrivateFileOrTheEnvironment(t *testing.T) {
	text := sampleToken().String()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(file); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(file); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("a file that a group can read: %v", err)
	}
	t.Setenv(TokenVariable, text)
	if _, err := ReadToken(""); err != nil {
		t.Error(err)
	}
	t.Setenv(TokenVariable, "lkjoin_")
	if _, err := ReadToken(""); err == nil || !strings.Contains(err.Error(), TokenVariable) {
		t.Errorf("half a token: %v", err)
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(sampleToken().String())
	f.Add(TokenPrefix)
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			return
		}
		again, err := ParseToken(token.String())
		if err != nil || !reflect.DeepEqual(again, token) {
			t.Errorf("%+v becomes %+v, %v", token, again, err)
		}
	})
}

func TestBadTokensAreNotMade(t *testing.T) {
	c := newCluster(t)
	for about, make := range map[string]func() (Token, error){
		"too short": func() (Token, error) {
			return CreateToken(t.Context(), c, c.credentials, time.Second, []string{c.address})
		},
		"too long": func() (Token, error) {
			return CreateToken(t.Context(), c, c.credentials, 8*24*time.Hour, []string{c.address})
		},
		"no address": func() (Token, error) { return CreateToken(t.Context(), c, c.credentials, time.Hour, nil) },
		"no port": func() (Token, error) {
			return CreateToken(t.Context(), c, c.credentials, time.Hour, []string{"10.0.0.1"})
		},
	} {
		if _, err := make(); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%s: %v", about, err)
		}
	}
	for range maxTokens {
		c.token()
	}
	if _, err := CreateToken(t.Context(), c, c.credentials, time.Hour,
		[]string{c.address}); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("one token too many: %v", err)
	}
	c.pass(time.Hour)
	c.token()
	v, _ := c.Read(t.Context())
	if tokens, err := Tokens(v); err != nil || len(tokens) != 1 {
		t.Errorf("%d tokens are left after the others ended: %v", len(tokens), err)
	}
}

// A server answers bytes of every kind with an error or the end of the connection, and goes on.
func TestHostileRequestsAreRefused(t *testing.T) {
	c := newCluster(t)
	_, folder := founded(t)
	key := keyIn(t, folder)
	own, err := selfSigned(key)
	if err != nil {
		t.Fatal(err)
	}
	send := func(bytes []byte) (answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dialer := &tls.Dialer{Config: &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{Protocol}, Certificates: []tls.Certificate{own},
		}}
		conn, err := dialer.DialContext(ctx, "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(bytes); err != nil {
			return answer{}, err
		}
		conn.(*tls.Conn).CloseWrite()
		var a answer
		return a, readFrame(conn, maxAnswer, &a)
	}
	frame := func(text string) []byte { return append(binary.AppendUvarint(nil, uint64(len(text))), text...) }
	for _, text := range []string{
		`{"form":1,"step":"join","secret":"AAAA","node":{"name":"x"}}`,
		`{"form":1,"step":"begin","secret":"AAAA","node":{"name":"x","id":"5","address":"10.0.0.1:1"}}`,
		`{"form":2,"step":"join"}`, `{"form":1,"step":"rm"}`, `{}`, `{"form":1,"step":"begin"}`,
		`{"form":1,"step":"join","node":{"name":"../x"}}`,
		`{"form":1,"step":"begin","node":{"name":"x","id":"5","address":"0.0.0.0:1"}}`,
		`{"form":1,"step":"begin","node":{"name":"x","id":"5","address":"10.0.0.1:1","rank":200}}`,
		`{"form":1,"step":"begin","node":{"name":"x","id":"5","address":"10.0.0.1:1","clients":"x"}}`,
	} {
		if a, err := send(frame(text)); err != nil || a.Code == "" || a.ID != 0 || len(a.AuthorityKey) > 0 {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	for about, bytes := range map[string][]byte{
		"nothing": nil, "no JSON": frame("lock"), "half a frame": frame(`{"form":1}`)[:5],
		"a large frame":         append(binary.AppendUvarint(nil, maxRequest+1), bytes.Repeat([]byte(" "), maxRequest+1)...),
		"numbers of wrong size": frame(`{"form":1,"node":{"id":"99999999999999999999"}}`),
	} {
		if a, err := send(bytes); err == nil {
			t.Errorf("%s: %+v", about, a)
		}
	}
	if got := c.members(); got != "first" {
		t.Errorf("the members are %q", got)
	}
	if _, err := c.join(c.joiner("second", c.token())); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A connection that is not one of a new node gets nothing.
func TestOtherProtocolsAreRefused(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for about, config := range map[string]*tls.Config{
		"another protocol": {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		"no protocol":      {InsecureSkipVerify: true},
		"no certificate":   {InsecureSkipVerify: true, NextProtos: []string{Protocol}},
	} {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", c.address)
		if err == nil {
			_, err = io.ReadAll(conn)
			conn.Close()
		}
		if about != "no protocol" && err == nil {
			t.Errorf("%s: the handshake succeeded", about)
		}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(conn); bytes.Contains(text, []byte("HTTP")) {
		t.Errorf("%q", text)
	}
}
