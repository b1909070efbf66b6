package page_test

import (
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestRowsForgetNoChange: the rows that the page keeps are those that it would make without memory, after every step of
// random sequences of claims, freezes and folds.
func TestRowsForgetNoChange(t *testing.T) {
	testmode.NeedLong(t, "a browser starts in seconds")
	c, w := startChromium(t), newTown(t, nil)
	w.login(c, "ops")
	if wrong := c.eval(forgotten); wrong != "" {
		t.Error(wrong)
	}
}

// forgotten returns the first step after which rows differ; "" if none do.
const forgotten = `import("/page/forest.js").then(({ Forest, rowsOf }) => {
	for (let seed = 1; seed <= 40; seed++) {
		let state = seed * 7919;
		const draw = (n) => (state = (state * 48271) % 2147483647) % n;
		const path = () => Array.from({ length: 1 + draw(3) }, () => "ab"[draw(2)]).join("/");
		const forest = new Forest();
		const claims = new Map();
		const how = { text: "", only: "", closed: new Set(), whole: new Set() };
		const steps = [];
		for (let step = 0; step < 200; step++) {
			const at = path();
			const old = claims.get(draw(30) + 1);
			switch (draw(6)) {
			case 0: case 1: {
				const id = draw(30) + 1;
				const st = { claim: "c" + id, state: draw(2) ? "held" : "waiting", targets: [{ path: at }], ticket: id, fence: id };
				forest.put(st, claims.get(id));
				claims.set(id, st);
				steps.push("put " + st.claim + " " + st.state + " " + at);
				break;
			}
			case 2:
				if (!old) continue;
				forest.remove(old);
				claims.forEach((st, id) => st === old && claims.delete(id));
				steps.push("remove " + old.claim);
				break;
			case 3:
				if (draw(2)) forest.freeze(at, { as: "ops" });
				else forest.freeze(at, null);
				steps.push("freeze or thaw " + at);
				break;
			default: {
				const set = draw(2) ? how.closed : how.whole;
				if (!set.delete(at)) set.add(at);
				forest.touch(at);
				steps.push("fold " + at);
			}
			}
			const kept = JSON.stringify(rowsOf(forest, how));
			for (const node of forest.nodes.values()) node.drawn = null;
			const fresh = JSON.stringify(rowsOf(forest, how));
			if (kept !== fresh) return "seed " + seed + ": " + steps.slice(-5).join(", ") + "\n" + kept + "\n" + fresh;
			if (draw(2)) rowsOf(forest, how); // kept for the next step
		}
	}
	return "";
})`
