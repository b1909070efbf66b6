package sqllock

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// mysqlConnector returns a connector for a URL. It takes what the URL does not name from where the
// client of MySQL takes it.
func mysqlConnector(a address) (driver.Connector, error) {
	config := mysqldriver.NewConfig()
	config.Timeout = connectBound
	config.Logger = &mysqldriver.NopLogger{} // it would write to stderr what is an error anyway
	config.ConnectionAttributes = "program_name:lockkeeper"
	config.RejectReadOnly = true  // after a failover, look for the server that can be written to
	config.ClientFoundRows = true // an update that changes nothing counts its row
	// Several statements in one packet are one round trip, and a packet that begins with the
	// isolation level of its transaction needs no setting of the connection. The driver writes the
	// values into the text, since a prepared statement can't be several statements.
	config.MultiStatements = true
	config.InterpolateParams = true
	config.Params = map[string]string{"autocommit": "1"} // whatever the server's default is: some statements are alone
	settings := mysqlSettings{}
	if err := settings.read(a); err != nil {
		return nil, err
	}
	if err := settings.addFile(); err != nil {
		return nil, a.invalid("%v", err)
	}
	var err error
	if config.DBName, err = url.PathUnescape(strings.TrimPrefix(a.path, "/")); err != nil || config.DBName == "" ||
		strings.Contains(a.path[1:], "/") {
		return nil, a.invalid("it names no database: write mysql://HOST/DATABASE, such as mysql://127.0.0.1/locks")
	}
	config.User, config.Passwd = settings.user, cmp.Or(settings.password, os.Getenv("MYSQL_PWD"))
	if config.User == "" {
		if me, err := user.Current(); err == nil {
			config.User = me.Username
		}
	}
	config.Net, config.Addr = "tcp", net.JoinHostPort(cmp.Or(settings.host, "127.0.0.1"), cmp.Or(settings.port, "3306"))
	if settings.host == "" && settings.socket != "" {
		config.Net, config.Addr = "unix", settings.socket
	}
	if err := settings.secure(config); err != nil {
		return nil, a.invalid("%v", err)
	}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return nil, a.invalid("%v", err)
	}
	return boundedConnector{connector, connectBound}, nil
}

// boundedConnector bounds the time to connect as a whole: the bound of the driver covers only the
// dialing, and a server that then says nothing would block forever.
type boundedConnector struct {
	driver.Connector
	bound time.Duration
}

// Connect implements driver.Connector.
func (c boundedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	conn, err := c.Connector.Connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("it did not answer within %v: %w", c.bound, err)
	}
	return conn, err
}

// mysqlSettings are the settings of the URL and the option file; "" is not set.
type mysqlSettings struct {
	user, password, host, port, socket string
	tls, ca, cert, key                 string
}

// read reads the settings of the URL.
func (m *mysqlSettings) read(a address) error {
	name, password, _ := strings.Cut(strings.TrimSuffix(a.userinfo, "@"), ":")
	var wrongUser, wrongPassword error
	m.user, wrongUser = url.PathUnescape(name)
	m.password, wrongPassword = url.PathUnescape(password)
	if wrongUser != nil || wrongPassword != nil {
		return a.invalid("the user or the password can't be read: write %%25 for a %%")
	}
	if err := m.readHost(a); err != nil {
		return err
	}
	known := map[string]*string{"socket": &m.socket, "tls": &m.tls, "ca": &m.ca, "cert": &m.cert, "key": &m.key}
	for _, p := range a.query {
		to := known[p.name]
		if to == nil {
			return a.invalid("it has no parameter %q: there are prefix, migrate, pool, socket, tls, ca, cert and key", p.name)
		}
		*to = p.value
	}
	if m.host != "" && m.socket != "" {
		return a.invalid("it names a host and a socket: name one of them, such as " +
			"mysql:///locks?socket=/run/mysqld/mysqld.sock")
	}
	return nil
}

// readHost reads the host and the port.
func (m *mysqlSettings) readHost(a address) error {
	m.host = a.host
	if i := strings.LastIndexByte(a.host, ':'); i >= 0 && !strings.HasSuffix(a.host, "]") {
		m.host, m.port = a.host[:i], a.host[i+1:]
		if n, err := strconv.Atoi(m.port); err != nil || n < 1 || n > 65535 {
			return a.invalid("the port is a number from 1 to 65535")
		}
	}
	m.host = strings.TrimSuffix(strings.TrimPrefix(m.host, "["), "]")
	if strings.Contains(m.host, ",") || (strings.Contains(m.host, ":") && net.ParseIP(m.host) == nil) {
		return a.invalid("it names no host: write one name or address, such as mysql://127.0.0.1:3306/locks")
	}
	return nil
}

// secure makes the connections encrypted.
func (m *mysqlSettings) secure(config *mysqldriver.Config) error {
	files := m.ca + m.cert + m.key
	switch {
	case m.tls == "" && files != "":
		m.tls = "true"
	case m.tls == "" && config.Net == "unix":
		m.tls = "false"
	case m.tls == "":
		m.tls = "preferred" // as its own client
	}
	switch m.tls {
	case "true", "skip-verify", "preferred", "false":
	default:
		return errors.New("tls=" + m.tls + ": write true, skip-verify, preferred or false")
	}
	config.TLSConfig = m.tls
	if files == "" {
		return nil
	}
	if m.tls != "true" {
		return errors.New("tls=" + m.tls + " has no use for ca, cert and key: write tls=true")
	}
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if m.ca != "" {
		pem, err := os.ReadFile(m.ca)
		if err != nil {
			return err
		}
		config.TLS.RootCAs = x509.NewCertPool()
		if !config.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New(m.ca + " has no certificate in PEM")
		}
	}
	if m.cert == "" && m.key == "" {
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(m.cert, m.key)
	config.TLS.Certificates = []tls.Certificate{certificate}
	return err
}
