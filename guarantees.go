package lockkeeper

import "strings"

// Features are a set of abilities of an engine, one bit each. The conformance suite tests the
// claimed features, and that the engine refuses the others with [ErrUnsupported].
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
	// FeatureList: Engine.List yields claims, and follows their changes (R17).
	FeatureList
	// FeatureRevoke: an operator can end any claim (R18).
	FeatureRevoke
	// FeatureFreeze: an operator can forbid new grants on paths (R18).
	FeatureFreeze
	// FeatureFences: the fence of every grant is higher than those of all earlier grants on the paths
	// that Guarantees.FenceScope says, for as long as Guarantees.Fences says (R13). Without it a fence
	// marks only that there was a grant.
	FeatureFences
	// FeatureOnce: a claim is made at most once. A request that arrives again makes nothing, even
	// long after its claim has ended: the engine heeds Key.LowestOpen (R16). Without it the engine
	// remembers an ended claim only for the TTL of its session.
	FeatureOnce
	// FeatureEstimate: estimates of waits count with how long holds of the path lately lasted
	// (R17). Without it they count with announced durations at most.
	FeatureEstimate
	// FeatureMeasuredSteal: the engine measures how long holders take to yield, and accepts
	// AfterMeasured (R10).
	FeatureMeasuredSteal
	features

	// AllFeatures is the set of all features. No engine claims it.
	AllFeatures = features - 1
	// TableFeatures is the set that engines with every rule of package table claim.
	TableFeatures = AllFeatures &^ FeatureMeasuredSteal
)

var featureNames = []string{
	"fair order", "shared", "permits", "hierarchy", "many targets", "priority", "steal",
	"soft writers", "amend", "deadlock detection", "longest hold", "list and watch",
	"revoke", "freeze", "rising fences", "at most once", "estimates",
	"measured steal",
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

// Survival is the worst event that the claims of an engine survive.
type Survival string

// From the least to the most that claims survive.
const (
	SurvivesNothing   Survival = "nothing"
	SurvivesKill      Survival = "kill -9 of any process"
	SurvivesPowerLoss Survival = "kill -9 and power loss"
)

// FenceSpan is how long the fences of an engine rise.
type FenceSpan string

// The spans, from the shortest to the longest. FencesNever goes with an engine that does not
// claim [FeatureFences].
const (
	FencesNever   FenceSpan = "never"
	FencesPerLife FenceSpan = "while the process lives" // Guarantees.Epoch names the life
	FencesForever FenceSpan = "forever"
)

// FenceScope says which grants the fences of an engine put in order.
type FenceScope string

// The scopes. A resource that several paths protect can compare fences only of an engine with
// FencesOverAll.
const (
	FencesOverAll FenceScope = "over all paths"
	FencesPerPath FenceScope = "on each path by itself" // grants without a common path may have any fences
)

// ClockKind is the clock by which an engine ends leases.
type ClockKind string

// The kinds of clocks.
const (
	ClockProcess  ClockKind = "the monotonic clock of the process"
	ClockBoot     ClockKind = "the boot clock of the computer"
	ClockDatabase ClockKind = "the clock of the database"
	ClockServers  ClockKind = "the clock of each of several servers"
)

// Guarantees are an engine's declaration of its features, promises and limits. The conformance
// suite, the documentation and the commands all read it.
//
// An engine that wraps another one, to delay its calls or to send them elsewhere, must
// declare its own guarantees. It must clear Prompt: a client sets no deadline for calls of
// a Prompt engine, so a context would not end a call that hangs. If it can lose a hint or
// an answer, it must also clear NoExpiry and set Reach.
type Guarantees struct {
	Name       string     // of the engine, as its URL's scheme
	Features   Features   // what it can do
	Reach      Reach      // how far apart its users may be
	Survives   Survival   // what its claims survive
	Fences     FenceSpan  // how long its fences rise
	FenceScope FenceScope // which grants its fences put in order; "" if it does not claim FeatureFences
	Clock      ClockKind  // which clock ends leases
	Notes      Notes      // for people: the conditions of Survives, Fences and Clock
	Breaks     string     // what breaks its promises, to be read before choosing it
	NoExpiry   bool       // it accepts sessions with TTL 0, which live as long as the program does (R11)
	Epoch      string     // names one life of an engine whose fences start again in each; else ""
	Partial    bool       // this user may not look everywhere: lists, watchers and counts lack what is hidden from it
	Prompt     bool       // it answers out of memory: no call of it waits for a disk, a network or another process
}

// Notes are the conditions and limits of guarantees, in words; "" where there are none. Instead says
// what to use for the features that the engine does not claim.
type Notes struct{ Survives, Fences, Clock, Instead string }

// FencesRise says for people how long fences rise and on which paths.
func (g Guarantees) FencesRise() string {
	if g.FenceScope == "" {
		return string(g.Fences)
	}
	return string(g.Fences) + ", " + string(g.FenceScope)
}

// Text returns Survives, Fences and Clock for people, each with its note.
func (g Guarantees) Text() (survives, fences, clock string) {
	noted := func(guarantee, note string) string {
		if note == "" {
			return guarantee
		}
		return guarantee + "; " + note
	}
	return noted(string(g.Survives), g.Notes.Survives), noted(g.FencesRise(), g.Notes.Fences),
		noted(string(g.Clock), g.Notes.Clock)
}

// Refuse returns an [ErrUnsupported] with the features that w needs and g does not claim; nil if g
// claims all of them.
func (g Guarantees) Refuse(w *Want) error { return g.RefuseWithout(w.Features()) }

// RefuseEnding returns an [ErrUnsupported] if e needs a feature that g does not claim; else nil.
func (g Guarantees) RefuseEnding(e *Ending) error {
	switch e.Kind {
	case Revoke:
		return g.RefuseWithout(FeatureRevoke)
	case Thaw:
		return g.RefuseWithout(FeatureFreeze)
	}
	return nil
}

// RefuseWithout returns an [ErrUnsupported] that names the features of needed that g does not claim,
// and what to use instead; nil if g claims them all.
func (g Guarantees) RefuseWithout(needed Features) error {
	missing := needed &^ g.Features
	if missing == 0 {
		return nil
	}
	detail := g.Name + " does not support: " + missing.String()
	if missing&FeatureHierarchy != 0 {
		detail += " (its paths have one part: write a-b for a/b)"
	}
	if missing&FeatureMeasuredSteal != 0 {
		detail += " (say after how long: a duration, or a part of the TTL)"
	}
	if g.Notes.Instead != "" {
		detail += "; " + g.Notes.Instead
	}
	return &Error{Err: ErrUnsupported, Detail: detail}
}
