// Package observe tells how a server and its locks are: numbers for Prometheus, an
// audit log of who got, lost and revoked what, and whether the server is ready.
//
// All of it stands beside the locks. A [Watch] follows the engine as any operator
// may, so nothing here can hold up a grant: who is too slow misses something, and
// says so.
package observe
