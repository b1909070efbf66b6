package testdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// largestMessage is far above what tests send.
const largestMessage = 64 << 20

// postgresProtocol: each message is a byte for its kind and four for its length, but
// the first of a connection has no kind.
type postgresProtocol struct {
	client   io.Writer
	started  bool
	prepared map[string]string // SQL, by the name of the statement
}

const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

func (*postgresProtocol) serial() bool { return false }

func (p *postgresProtocol) request(r *bufio.Reader) (message, error) {
	if !p.started {
		return p.start(r)
	}
	text, err := typedMessage(r)
	if err != nil {
		return message{}, err
	}
	m := message{bytes: text}
	kind, body := text[0], text[5:]
	switch kind {
	case 'Q':
		m.counts, m.ends, m.words = true, true, word(&body)
	case 'F':
		m.counts, m.ends, m.words = true, true, "function call"
	case 'S':
		m.counts, m.ends, m.words = true, true, "Sync"
	case 'H':
		m.counts, m.urgent, m.words = true, true, "Flush"
	case 'P':
		name := word(&body)
		m.counts, m.words = true, word(&body)
		if p.prepared == nil {
			p.prepared = map[string]string{}
		}
		p.prepared[name] = m.words
		m.words = "Parse " + m.words
	case 'B':
		word(&body)
		m.counts, m.words = true, "Bind "+p.prepared[word(&body)]
	case 'E':
		m.counts, m.words = true, "Execute"
	case 'D', 'C':
		m.counts, m.words = true, map[byte]string{'D': "Describe", 'C': "Close"}[kind]
	}
	m.answered = m.ends
	return m, nil
}

// start reads the first message, after the offers to encrypt, which are declined.
func (p *postgresProtocol) start(r *bufio.Reader) (message, error) {
	for {
		head, err := readFull(r, nil, 8)
		if err != nil {
			return message{}, err
		}
		size, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if code == sslRequest || code == gssEncRequest {
			if _, err := p.client.Write([]byte{'N'}); err != nil {
				return message{}, err
			}
			continue
		}
		if size < 8 || size > largestMessage {
			return message{}, fmt.Errorf("a first message of %d bytes", size)
		}
		all, err := readFull(r, head, int(size)-8)
		p.started = true
		return message{bytes: all, answered: true}, err
	}
}

func (*postgresProtocol) answer(r *bufio.Reader) ([]byte, bool, error) {
	text, err := typedMessage(r)
	if err != nil {
		return nil, false, err
	}
	return text, text[0] == 'Z', nil // ReadyForQuery
}

func typedMessage(r io.Reader) ([]byte, error) {
	head, err := readFull(r, nil, 5)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > largestMessage {
		return nil, fmt.Errorf("a message %q of %d bytes", head[0], size)
	}
	return readFull(r, head, int(size)-4)
}

// word cuts a text that ends with a zero byte off the front of a message.
func word(body *[]byte) string {
	first, remaining, _ := bytes.Cut(*body, []byte{0})
	*body = remaining
	return string(first)
}

// mysqlProtocol: each packet is three bytes for its length, one for its number, and
// what is in it. A command is number 0, and the client waits for its answer.
type mysqlProtocol struct{}

// The commands that are not requests, since they are never answered, and those with
// SQL.
const (
	comQuit, comLongData, comCloseStatement = 0x01, 0x18, 0x19
	comQuery, comPrepare, comExecute        = 0x03, 0x16, 0x17
)

func (mysqlProtocol) serial() bool { return true }

func (mysqlProtocol) request(r *bufio.Reader) (message, error) {
	head, err := readFull(r, nil, 4)
	if err != nil {
		return message{}, err
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	number := head[3]
	all, err := readFull(r, head, size)
	if err != nil || number != 0 || size == 0 {
		return message{bytes: all}, err
	}
	m := message{bytes: all, counts: true, ends: true, answered: true}
	switch command := all[4]; command {
	case comQuit, comLongData, comCloseStatement:
		return message{bytes: all}, nil
	case comQuery:
		m.words = string(all[5:])
	case comPrepare:
		m.words = "Prepare " + string(all[5:])
	case comExecute:
		m.words = "Execute"
	default:
		m.words = fmt.Sprintf("command %#x", command)
	}
	return m, nil
}

// answer does not find the ends of answers: everything after a request is its answer.
func (mysqlProtocol) answer(r *bufio.Reader) ([]byte, bool, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, false, err
	}
	chunk := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, chunk)
	return chunk, true, err
}
