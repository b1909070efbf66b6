package story

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

func TestRecordNamesAllFieldsThatAreSet(t *testing.T) {
	r := table.ClaimRecord{
		Ref: lockkeeper.Ref{Session: "ann", ID: 7}, State: lockkeeper.Held, Bound: lockkeeper.Forever,
		Want: lockkeeper.Want{
			ID: 7, MaxHold: time.Hour, Label: lockkeeper.Label{Note: "a b"},
			Targets: []lockkeeper.Target{{Path: "db/a", Mode: lockkeeper.ModePermits, Units: 1, Limit: 3}},
		},
		Asks:     []table.AskRecord{{By: lockkeeper.Ref{Session: "bob", ID: 1}}},
		Operator: &table.OperatorRecord{Label: lockkeeper.Label{As: "ops"}, End: time.Second},
		Overdue:  true,
	}
	const want = `ref=ann.7 want={id=7 targets=[{path=db/a mode=permits units=1 limit=3}] max-hold=1h note="a b"} ` +
		`state=held bound=forever overdue=true asks=[{by=bob.1}] operator={as=ops end=1s}`
	if got := Record(&r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
