package wire_test

import (
	"bufio"
	"fmt"
	"log"
	"net"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A client needs the code that its language's protocol buffers make of the schema,
// and no more than this: a socket, and messages with their length in front.
func Example() {
	conn, err := net.Dial("tcp", startServer())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func(f *wire.ClientFrame) *wire.ServerFrame {
		if _, err := protodelim.MarshalTo(conn, f); err != nil {
			log.Fatal(err)
		}
		answer := new(wire.ServerFrame)
		if err := protodelim.UnmarshalFrom(in, answer); err != nil {
			log.Fatal(err)
		}
		return answer
	}

	hello := ask(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Client: "ten lines"}})
	fmt.Println("engine:", hello.GetWelcome().GetGuarantees().GetName())

	attach := &wire.Session{Id: "n0body-g0esses-this", Ttl: 30e9}
	lease := ask(&wire.ClientFrame{Requests: []*wire.Request{{Call: 1, Attach: attach}}}).GetReplies()[0].GetLease()

	claim := &wire.Want{
		Id:      1,
		Targets: []*wire.Target{{Path: "mydatabase/mytest", Mode: wire.Mode_MODE_EXCLUSIVE}},
		Wait:    -1,
	}
	status := ask(&wire.ClientFrame{Requests: []*wire.Request{{
		Call:  2,
		Key:   &wire.Key{Session: attach.Id, Epoch: lease.GetEpoch()},
		Claim: claim,
	}}}).GetReplies()[0].GetStatus()
	fmt.Println("mydatabase/mytest:", status.GetState(), "fence", status.GetFence())

	leave := &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_LEAVE}
	ask(&wire.ClientFrame{Requests: []*wire.Request{{
		Call: 3,
		Key:  &wire.Key{Session: attach.Id, Epoch: lease.GetEpoch()},
		End:  leave,
	}}})
	// Output:
	// engine: mem
	// mydatabase/mytest: STATE_HELD fence 1
}

// startServer serves locks in memory for the rest of the process, and returns its address.
func startServer() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := server.New(memlock.New(), server.Options{})
	go func() {
		if err := s.Serve(l); err != nil {
			log.Fatal(err)
		}
	}()
	return l.Addr().String()
}
