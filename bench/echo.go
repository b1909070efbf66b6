package main

import (
	"bufio"
	"encoding/binary"
	"net"
)

// A frame of the echo servers begins with its length and the length that its
// answer is to have, then a number that the answer repeats. The rest is filling.
const echoHeader = 12

// sizes are the lengths of frames in bytes, headers included, so that limits
// carry what the measured server carries.
type sizes struct {
	Claim   int `json:"claim"`   // the request that acquires
	Claimed int `json:"claimed"` // its answer
	End     int `json:"end"`     // the request that releases
	Ended   int `json:"ended"`   // its answer
}

// putFrame fills the header of a frame.
func putFrame(frame []byte, answer int, number uint32) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)))
	binary.LittleEndian.PutUint32(frame[4:], uint32(answer))
	binary.LittleEndian.PutUint32(frame[8:], number)
}

// serveEcho answers frames. Answers to frames that arrived together leave
// together.
func serveEcho(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			echo(conn) // ends when the client goes
		}()
	}
}

func echo(conn net.Conn) error {
	in, out := bufio.NewReaderSize(conn, 64<<10), bufio.NewWriterSize(conn, 64<<10)
	var filling []byte
	for {
		if in.Buffered() < echoHeader || in.Buffered() < frameLength(in) {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		head, err := in.Peek(echoHeader)
		if err != nil {
			return err
		}
		length := int(binary.LittleEndian.Uint32(head))
		answer := int(binary.LittleEndian.Uint32(head[4:]))
		if answer > len(filling) {
			filling = make([]byte, answer)
		}
		putFrame(filling[:answer], 0, binary.LittleEndian.Uint32(head[8:]))
		if _, err := in.Discard(length); err != nil {
			return err
		}
		if _, err := out.Write(filling[:answer]); err != nil {
			return err
		}
	}
}

// frameLength is the length of the next frame, whose header is in the buffer.
func frameLength(in *bufio.Reader) int {
	head, _ := in.Peek(4)
	return int(binary.LittleEndian.Uint32(head))
}
