package observe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// lateStarter leaves freezes to Claim; all other claims are answered when later is called.
type lateStarter struct {
	lockkeeper.Engine
	later func()
}

func (e *lateStarter) StartClaim(_ context.Context, _ lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	e.later = func() { answer(lockkeeper.Status{}, lockkeeper.ErrUnavailable) }
	return w.Freeze == 0
}

func (e *lateStarter) StartEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending,
	answer func(error)) bool {
	answer(e.End(ctx, k, ending))
	return true
}

// A call that is started is counted once, and its error when it is answered. One that is not started is
// not counted: its plain method is called.
func TestStartedCallsAreCounted(t *testing.T) {
	m := NewMetrics(Sources{})
	e := &lateStarter{Engine: memlock.New()}
	defer e.Close()
	starter, ok := m.Counted(struct {
		lockkeeper.Engine
		lockkeeper.Starter
	}{e.Engine, e}).(lockkeeper.Starter)
	if !ok {
		t.Fatal("the counted engine starts no calls")
	}
	ctx, key := t.Context(), lockkeeper.Key{Session: "no such"}
	var answers []error
	claimed := func(_ lockkeeper.Status, err error) { answers = append(answers, err) }
	if starter.StartClaim(ctx, key, lockkeeper.Want{Freeze: time.Minute}, claimed) {
		t.Error("a freeze is started")
	}
	if !starter.StartClaim(ctx, key, lockkeeper.Want{}, claimed) {
		t.Error("a claim is not started")
	}
	if n := value(t, m, "lockkeeper_engine_errors_total", "unavailable"); n != "0" {
		t.Errorf("%s errors before the answer", n)
	}
	e.later()
	ended := func(err error) { answers = append(answers, err) }
	if !starter.StartEnd(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Leave}, ended) {
		t.Error("an ending is not started")
	}
	if len(answers) != 2 || !errors.Is(answers[0], lockkeeper.ErrUnavailable) || !errors.Is(answers[1],
		lockkeeper.ErrSession) {
		t.Errorf("answered by %v", answers)
	}
	expect(t, m, `
		engine_calls_total claim: 1
		engine_calls_total end: 1
		engine_errors_total unavailable: 1
		engine_errors_total session: 1`)
}
