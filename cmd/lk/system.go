package main

// systemLacks describes what lk can't do on an operating system; empty if nothing. lk run --help
// and lk doctor print it on that system.
func systemLacks(goos string) string {
	switch goos {
	case "linux":
		return ""
	case "windows", "plan9", "js", "wasip1":
		return "lk run needs the process groups of a Unix and does not work here; the other verbs do"
	}
	return "if lk itself is killed (kill -9), its command is not: it keeps the lock for at most the TTL"
}

// systemNote is systemLacks as a paragraph of help.
func systemNote(goos string) string {
	if lacks := systemLacks(goos); lacks != "" {
		return "\n\nOn this system (" + goos + ") " + lacks + "."
	}
	return ""
}
