//go:build !linux

package lockkeeper

import "time"

// NewBootClock returns Go's monotonic clock. Whether it goes on while the
// computer sleeps depends on the system; where it does not, a holder that slept
// past its deadline learns of its loss from the next renewal only.
func NewBootClock() func() time.Duration { return monotonicClock() }
