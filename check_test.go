package lockkeeper

import (
	"testing"
	"time"
)

// The messages suit a program and a terminal.
func TestInvalidRequestsSayWhatWouldBeRight(t *testing.T) {
	of := func(path string) string {
		_, err := ParsePath(path)
		return err.(*Error).Detail
	}
	session := Session{ID: "s", TTL: 500 * time.Millisecond}
	want := Want{
		ID:      1,
		Targets: []Target{{Path: "db", Mode: ModeExclusive}},
		Wait:    20 * 365 * 24 * time.Hour,
		MaxHold: -90 * time.Minute,
	}
	for got, want := range map[string]string{
		of("db/a\x01b"): `path "db/a\x01b" has the control character U+0001 at byte 4: leave it ` +
			`out, or put the text "%01" in its place, which is not decoded`,
		of("db/\u0085"): `path "db/\u0085" has the control character U+0085 at byte 3: leave it ` +
			`out, or put the text "%C2%85" in its place, which is not decoded`,
		of("db/a\xff"): `path "db/a\xff" is not UTF-8 at byte 4: leave that byte out, or put ` +
			`the text "%FF" in its place, which is not decoded`,
		session.Check(false).(*Error).Detail: "TTL 500ms is out of range: 1s to 10 years",
		want.Check().(*Error).Detail: "wait 175200h is out of range: 0 to 10 years; longest hold -1h30m is out of " +
			"range: 0 to 10 years",
		durationText(time.Hour + 30*time.Second): "1h0m30s",
		durationText(10 * time.Second):           "10s",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
