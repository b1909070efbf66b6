package httpapi

import (
	"encoding/json"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// A stealField is a durationField, a part of the holder's TTL such as "0.5ttl", or "auto".
type stealField struct {
	after time.Duration
	part  int // thousandths of the TTL; 0: after counts
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *stealField) UnmarshalJSON(text []byte) error {
	*s = stealField{}
	var written string
	if json.Unmarshal(text, &written) == nil {
		if written == "auto" {
			s.after = lockkeeper.AfterMeasured
			return nil
		}
		if part, is := duration.TTLPart(written); is {
			if s.part = part; part < 1 || part > lockkeeper.MaxAfterTTL {
				return lockkeeper.Invalid("steal_after %s is out of range: \"0.001ttl\" to \"1ttl\"", quoted(written))
			}
			return nil
		}
	}
	return (*durationField)(&s.after).UnmarshalJSON(text)
}

// apply makes w a claim that takes.
func (s *stealField) apply(w *lockkeeper.Want) {
	w.Steal, w.After, w.AfterTTL = lockkeeper.Take, s.after, s.part
}
