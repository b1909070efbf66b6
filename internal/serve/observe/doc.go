// Package observe reports the state of a server and its locks: metrics for Prometheus, an audit log
// of grants, ends and operators' acts, and readiness.
//
// A [Watch] follows the engine as any operator may, so observation never delays a grant. If it
// falls behind or loses the list, it misses events, and reports the gap in metrics and in the audit
// log.
//
//	following ──list fails──> pause ──> following again: claims listed before and not now are
//	                                    looked up one by one (reconcileMissing)
package observe
