package script

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// A wire is one connection to a Redis server.
type wire struct {
	t  testing.TB
	in *bufio.Reader
	c  net.Conn
}

func dial(t testing.TB, s *testdb.Server) *wire {
	t.Helper()
	c, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &wire{t: t, in: bufio.NewReader(c), c: c}
}

func (w *wire) send(args ...any) {
	w.t.Helper()
	w.c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := w.c.Write(command(args...)); err != nil {
		w.t.Fatal(err)
	}
}

func command(args ...any) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		text, ok := a.([]byte)
		if !ok {
			text = fmt.Append(nil, a)
		}
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(text), text)
	}
	return b
}

// read returns a string, int64, nil, a []any of these and errors, or the error that the server answered.
func (w *wire) read() (any, error) {
	w.t.Helper()
	line, err := w.in.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	rest := strings.TrimRight(line[1:], "\r\n")
	n, _ := strconv.Atoi(rest)
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	case ':':
		return int64(n), nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(w.in, text); err != nil {
			w.t.Fatal(err)
		}
		return string(text[:n]), nil
	case '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = w.read(); err != nil {
				list[i] = err
			}
		}
		return list, nil
	}
	w.t.Fatalf("the server answered %q", line)
	return nil, nil
}

// ask sends a command and returns its answer.
func (w *wire) ask(args ...any) (any, error) {
	w.t.Helper()
	w.send(args...)
	return w.read()
}

// do sends a command that must succeed.
func (w *wire) do(args ...any) any {
	w.t.Helper()
	got, err := w.ask(args...)
	if err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	return got
}

// clockLines are what the scripts of production take the time from.
const clockLines = "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n"

// withTestClock returns the script with the time as its last argument. No script of production has
// such an argument.
func withTestClock(t testing.TB, s *Script) *Script {
	t.Helper()
	if strings.Count(s.Text, clockLines) != 1 || strings.Count(s.Text, "'TIME'") != 1 {
		t.Fatal("the script does not take the time once, as the test expects")
	}
	return scriptWith(strings.Replace(s.Text, clockLines, "local now = tonumber(ARGV[#ARGV])\n", 1))
}

var sets atomic.Int64

// A target is a Redis server as a member of a set of its own, with the clock of the test.
type target struct {
	t        testing.TB
	set      Set
	commands *wire
	limited  *wire // of a user with the rights that the scripts need, which executes them
	messages *wire
	scripts  map[*Script]*Script
}

func newTarget(t testing.TB, server *testdb.Server) *target {
	t.Helper()
	return newLimitedTarget(t, server, MaxClaims)
}

// newLimitedTarget returns a target whose sessions may have claims claims.
func newLimitedTarget(t testing.TB, server *testdb.Server, claims int) *target {
	t.Helper()
	prefix := fmt.Sprintf("test%d:", sets.Add(1))
	set := Set{SetKey: prefix + "set", Marker: "id:1.1.1", Data: prefix + "id.1:", Channel: prefix + "to:"}
	g := &target{t: t, set: set, scripts: map[*Script]*Script{}}
	g.commands, g.limited, g.messages = dial(t, server), dial(t, server), dial(t, server)
	user := []any{"ACL", "SETUSER", "user" + prefix, "on", ">secret", "~" + prefix + "*", "&" + prefix + "*", "+evalsha"}
	for _, c := range Commands() {
		user = append(user, "+"+strings.ToLower(c))
	}
	g.commands.do(user...)
	g.limited.do("AUTH", "user"+prefix, "secret")
	for _, s := range Scripts() {
		limit := fmt.Sprintf("MAX_CLAIMS = %d\n", claims)
		g.scripts[s] = scriptWith(strings.Replace(withTestClock(t, s).Text, "MAX_CLAIMS = 10000\n", limit, 1))
		g.commands.do("SCRIPT", "LOAD", g.scripts[s].Text)
	}
	g.commands.do("HSET", set.SetKey, "marker", set.Marker)
	g.messages.do("PSUBSCRIBE", set.Channel+"*")
	return g
}

// close ends the connections; without it they end with the test.
func (g *target) close() {
	for _, w := range []*wire{g.commands, g.limited, g.messages} {
		w.c.Close()
	}
}

// evaluate executes r when the clock shows now.
func (g *target) evaluate(now quorum.Micros, r quorum.Request) (quorum.Reply, error) {
	g.t.Helper()
	replies, errs := g.evaluateAll(now, r)
	return replies[0], errs[0]
}

// evaluateAll executes requests that go together when the clock shows now.
func (g *target) evaluateAll(now quorum.Micros, all ...quorum.Request) ([]quorum.Reply, []error) {
	g.t.Helper()
	call, err := Encode(g.set, all...)
	if err != nil {
		g.t.Fatal(err)
	}
	args := []any{"EVALSHA", g.scripts[call.Script].SHA, len(call.Keys)}
	for _, k := range call.Keys {
		args = append(args, k)
	}
	args = append(args, call.Args...)
	g.limited.send(append(args, int64(now))...)
	answer, err := g.limited.read()
	replies, errs := make([]quorum.Reply, len(all)), make([]error, len(all))
	list, _ := answer.([]any)
	if err == nil && len(list) != len(all) {
		g.t.Fatalf("the answer to %d requests: %v", len(all), answer)
	}
	for i := range all {
		if errs[i] = err; err != nil {
			continue
		}
		if refused, ok := list[i].(error); ok {
			errs[i] = refused
			continue
		}
		replies[i], errs[i] = Decode(all[i].Kind, list[i])
	}
	return replies, errs
}

// apply executes r, and returns the messages that it led to.
func (g *target) apply(now quorum.Micros, r quorum.Request) (quorum.Reply, []quorum.Message, error) {
	g.t.Helper()
	reply, err := g.evaluate(now, r)
	if err != nil {
		return reply, nil, err
	}
	g.commands.do("PUBLISH", g.set.Channel+"\x01end", "")
	var all []quorum.Message
	for {
		answer, err := g.messages.read()
		list, _ := answer.([]any)
		if err != nil || len(list) != 4 {
			g.t.Fatalf("a message %v: %v", answer, err)
		}
		channel, payload := list[2].(string), list[3].(string)
		if channel == g.set.Channel+"\x01end" {
			return reply, all, nil
		}
		m, err := DecodeMessage([]byte(payload))
		if err != nil {
			g.t.Fatal(err)
		}
		if g.set.ChannelOf(m.To) != channel {
			g.t.Errorf("a message for %q on the channel %q", m.To, channel)
		}
		all = append(all, m)
	}
}
