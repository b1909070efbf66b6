package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// settings are what the environment says about sending. Of each variable there is one for all that
// OpenTelemetry sends, OTEL_EXPORTER_OTLP_NAME, and one for traces, OTEL_EXPORTER_OTLP_TRACES_NAME,
// which goes before it (OpenTelemetry specification, "OpenTelemetry Protocol Exporter").
type settings struct {
	url     string
	headers map[string]string
	gzip    bool
	timeout time.Duration // of one attempt
	tls     *tls.Config
}

const (
	allPrefix    = "OTEL_EXPORTER_OTLP_"
	tracesPrefix = allPrefix + "TRACES_"

	defaultTimeout = 10 * time.Second
)

// variable returns the value of a variable, and its full name.
func variable(name string) (value, full string) {
	if v := os.Getenv(tracesPrefix + name); v != "" {
		return v, tracesPrefix + name
	}
	return os.Getenv(allPrefix + name), allPrefix + name
}

// fromEnvironment reads the settings. An error names the variable.
func fromEnvironment() (s settings, err error) {
	if p, name := variable("PROTOCOL"); p != "" && p != "http/protobuf" {
		return s, fmt.Errorf("%s=%s: only http/protobuf is supported", name, p)
	}
	if s.url, err = endpoint(); err != nil {
		return s, err
	}
	if s.headers, err = headers(); err != nil {
		return s, err
	}
	switch c, name := variable("COMPRESSION"); c {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return s, fmt.Errorf("%s=%s: want gzip or none", name, c)
	}
	s.timeout = defaultTimeout
	if t, name := variable("TIMEOUT"); t != "" {
		ms, err := strconv.ParseUint(t, 10, 31)
		if err != nil || ms == 0 {
			return s, fmt.Errorf("%s=%s: want milliseconds above 0", name, t)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	s.tls, err = certificates()
	return s, err
}

// endpoint returns the URL that spans are sent to. A variable for traces is that URL; the one for all
// is the address below which each kind of data has its path.
func endpoint() (string, error) {
	text, name := variable("ENDPOINT")
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s=%s: want a URL such as http://localhost:4318", name, text)
	}
	if strings.HasPrefix(name, tracesPrefix) {
		u.Path = cmp.Or(u.Path, "/")
	} else {
		u = u.JoinPath("v1/traces")
	}
	return u.String(), nil
}

// headers returns the headers of every request, from NAME=VALUE,… with percent-encoded values. Errors
// do not show the values, which may be secret.
func headers() (map[string]string, error) {
	text, name := variable("HEADERS")
	all := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !found || key == "" || err != nil {
			return nil, fmt.Errorf("%s: want NAME=VALUE,NAME=VALUE with percent-encoded values", name)
		}
		all[key] = value
	}
	return all, nil
}

// certificates returns the TLS configuration: nil for that of the system.
func certificates() (*tls.Config, error) {
	authority, name := variable("CERTIFICATE")
	certificate, certName := variable("CLIENT_CERTIFICATE")
	key, keyName := variable("CLIENT_KEY")
	if authority == "" && certificate == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", name, authority)
		}
	}
	if certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", certName, keyName, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
