package interleave_test

import (
	"strings"
	"testing"
)

// TestUnsupportedCodeIsRefused rewrites code that the scheduler would not see: each error says what
// to do.
func TestUnsupportedCodeIsRefused(t *testing.T) {
	const owner = "import \"sync\"\ntype Owner struct { mu sync.Mutex; ended bool; name string }\n"
	for name, c := range map[string]struct{ text, want string }{
		"a package":            {`import "os"`, "semaphore imports os"},
		"a clock":              {`import "time"`, "semaphore imports time"},
		"a go statement":       {"func f() { go f() }", "a go statement"},
		"a channel":            {"func f() { _ = make(chan int) }", "a channel"},
		"a select":             {"func f() { select {} }", "a select"},
		"a field that changes": {owner + "func (o *Owner) f() { o.name = \"x\" }", "Owner.f changes Owner.name"},
		"a field that is counted": {owner + "type entry struct{ uses int }\nfunc f(e *entry) { e.uses++ }",
			"f changes entry.uses"},
		"a field that is passed on": {owner + "func (o *Owner) f() { g(&o.name) }\nfunc g(*string) {}",
			"Owner.f changes Owner.name"},
		"a variable": {"var uses int\nfunc f() { uses++ }", "f changes uses"},
		"a field without its mutex": {"type Owner struct { ended bool }\nfunc (o *Owner) f() bool { return o.ended }",
			"imports no shimmed package"},
		"what may be": {owner + "func (o *Owner) f() { o.ended = true }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite(map[string]string{"x.go": "package semaphore\n" + c.text + "\n"})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestRewrite(t *testing.T) {
	const text = `package semaphore
import (
	"slices"
	"sync"
	at "sync/atomic"
)
type Owner struct { mu sync.Mutex; ended bool; n at.Int64; slots []int }
func (o *Owner) f() { if !o.ended { o.slots = slices.Clip(o.slots) } }
`
	const want = `package semaphore
import (
	"slices"
	sync "github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
	at "github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)
type Owner struct { mu sync.Mutex; ended bool; n at.Int64; slots []int }
func (o *Owner) f() { if !(*at.Guarded(&o.ended, &o.mu)) { (*at.Guarded(&o.slots, &o.mu)) = slices.Clip((*at.Guarded(&o.slots, &o.mu))) } }
`
	got, err := rewrite(map[string]string{"x.go": text})
	if err != nil || got["x.go"] != want {
		t.Errorf("%v\n%s", err, got["x.go"])
	}
}

// TestMissingShimDoesNotBuild plants a mutex that the shim does not have.
func TestMissingShimDoesNotBuild(t *testing.T) {
	p := patch{"owner.go", "sync.Mutex // taken before", "sync.RWMutex // taken before"}
	_, _, err := compile(t, append([]patch{p}, knobs...))
	if err == nil || !strings.Contains(err.Error(), "RWMutex") {
		t.Errorf("with an RWMutex: %v, want an error of the compiler", err)
	}
}
