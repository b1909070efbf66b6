package lockkeeper

import (
	"errors"
	"strings"
	"testing"
)

// TestRefusalNamesTheFeatureAndWhatToUseInstead: an engine without a feature refuses its requests
// with the name of the feature and the note of the engine, and accepts all others.
func TestRefusalNamesTheFeatureAndWhatToUseInstead(t *testing.T) {
	g := Guarantees{
		Name:     "small",
		Features: AllFeatures &^ (FeatureFreeze | FeatureShared),
		Notes:    Notes{Instead: "use another engine"},
	}
	freeze := Want{Targets: []Target{{Path: "a", Mode: ModeExclusive}}, Freeze: 1}
	shared := Want{Targets: []Target{{Path: "a", Mode: ModeShared}}}
	for name, refused := range map[string]error{
		"freeze": errors.Join(g.Refuse(&freeze), g.RefuseEnding(&Ending{Kind: Thaw}), g.RefuseWithout(AllFeatures)),
		"shared": g.Refuse(&shared),
	} {
		if !errors.Is(refused, ErrUnsupported) ||
			!strings.Contains(refused.Error(), name+"; use another engine") {
			t.Errorf("refused with %v, want unsupported: %s, and the note", refused, name)
		}
	}
	for _, e := range []Ending{{Kind: Revoke}, {Kind: Release}, {Kind: Leave}, {Kind: Lapsed}} {
		if err := g.RefuseEnding(&e); err != nil {
			t.Errorf("ending %d: %v", e.Kind, err)
		}
	}
}
