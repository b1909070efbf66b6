package main

// A habit is a verb or flag of another lock tool that users type, and its equivalent in
// lk. Sources: flock(1), etcdctl(1) lock and elect, consul lock, and
// the names that lock libraries have for these calls.
type habit struct {
	word string // a verb; or a flag, with its dashes
	say  string
}

// habits are words that lk does not have but answers with a hint.
var habits = []habit{
	{"lock", runsUnderLock}, {"acquire", runsUnderLock}, {"get", runsUnderLock}, {"exec", runsUnderLock},
	{"with", runsUnderLock}, {"do", runsUnderLock}, {"flock", runsUnderLock},
	{"try", "lk run --try PATH -- COMMAND runs the command only if nobody has PATH"},
	{"unlock", "lk release gives back what lk grab took; what lk run holds ends with its command"},
	{"drop", "lk release gives back what lk grab took"},
	{"semaphore", "lk run -n 3 PATH -- COMMAND lets at most three run at a time"},
	{"elect", "lk run PATH -- COMMAND: the process that holds PATH leads"},
	{"campaign", "lk run PATH -- COMMAND: the process that holds PATH leads"},
	{"show", "lk ls lists claims"}, {"list", "lk ls lists claims"}, {"locks", "lk ls lists claims"},
	{"extend", "lk renew renews what lk grab took"}, {"refresh", "lk renew renews what lk grab took"},
	{"keepalive", "lk keep renews what lk grab took until a process ends"},
	{"reserve", "lk grab holds PATH for a name, across the steps of a script"},

	{"-e", "a path is held alone unless -s or -n is given"}, {"-x", "a path is held alone unless -s or -n is given"},
	{"--exclusive", "a path is held alone unless -s or -n is given"},
	{"--read", "-s shares PATH with others who share it"},
	{"--nonblock", "--try does not wait"}, {"--nonblocking", "--try does not wait"}, {"--nb", "--try does not wait"},
	{"--timeout", "--wait 5s waits for at most five seconds"},
	{"-c", commandLast}, {"--command", commandLast},
	{"-o", "no flag is needed: background processes of the command do not hold the lock"},
	{"--close", "no flag is needed: background processes of the command do not hold the lock"},
	{"-u", "lk run releases the lock when its command ends; lk release gives back what lk grab took"},
	{"--unlock", "lk run releases the lock when its command ends; lk release gives back what lk grab took"},
	{"-F", "lk keeps running, to stop the command before anyone else gets the lock"},
	{"--no-fork", "lk keeps running, to stop the command before anyone else gets the lock"},
	{"--child-exit-code", "lk always ends with the command's own exit code"},
	{"--shell", "lk runs the command without a shell; for one write -- sh -c '...'"},
	{"--name", "--as says who holds it"}, {"--lease", "--ttl bounds how long a lock outlives its holder"},
}

const (
	runsUnderLock = "lk run PATH -- COMMAND runs a command under a lock; lk grab PATH --as NAME holds one without a " +
		"command"
	commandLast = "the command stands after --, as in: lk run mydatabase/mytest -- sh -c 'make test'"
)

// habitSays returns the equivalent of another tool's verb or flag, "" if there is none.
func habitSays(word string) string {
	for _, h := range habits {
		if h.word == word {
			return h.say
		}
	}
	return ""
}
