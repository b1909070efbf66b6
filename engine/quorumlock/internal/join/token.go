package join

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// A Token admits one new node to a cluster, once. A machine that has it can become a node of the cluster, so it
// is kept secret until it is used.
type Token struct {
	Cluster   string
	Authority Digest   // of the CA's certificate: the new node believes nobody else
	Secret    [32]byte // random
	Addresses []string // of nodes, HOST:PORT, for the join exchange; 1 to MaxAddresses
}

// Limits of tokens.
const (
	MaxAddresses = 16
	maxAddress   = 255     // bytes
	maxTokenText = 8 << 10 // bytes

	// DefaultTokenLife is how long a token can be used if its maker says nothing else.
	DefaultTokenLife = time.Hour
	// ShortestTokenLife and LongestTokenLife bound what its maker may say.
	ShortestTokenLife = time.Minute
	LongestTokenLife  = 7 * duration.Day
)

// TokenPrefix begins the text of every token, so that people and secret scanners recognise one.
const TokenPrefix = "lkjoin_"

// TokenVariable is the environment variable that may have the text of a token.
const TokenVariable = "LOCKKEEPER_JOIN_TOKEN"

const tokenForm = 1

// The text of a token is TokenPrefix and, in the URL-safe alphabet of base64:
//
//	form (1 byte) cluster (16) authority (32) secret (32) { length (1) address }* CRC-32 of all before (4)

// String returns the text of the token, in one line.
func (t Token) String() string {
	b := []byte{tokenForm}
	cluster, _ := hex.DecodeString(t.Cluster)
	b = append(b, cluster...)
	b = append(b, t.Authority[:]...)
	b = append(b, t.Secret[:]...)
	for _, a := range t.Addresses {
		b = append(append(b, byte(len(a))), a...)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

var errCut = errors.New("the join token is damaged: copy all of it, in one line")

// ParseToken reads the text of a token. Its errors do not repeat the text, which is secret.
func ParseToken(text string) (t Token, err error) {
	text = strings.TrimSpace(text)
	encoded, ok := strings.CutPrefix(text, TokenPrefix)
	if !ok || len(text) > maxTokenText {
		return t, fmt.Errorf("this is no join token: it begins with %s, and a node of the cluster prints it", TokenPrefix)
	}
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(b) < 1+clusterDigits/2+2*sha256.Size+crc32.Size {
		return t, errCut
	}
	b, sum := b[:len(b)-crc32.Size], b[len(b)-crc32.Size:]
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(sum) {
		return t, errCut
	}
	if b[0] != tokenForm {
		return t, fmt.Errorf("the join token has form %d, this program knows form %d: use the version of lk that the "+
			"cluster has", b[0], tokenForm)
	}
	b = b[1:]
	t.Cluster, b = hex.EncodeToString(b[:clusterDigits/2]), b[clusterDigits/2:]
	b = b[copy(t.Authority[:], b):]
	b = b[copy(t.Secret[:], b):]
	for len(b) > 0 {
		length := int(b[0])
		if length >= len(b) {
			return t, errCut
		}
		t.Addresses, b = append(t.Addresses, string(b[1:1+length])), b[1+length:]
	}
	return t, checkAddresses(t.Addresses)
}

// checkAddresses returns an error if the addresses are not those of a token.
func checkAddresses(addresses []string) error {
	if len(addresses) == 0 || len(addresses) > MaxAddresses {
		return fmt.Errorf("a join token with %d addresses: it has 1 to %d", len(addresses), MaxAddresses)
	}
	for _, a := range addresses {
		if err := checkAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// checkAddress returns an error if text is not HOST:PORT.
func checkAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	number, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || number == 0 || host == "" || len(text) > maxAddress ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("address %.80q: write HOST:PORT, such as 10.0.0.1:7430", text)
	}
	return nil
}

// ReadToken reads the token in a file, or if file is "", in the environment variable TokenVariable. A
// file that other users may read is refused.
func ReadToken(file string) (Token, error) {
	if file == "" {
		text, ok := os.LookupEnv(TokenVariable)
		if !ok {
			return Token{}, fmt.Errorf("there is no join token: name its file, or set %s", TokenVariable)
		}
		t, err := ParseToken(text)
		if err != nil {
			return Token{}, fmt.Errorf("%s: %w", TokenVariable, err)
		}
		return t, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return Token{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return Token{}, fmt.Errorf("%s has mode %04o: other users could join the cluster with it; chmod 600 it, and if "+
			"others may have read it, make a new token", file, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenText+1))
	if err != nil {
		return Token{}, err
	}
	t, err := ParseToken(string(text))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// newSecret draws the secret of a token.
func newSecret() (secret [32]byte) {
	rand.Read(secret[:]) // never fails
	return secret
}
