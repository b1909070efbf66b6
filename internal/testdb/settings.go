package testdb

// An Option is about how a server is started.
type Option func(*settings)

type settings struct {
	durable bool
	tls     *tlsFiles // of Redis
	own     [][2]string
}

// Durable keeps the settings that the database has by default for what it writes and
// remembers: it syncs its files at each commit, as in production. Without it a server
// is quick, and small: what it commits survives Kill, but not a crash of the computer.
func Durable(s *settings) { s.durable = true }

// Set gives a setting of the database a value, as its configuration file would. It is
// stronger than what this package sets; of two the later counts.
func Set(name, value string) Option {
	return func(s *settings) { s.own = append(s.own, [2]string{name, value}) }
}

// all are the settings in order, the later the stronger.
func (s settings) all(always, quick [][2]string) [][2]string {
	var all [][2]string
	all = append(all, always...)
	if !s.durable {
		all = append(all, quick...)
	}
	return append(all, s.own...)
}
