package duration

import "testing"

func TestTTLPart(t *testing.T) {
	for text, want := range map[string]int{"0.5ttl": 500, "1ttl": 1000, ".25ttl": 250, "0.0004ttl": 0, "2ttl": 2000,
		"0.001ttl": 1} {
		if got, is := TTLPart(text); !is || got != want {
			t.Errorf("%q is %d, %t; want %d", text, got, is, want)
		}
	}
	for _, text := range []string{"", "ttl", "0.5", "0.5s", "-1ttl", "+1ttl", "nanttl", "infttl", "1e99ttl", "0.5TTL"} {
		if got, is := TTLPart(text); is {
			t.Errorf("%q is %d thousandths, want it refused", text, got)
		}
	}
	for n := range 1001 {
		if got, is := TTLPart(TTLPartText(n)); !is || got != n {
			t.Errorf("%d is written as %s and read as %d, %t", n, TTLPartText(n), got, is)
		}
	}
}
