package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// member is a set for a benchmark: the scripts of production, with the server's own time.
func member(t testing.TB, w *wire) Set {
	set := Set{SetKey: "bench:set", Marker: "id:1.1.1", Data: "bench:id.1:", Channel: "bench:to:"}
	for _, s := range Scripts() {
		if sha := w.do("SCRIPT", "LOAD", s.Text); sha != s.SHA {
			t.Fatalf("the server names the script %v, not %s", sha, s.SHA)
		}
	}
	w.do("HSET", set.SetKey, "marker", set.Marker)
	w.do("SET", set.Floor(), 1_700_000_000_000_000)
	return set
}

func evalsha(t testing.TB, s Set, r ...quorum.Request) []byte {
	call, err := Encode(s, r...)
	if err != nil {
		t.Fatal(err)
	}
	args := []any{"EVALSHA", call.Script.SHA, len(call.Keys)}
	for _, k := range call.Keys {
		args = append(args, k)
	}
	return command(append(args, call.Args...)...)
}

// cpu returns the processor time of the server in microseconds.
func cpu(t testing.TB, w *wire) float64 {
	total := 0.0
	for line := range strings.Lines(w.do("INFO", "cpu").(string)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += seconds * 1e6
		}
	}
	return total
}

// BenchmarkPair measures what an acquire and a release of a free path cost the server: server-µs/op.
// One session in pipelines of 100 requests, with 1000 paths in turn: each by itself, or in two batches of
// 50; "trivial" are scripts that do nothing with the same arguments.
func BenchmarkPair(b *testing.B) {
	w := dial(b, testdb.SharedRedis(b))
	set := member(b, w)
	w.c.Write(evalsha(b, set, quorum.Request{
		Kind: quorum.Attach, Session: "bench",
		Attach: quorum.AttachRequest{NewEpoch: 1_700_000_000_000_000, Nonce: "n", TTL: 3_600_000_000, To: "party"},
	}))
	if _, err := w.read(); err != nil {
		b.Fatal(err)
	}
	trivial := w.do("SCRIPT", "LOAD", "return 1").(string)
	id := uint64(0)
	measure := func(b *testing.B, batch int, hollow bool) {
		before := cpu(b, w)
		for n := 0; n < b.N; n += 50 {
			claims, ends := fiftyPairs(&id)
			var pipeline []byte
			for requests := range slices.Chunk(append(claims, ends...), batch) {
				text := evalsha(b, set, requests...)
				if hollow {
					text = []byte(strings.Replace(string(text), script().SHA, trivial, 1))
				}
				pipeline = append(pipeline, text...)
			}
			w.c.Write(pipeline)
			for i := 0; i < 100; i += batch {
				answer, err := w.read()
				if err != nil {
					b.Fatal(err)
				}
				if hollow {
					continue
				}
				for k, one := range answer.([]any) {
					reply, err := Decode(quorum.Claim, one)
					if err != nil || len(reply.Claims) != 1 || (reply.Claims[0].State == lockkeeper.Held) != (i+k < 50) {
						b.Fatalf("%+v, %v", reply, err)
					}
				}
			}
		}
		b.ReportMetric((cpu(b, w)-before)/float64((b.N+49)/50*50), "server-µs/op")
	}
	b.Run("lock", func(b *testing.B) { measure(b, 1, false) })
	b.Run("lock in batches", func(b *testing.B) { measure(b, 50, false) })
	b.Run("trivial", func(b *testing.B) { measure(b, 1, true) })
	b.Run("trivial in batches", func(b *testing.B) { measure(b, 50, true) })
}

// fiftyPairs returns claims with the ids after id, and their ends.
func fiftyPairs(id *uint64) (claims, ends []quorum.Request) {
	low := *id + 1
	for range 50 {
		*id++
		claims = append(claims, quorum.Request{
			Kind: quorum.Claim, Session: "bench", Epoch: 1_700_000_000_000_000, LowestOpen: low, ID: *id,
			Want: quorum.WantRecord{
				Paths:  []string{fmt.Sprintf("path/%d", *id%1000)},
				Ticket: 1_700_000_000_000_000 + *id,
				Label:  lockkeeper.Label{As: "ann@host"},
			},
		})
		ends = append(ends, quorum.Request{
			Kind: quorum.End, Session: "bench", Epoch: 1_700_000_000_000_000, LowestOpen: low, ID: *id,
			Reason: lockkeeper.Released,
		})
	}
	return claims, ends
}

// BenchmarkHandOff measures what a release costs the server while 128 claims wait for the path, together
// with the claim of the former holder, who gets in line again: server-µs/op.
func BenchmarkHandOff(b *testing.B) {
	w := dial(b, testdb.SharedRedis(b))
	set, line := member(b, w), fmt.Sprint("line-", b.N) // this function runs several times
	do := func(r quorum.Request) quorum.Reply {
		w.c.Write(evalsha(b, set, r))
		answer, err := w.read()
		if err != nil {
			b.Fatal(err)
		}
		reply, err := Decode(r.Kind, answer.([]any)[0])
		if err != nil {
			b.Fatal(err)
		}
		return reply
	}
	do(quorum.Request{
		Kind: quorum.Attach, Session: line,
		Attach: quorum.AttachRequest{NewEpoch: 1_700_000_000_000_000, Nonce: "n", TTL: 3_600_000_000, To: "party"},
	})
	claim := func(id, low uint64) quorum.Reply {
		return do(quorum.Request{
			Kind: quorum.Claim, Session: line, Epoch: 1_700_000_000_000_000, LowestOpen: low, ID: id,
			Want: quorum.WantRecord{Paths: []string{line}, Ticket: 1_700_000_000_000_000 + id},
		})
	}
	for id := range uint64(128) {
		claim(id+1, 1)
	}
	before := cpu(b, w)
	for n := range uint64(b.N) {
		do(quorum.Request{
			Kind: quorum.End, Session: line, Epoch: 1_700_000_000_000_000, LowestOpen: n + 1, ID: n + 1,
			Reason: lockkeeper.Released,
		})
		if reply := claim(n+129, n+2); reply.Claims[0].Position != 127 {
			b.Fatalf("%+v", reply)
		}
	}
	b.ReportMetric((cpu(b, w)-before)/float64(b.N), "server-µs/op")
	for id := range uint64(128) {
		do(quorum.Request{
			Kind: quorum.End, Session: line, Epoch: 1_700_000_000_000_000, ID: uint64(b.N) + id + 1, Reason: lockkeeper.Released,
		})
	}
}
