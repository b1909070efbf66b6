package sqllock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxOptionFile bounds the bytes read of an option file.
const maxOptionFile = 1 << 20

// addFile adds the client options of ~/.my.cnf that the URL does not set. Without a home or that
// file it adds nothing.
func (m *mysqlSettings) addFile() error {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	name := filepath.Join(home, ".my.cnf")
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxOptionFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxOptionFile {
		return fmt.Errorf("%s has more than %d bytes", name, maxOptionFile)
	}
	found := clientOptions(string(text))
	if m.host != "" || m.socket != "" {
		found["host"], found["socket"] = "", "" // the URL says which server
	}
	for option, to := range map[string]*string{
		"user":     &m.user,
		"password": &m.password,
		"host":     &m.host,
		"port":     &m.port,
		"socket":   &m.socket,
	} {
		if *to == "" {
			*to = found[option]
		}
	}
	return nil
}

// clientOptions returns the options for all clients in an option file of MariaDB and MySQL. Of an
// option that is there twice the later counts.
func clientOptions(text string) map[string]string {
	found := make(map[string]string)
	ours := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsRune("#;!", rune(line[0])) {
			continue
		}
		if line[0] == '[' {
			group, _, _ := strings.Cut(line[1:], "]")
			ours = group == "client" || group == "client-server" || group == "client-mariadb"
			continue
		}
		if option, value, _ := strings.Cut(line, "="); ours {
			found[strings.TrimSpace(option)] = optionValue(strings.TrimSpace(value))
		}
	}
	return found
}

// optionValue returns a value without its quotes, escapes and the comment after it.
func optionValue(text string) string {
	var value strings.Builder
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			value.WriteString(escaped(text[i]))
		case quote == 0 && i == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			return value.String()
		case quote == 0 && c == '#':
			return strings.TrimSpace(value.String())
		default:
			value.WriteByte(c)
		}
	}
	return value.String()
}

// escaped returns what a backslash and a letter stand for.
func escaped(c byte) string {
	switch c {
	case 'b':
		return "\b"
	case 't':
		return "\t"
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 's':
		return " "
	case '\\', '"', '\'':
		return string(c)
	}
	return `\` + string(c)
}
