// Package supervise runs a command under a lease, and stops it before the lease ends, even if the
// supervising process is killed.
package supervise
