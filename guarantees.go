package lockkeeper

import "strings"

// Features are what an engine can do, as a set of bits. The conformance suite
// tests what is claimed, and that the rest is refused with [ErrUnsupported].
type Features uint32

const (
	// FeatureFIFO: claims of one priority are granted in the order in which they began to wait.
	FeatureFIFO Features = 1 << iota
	// FeatureShared: shared targets (R2).
	FeatureShared
	// FeaturePermits: counting targets whose limit is each caller's own view (R7).
	FeaturePermits
	// FeatureHierarchy: paths have parents (R3).
	FeatureHierarchy
	// FeatureManyTargets: several targets in one claim, granted whole (R6).
	FeatureManyTargets
	// FeaturePriority: higher priority goes first (R4).
	FeaturePriority
	// FeatureSteal: a waiting claim may ask holders of lower priority to yield (R10).
	FeatureSteal
	// FeatureWriterPolicy: soft and timed soft writers (R9).
	FeatureWriterPolicy
	// FeatureAmend: priority, limit and mode of a claim can be changed (R14, R16).
	FeatureAmend
	// FeatureDeadlock: deadlocks are found and refused (R15).
	FeatureDeadlock
	// FeatureLongestHold: a bound on the hold (R11).
	FeatureLongestHold
	// FeatureOperator: list, watch, revoke, freeze (R18).
	FeatureOperator
	features

	// AllFeatures is what engines that run the whole table claim.
	AllFeatures = features - 1
)

var featureNames = []string{
	"fair order", "shared", "permits", "hierarchy", "many targets", "priority", "steal",
	"soft writers", "amend", "deadlock detection", "longest hold", "revoke and freeze",
}

// Names lists the features in f as people read them, in order of definition.
func (f Features) Names() []string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (f Features) String() string { return strings.Join(f.Names(), ", ") }

// Reach is how far apart the users of one engine may be.
type Reach string

// The reaches, from near to far.
const (
	InProcess Reach = "one process"
	OnMachine Reach = "one machine"
	OnNetwork Reach = "a network"
)

// Guarantees is what an engine declares of itself. The suite, the documentation
// and the commands all read it from here.
//
// An engine that wraps another one, to delay its calls or to send them elsewhere, must
// declare its own guarantees. It must clear Prompt: a client sets no deadline for calls of
// a Prompt engine, so a context would not end a call that hangs. If it can lose a hint or
// an answer, it must also clear NoExpiry and set Reach.
type Guarantees struct {
	Name     string   // of the engine, as its URL's scheme
	Features Features // what it can do
	Reach    Reach    // how far apart its users may be
	Survives string   // what its claims survive: "nothing", "kill -9 of any process", …
	Fences   string   // how long fences rise: "while the process lives", "for ever", …
	Clock    string   // whose clock ends leases
	Breaks   string   // what breaks its promises, to be read before choosing it
	NoExpiry bool     // it accepts sessions with TTL 0, which live as long as the program does (R11)
	Epoch    string   // identifies one life of an engine whose fences start again in each; else ""
	Prompt   bool     // it answers out of memory: no call of it waits for a disk, a network or another process
}

// Refuse returns the [ErrUnsupported] for what w needs and g does not claim; nil if it claims all.
func (g Guarantees) Refuse(w *Want) error {
	if missing := w.Features() &^ g.Features; missing != 0 {
		return &Error{Err: ErrUnsupported, Detail: g.Name + " does not claim: " + missing.String()}
	}
	return nil
}
