package mutants

func init() { mutants = append(mutants, ofSlots...) }

// ofSlots are bugs in slots, which keep plain claims apart from the table.
var ofSlots = []mutant{
	{
		"waiters for a path are lost when it moves from slots into the table", "internal/keeper/slotmove.go",
		`for s := n.head; s != nil; s = s.Wait.Next {`,
		`for s := n.head; s != nil && false; s = s.Wait.Next {`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a grant in a slot has the fence of the one before", "internal/keeper/slots.go",
		`next.Fence = next, k.table.DrawFence()`,
		`next.Fence = next, k.table.Counters().Fences`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a slot is granted though the table has got a claim that meets it", "internal/keeper/slotmove.go",
		`k.slots.version++ // this claim may make paths used`,
		`_ = w // this claim may make paths used`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a slot is granted though one that meets it has moved into the table", "internal/keeper/slotmove.go",
		`	k.slots.version++
	if err`,
		`	if err`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a path and one below it are held in slots at once", "internal/keeper/slots.go",
		`		if n.meets() {`,
		`		if n.below < 0 {`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a claim takes what a slot above its path holds", "internal/keeper/slotmove.go",
		`if n := k.slots.nodes[above]; n != nil && n.holder != nil {`,
		`if n := k.slots.nodes[above]; n != nil && n.below < 0 {`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a plain lock outlives the takeover of its session", "internal/keeper/keeper.go",
		`	k.moveSession(s.ID)
	k.command.Op, k.command.Session`,
		`	k.command.Op, k.command.Session`,
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a plain lock can be revoked only after somebody has met it", "internal/keeper/slotmove.go",
		`		k.moveRef(e.Ref)
`,
		"",
		"internal/keeper TestSlotsAreTheTable",
	},
	{
		"a plain lock that is released twice is no error", "hold.go",
		`			return s.released("release")`,
		`			return nil`,
		". TestReleasedHoldIsNeverTheNext",
	},
	{
		"a plain lock that its caller gave up stays", "plain.go",
		`if s.Owner.Slots.Give(s) != SlotMoved {`,
		`if s.State() != SlotMoved {`,
		". TestPlainLocksLookTheSame",
	},
	{
		"a plain lock outlives its client", "close.go",
		`	c.closeSlots() // from now on all that it holds are claims
`,
		"",
		". TestPlainLocksLookTheSame",
	},
}
