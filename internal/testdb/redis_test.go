package testdb_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testca"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// redisAsk sends one command of words without spaces, and returns the last line of its answer.
func redisAsk(t *testing.T, conn net.Conn, command string) string {
	t.Helper()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "$") && line != "$-1\r\n" {
		line, err = in.ReadString('\n')
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(line)
}

func redisDial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A durable Redis comes back with all that it answered, another one without anything, on the same
// port; a wiped one is empty.
func TestRedisComesBackWithOrWithoutItsData(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []testdb.Option
		wipe    bool
		want    string
	}{
		{"durable", []testdb.Option{testdb.Durable}, false, "here"},
		{"durable, wiped", []testdb.Option{testdb.Durable}, true, "$-1"},
		{"in memory", nil, false, "$-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testdb.Redis(t, c.options...)
			if got := redisAsk(t, redisDial(t, "tcp", s.Addr()), "SET kept here"); got != "+OK" {
				t.Fatal(got)
			}
			if err := s.Wipe(); err == nil {
				t.Error("the data of a running server was wiped")
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp", s.Addr()); err == nil {
				conn.Close()
				t.Error("a killed server takes connections")
			}
			if c.wipe {
				if err := s.Wipe(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			for _, at := range [][2]string{{"tcp", s.Addr()}, {"unix", s.Socket()}} {
				if got := redisAsk(t, redisDial(t, at[0], at[1]), "GET kept"); got != c.want {
					t.Errorf("after the kill, by %s: %s, want %s", at[0], got, c.want)
				}
			}
		})
	}
}

func TestFrozenRedisAnswersAfterThaw(t *testing.T) {
	s := testdb.Redis(t)
	conn := redisDial(t, "tcp", s.Addr())
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 1)
	go func() { answered <- redisAsk(t, conn, "PING") }()
	select {
	case got := <-answered:
		t.Fatalf("a frozen server answered %s", got)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got != "+PONG" {
		t.Errorf("after the thaw: %s", got)
	}
}

func TestSharedRedisHasItsSettings(t *testing.T) {
	s := testdb.SharedRedis(t)
	if again := testdb.SharedRedis(t); again != s {
		t.Errorf("two shared servers: %v and %v", s, again)
	}
	own := testdb.Redis(t, testdb.Set("requirepass", "secret"))
	if got := redisAsk(t, redisDial(t, "tcp", s.Addr()), "PING"); got != "+PONG" {
		t.Errorf("without a password: %s", got)
	}
	conn := redisDial(t, "tcp", own.Addr())
	if got := redisAsk(t, conn, "PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("with a password that the client does not give: %s", got)
	}
	if got := redisAsk(t, conn, "AUTH secret"); got != "+OK" {
		t.Errorf("with the password: %s", got)
	}
}

// A client without a certificate is refused if the server has roots, and served otherwise.
func TestRedisSpeaksTLS(t *testing.T) {
	authority := testca.New(t)
	pair := authority.Server()
	var texts [3][]byte
	for i, file := range []string{pair.Cert, pair.Key, authority.File} {
		var err error
		if texts[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(texts[2])
	for _, clients := range []bool{false, true} {
		required := texts[2]
		if !clients {
			required = nil
		}
		s := testdb.Redis(t, testdb.TLS(texts[0], texts[1], required))
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		conn.Write([]byte("PING\r\n"))
		line, err := bufio.NewReader(conn).ReadString('\n')
		if served := line == "+PONG\r\n"; served == clients {
			t.Errorf("certificates of clients required: %v; answer without one: %q, %v", clients, line, err)
		}
	}
}
