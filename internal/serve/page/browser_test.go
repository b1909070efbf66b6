package page_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/httpapi"
	"github.com/lockkeeper/lockkeeper/internal/serve/observe"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A town is a server with locks: ops may do everything, ci may lock, eye may look at site.
type town struct {
	testing.TB
	engine lockkeeper.Engine
	policy *access.Policy
	gate   *access.Gate
	api    *httpapi.API
	server *http.Server
	at     string // HOST:PORT
	secret map[string]string
}

// newTown returns a town whose server belongs to a cluster, unless that is nil.
func newTown(t testing.TB, cluster func() lockkeeper.ClusterStatus) *town {
	w := &town{TB: t, engine: memlock.New(), secret: make(map[string]string), at: "127.0.0.1:0"}
	t.Cleanup(func() { w.engine.Close() })
	policy := new(access.Policy)
	for name, rule := range map[string]access.Rule{
		"ops": {May: []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze}, Paths: []string{"*"}},
		"ci":  {May: []access.Verb{access.Look, access.Lock}, Paths: []string{"*"}},
		"eye": {May: []access.Verb{access.Look}, Paths: []string{"site"}},
	} {
		secret, digest := access.NewToken()
		w.secret[name], rule.Who = secret, []string{name}
		policy.Tokens = append(policy.Tokens, access.Token{Name: name, Digest: digest})
		policy.Rules = append(policy.Rules, rule)
	}
	w.policy, w.gate = policy, access.New(w.engine, policy, access.Options{})
	w.api = httpapi.New(w.gate, httpapi.Options{Version: "v1", Cluster: cluster})
	watch := observe.NewWatch(w.engine, nil, nil, nil)
	watch.Notify(w.api.History())
	go watch.Run(t.Context())
	w.serve()
	t.Cleanup(func() { w.server.Close() })
	return w
}

// serve begins to serve, at the same address as before.
func (w *town) serve() {
	w.Helper()
	l, err := net.Listen("tcp", w.at)
	if err != nil {
		w.Fatal(err)
	}
	w.at, w.server = l.Addr().String(), w.api.Server()
	go w.server.Serve(l)
}

// claim makes a claim of ci, held or waiting, and returns its reference.
func (w *town) claim(body string) string {
	w.Helper()
	r, _ := http.NewRequest("POST", "http://"+w.at+"/v1/claims?poll=0", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.secret["ci"])
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	var st lockkeeper.Status
	if err != nil || answer.StatusCode > 299 || json.Unmarshal(text, &st) != nil {
		w.Fatalf("%s: %d %s (%v)", body, answer.StatusCode, text, err)
	}
	return st.Ref.String()
}

// release ends a claim of ci.
func (w *town) release(ref string) {
	w.Helper()
	r, _ := http.NewRequest("DELETE", "http://"+w.at+"/v1/claims/"+ref, nil)
	r.Header.Set("Authorization", "Bearer "+w.secret["ci"])
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != 204 {
		w.Fatal(answer, err)
	}
	answer.Body.Close()
}

// exists reports whether the engine has a claim of ci that is held or waits.
func (w *town) exists(ref string) bool {
	for st, err := range w.engine.List(w.Context(), lockkeeper.Query{}) {
		if err == nil && st.Ref.String() == "ci:"+ref {
			return true
		}
	}
	return false
}

// login logs in as a person does: by typing.
func (w *town) login(c *chromium, name string) {
	w.Helper()
	c.opens("http://" + w.at + "/")
	c.shows("Token")
	c.types(w.secret[name])
	c.presses("Enter")
	c.shows("Live")
}

const long = `,"ttl":"1h","wait":"forever"}`

// TestPageInABrowser: the page works in a browser: login, live changes, keys, actions, a cut stream,
// rights, and names that pretend to be something else.
func TestPageInABrowser(t *testing.T) {
	testmode.NeedLong(t, "a browser starts in seconds; the server's part is in package httpapi")
	c := startChromium(t)
	w := newTown(t, nil)
	c.resizes(1360, 860, "light")
	w.release(w.claim(`{"path":"plotter","as":"early bird"` + long))
	deploy := w.claim(`{"path":"site/eu","as":"deploy","note":"release 41","max_hold":"30m"` + long)
	w.claim(`{"path":"site","as":"backup","note":"nightly dump"` + long)
	w.claim(`{"path":"site/eu/db","as":"report"` + long)
	w.claim(`{"path":"mydatabase/mytest1","as":"ci-17","note":"go test ./..."` + long)
	w.claim(`{"path":"mydatabase/mytest2","as":"ci-18","note":"go test ./..."` + long)
	w.claim(`{"path":"mydatabase","as":"cleaner","note":"weekly reset"` + long)
	w.claim(`{"path":"router7","limit":3,"as":"snmp-1"` + long)
	w.claim(`{"path":"router7","limit":3,"as":"snmp-2"` + long)

	c.opens("http://" + w.at + "/")
	c.shows("Token")
	c.types("lk_wrong")
	c.presses("Enter")
	c.shows("You are not logged in: the token is unknown here, or no longer valid.")
	w.login(c, "ops")
	c.shows("early bird no longer has plotter") // before anybody looked
	c.shows("1st in line · held by deploy")
	c.awaits(`document.querySelector(".figures").textContent === "held5waiting3frozen0"`)
	c.photographs("overview")

	t.Run("a change appears", func(t *testing.T) {
		again := w.claim(`{"path":"printer","as":"ann","note":"posters"` + long)
		c.shows("posters")
		c.eval(`[...document.querySelectorAll(".row.path")].find((r) => r.textContent.includes("printer")).click()`)
		c.awaits(`document.querySelector(".timeline td:nth-child(3)")?.textContent.replace("\u00a0", " ") === "0 s"`)
		if c.eval(longestTimes) != true {
			t.Error("a long time runs over its column of the timeline")
		}
		c.presses("Escape")
		w.release(again)
		c.awaits(`!document.querySelector(".tree").innerText.includes("posters")`)
		c.shows("no longer has printer")
	})
	t.Run("hostile names are text", func(t *testing.T) {
		name := `<img src=x onerror="document.title='owned'">`
		ref := w.claim(`{"path":"evil/<b>x</b>","as":` + quote(name) +
			`,"note":"a\u202eb","link":"javascript:alert(1)"` + long)
		c.shows(name)
		c.shows(`a\u{202e}b`)
		c.eval(`[...document.querySelectorAll(".row.claim")].find((r) => r.textContent.includes("onerror")).click()`)
		c.shows("javascript:alert(1)")
		c.photographs("hostile")
		if n := c.eval(`document.querySelectorAll("img, b, a[href^=javascript]").length`); n != 0.0 {
			t.Errorf("%v elements are made of names", n)
		}
		w.release(ref)
		c.presses("Escape")
	})
	t.Run("keys search, choose and go back", func(t *testing.T) { keysWork(t, c) })
	t.Run("revoke, freeze and thaw by keys", func(t *testing.T) { actionsWork(t, c, w, deploy) })
	t.Run("a reload forgets nothing", func(t *testing.T) {
		c.call("Page.reload", nil, nil)
		c.shows("revoked: it hangs")
		c.shows("Live")
	})
	t.Run("an earlier step has no false time", func(t *testing.T) {
		if wrong := c.eval(earlierStep); wrong != "" {
			t.Error(wrong)
		}
	})
	t.Run("a part without claims does not pass for everything", func(t *testing.T) {
		c.opens("http://" + w.at + "/#only=nothing/here")
		c.shows("Of what this page shows you, nothing is held")
		c.opens("http://" + w.at + "/")
		c.shows("1 waiting")
	})
	t.Run("what is chosen is explained", func(t *testing.T) { chosenIsExplained(c, w) })
	t.Run("a long queue is folded", func(t *testing.T) { queueFolds(c, w) })
	t.Run("a cut is said, and resumed", func(t *testing.T) {
		w.server.Close()
		c.shows("The stream of changes is cut")
		c.photographs("cut")
		w.serve()
		c.shows("Live")
		w.claim(`{"path":"after/the/cut","as":"late"` + long)
		c.shows("after/the/cut")
	})
	t.Run("pictures and contrast", func(t *testing.T) { looksGood(t, c) })
	t.Run("axe-core finds nothing serious", func(t *testing.T) { isAccessible(t, c) })
	t.Run("a viewer", func(t *testing.T) {
		c.eval(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Log out").click()`)
		c.shows("This server asks for a token")
		w.login(c, "eye")
		c.shows("Your rules show site, and your own claims")
		c.awaits(`document.querySelectorAll(".row").length > 0`)
		if text := c.eval("document.body.innerText").(string); strings.Contains(text, "router7") {
			t.Errorf("a viewer of site sees %s", text)
		}
		c.eval(`document.querySelector(".row.claim").click()`)
		c.shows("Facts")
		n := c.eval(`[...document.querySelectorAll("button")].filter((b) => /Revoke|Freeze/.test(b.textContent)).length`)
		if n != 0.0 {
			t.Error("a viewer is offered actions")
		}
	})
	t.Run("a withdrawn token ends the session", func(t *testing.T) {
		w.policy.Tokens = slices.DeleteFunc(w.policy.Tokens, func(t access.Token) bool { return t.Name == "eye" })
		w.gate.Set(w.policy)
		c.shows("The session is over")
	})
	if wrong := c.errors(); wrong != "" {
		t.Error("the browser reports: " + wrong)
	}
}

// queueFolds: a long queue shows its first waiters, unfolds, and has only the rows on the screen in the
// document, whatever the keys go to.
// longestTimes reports whether the longest duration fits into the columns of the timeline.
const longestTimes = `[...document.querySelectorAll(".timeline td:not(.axis)")].every((cell) => {
	cell.textContent = "9 min 59 s";
	return cell.scrollWidth <= cell.clientWidth;
})`

// earlierStep returns what is wrong with the times of two asks, of which the page saw only the second; "" if nothing.
const earlierStep = `import("/page/store.js").then(({ Store }) => {
	const store = new Store();
	const asked = (claim, change) => ({ claim, change, state: "held", age: 60, fence: change,
		targets: [{ path: claim, mode: "exclusive" }], asked: { reason: "stolen" } });
	store.event("snapshot", asked("a", 1));
	store.event("ready", {});
	store.event("change", { ...asked("b", 2), asked: undefined });
	store.event("change", asked("b", 3));
	const late = (claim) => store.records.get(claim).steps.find((s) => s.kind === "asked").late;
	return late("a") !== true ? "an ask before the snapshot has a time" : late("b") ? "a seen ask has no time" : "";
})`

// chosenIsExplained: a wait that the tree does not show is explained when its path is chosen. The page has
// no timer, and nothing changes, so that nothing else makes the page ask.
func chosenIsExplained(c *chromium, w *town) {
	var script struct{ Identifier string }
	c.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "window.setInterval = () => 0"}, &script)
	c.opens("http://" + w.at + "/#chosen")
	c.call("Page.reload", nil, nil)
	c.shows("Live")
	c.shows("in line") // the first questions are answered
	c.awaits(`![...document.querySelectorAll(".row.waits")].some((r) => r.innerText.includes("\nwaiting\n"))`)
	c.presses("2") // the tree shows holders alone
	c.awaits(`document.title.includes("waiting")`)
	before := c.eval("document.title").(string)
	ref := w.claim(`{"path":"mydatabase/mytest1","as":"late"` + long)
	c.awaits("document.title !== " + quote(before))
	c.eval(`[...document.querySelectorAll(".row.path")].find((r) => r.textContent.includes("mytest1")).click()`)
	c.awaits(`document.querySelector(".panel").innerText.includes("in line")`)
	c.call("Page.removeScriptToEvaluateOnNewDocument", map[string]any{"identifier": script.Identifier}, nil)
	w.release(ref)
	c.call("Page.reload", nil, nil)
	c.shows("Live")
}

func queueFolds(c *chromium, w *town) {
	var refs []string
	for i := range 60 {
		refs = append(refs, w.claim(fmt.Sprintf(`{"path":"zoo","as":"visitor-%d"`, i)+long))
	}
	c.presses("/")
	c.types("zoo")
	c.awaits(`document.querySelectorAll(".row.claim").length > 15`) // a search unfolds
	c.presses("Escape", "Escape", "End")
	c.shows("51 more wait")
	c.awaits(`document.activeElement.closest(".row").textContent.includes("51 more wait")`)
	c.presses("Enter")
	c.awaits(`document.activeElement.closest(".row").textContent.includes("visitor-9")`)
	c.shows("9th in line")
	c.presses("End")
	c.awaits(`document.activeElement.closest(".row").textContent.includes("visitor-59")`)
	c.shows("59th in line")
	c.awaits(`document.querySelectorAll(".row").length < 60`)
	const marked = `document.querySelector(".row[aria-selected=true]")?.textContent.includes("visitor-40")`
	c.opens("http://" + w.at + "/?unknown=1#claim=ci:" + refs[40])
	c.awaits(marked) // in a queue that is folded, before its claims are known
	c.presses("Escape")
	c.awaits("!" + marked)
	c.presses("ArrowLeft", "ArrowLeft", "ArrowLeft")
	c.eval("location.hash = " + quote("#claim=ci:"+refs[40]))
	c.awaits(marked)
	c.presses("Escape", "Home")
	c.awaits(`document.activeElement.getAttribute("aria-rowindex") === "2"`)
	for _, ref := range refs {
		w.release(ref)
	}
	c.awaits(`![...document.querySelectorAll(".row")].some((r) => r.textContent.includes("zoo"))`)
}

func keysWork(t *testing.T, c *chromium) {
	c.presses("/")
	c.types("mytest2")
	c.awaits(`document.querySelectorAll(".row.claim").length === 1`)
	c.presses("Enter", "End") // Enter goes to the matches, as ArrowDown does
	c.awaits(`document.activeElement.textContent.includes("ci-18")`)
	c.presses("Enter")
	c.shows("Facts")
	c.awaits(`document.activeElement.textContent === "ci-18"`) // the heading of the panel
	c.presses("Escape", "/", "Escape")                         // one Escape ends the search, and leaves its field
	c.awaits(`document.querySelectorAll(".row.claim").length > 5`)
	c.awaits(`document.activeElement.closest(".row")`)
	c.presses("/")
	c.types("matches nothing")
	c.shows("Nothing matches")
	c.presses("Escape")
	c.awaits(`document.activeElement.closest(".row")`)
	c.awaits(`document.querySelector(".row.claim .owner").title !== ""`)
	c.presses("3")
	c.awaits(`document.querySelector(".chip[aria-pressed=true]").textContent === "Waiting"`)
	c.awaits(`![...document.querySelectorAll(".row")].some((r) => r.textContent.includes("ci-17"))`)
	c.presses("1", "?")
	c.shows("previous, next row")
	c.presses("Escape")
	c.awaits(`!document.querySelector("dialog")`)
	c.presses("Escape", "Home", "ArrowLeft")
	c.awaits(`document.querySelector(".row").getAttribute("aria-expanded") === "false"`)
	c.presses("ArrowRight")
	c.awaits(`document.querySelector(".row").getAttribute("aria-expanded") === "true"`)
}

func actionsWork(t *testing.T, c *chromium, w *town, ref string) {
	c.presses("/")
	c.types("deploy")
	c.awaits(`document.querySelectorAll(".row.claim").length === 1`)
	c.presses("ArrowDown", "End", "r")
	c.shows("Revoke the claim of deploy?")
	c.presses("Enter") // without a reason: the browser refuses
	if !w.exists(ref) {
		t.Fatal("a revocation without a reason")
	}
	c.types("it hangs")
	c.photographs("revoke")
	c.eval(`document.querySelector("dialog [name=force]").click()`)
	c.eval(`document.querySelector("dialog [name=reason]").focus()`)
	c.presses("Enter")
	c.awaits(`!document.querySelector("dialog")`)
	if w.exists(ref) {
		t.Error("the claim is not revoked")
	}
	c.presses("/", "Escape", "Escape")
	c.shows("revoked: it hangs")
	c.presses("/")
	c.types("router7")
	c.awaits(`document.querySelectorAll(".row").length === 3`)
	c.presses("ArrowDown", "Home", "f")
	c.shows("Freeze router7?")
	c.types("new firmware")
	c.presses("Enter")
	c.awaits(`!document.querySelector("dialog") && document.querySelector(".badge.frozen")`)
	c.presses("Home", "t")
	c.shows("Thaw router7?")
	c.types("done")
	c.presses("Enter")
	c.awaits(`!document.querySelector("dialog") && !document.querySelector(".badge.frozen")`)
	c.presses("/", "Escape", "Escape", "Escape", "p")
	c.shows("Freeze a path")
	c.types("/")
	c.presses("Tab", "Tab")
	c.types("move")
	c.presses("Enter")
	c.shows("This is no path.")
	c.eval(`document.querySelector("dialog [name=path]").focus(); document.querySelector("dialog [name=path]").value = ""`)
	c.types("new/place")
	c.presses("Enter")
	c.awaits(`!document.querySelector("dialog")`)
	c.shows("new/place")
	c.eval(`[...document.querySelectorAll(".row.path")].find((r) => r.textContent.includes("new/place")).click()`)
	c.presses("t")
	c.shows("Thaw new/place?")
	c.types("done")
	c.presses("Enter")
	c.awaits(`!document.querySelector("dialog") && !document.querySelector(".badge.frozen")`)
	c.presses("Escape", "Escape")
}

func looksGood(t *testing.T, c *chromium) {
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1360, 900, 390} {
			c.resizes(width, 860, scheme)
			c.presses("Escape", "Escape")
			look(t, c, scheme, width, "tree")
			c.eval(`[...document.querySelectorAll(".row.path")].find((r) => r.textContent.includes("site")).click()`)
			look(t, c, scheme, width, "path")
			c.eval(`[...document.querySelectorAll(".row.claim")].find((r) => r.textContent.includes("cleaner")).click()`)
			look(t, c, scheme, width, "claim")
		}
	}
	c.resizes(1360, 860, "light")
	c.presses("Escape", "Escape")
}

// isAccessible asks axe-core about the tree, a path, a claim and the dialogs, in light and dark.
func isAccessible(t *testing.T, c *chromium) {
	c.eval(loadAxe(t) + "; undefined")
	check := func(what string) {
		t.Helper()
		if found := c.eval(serious); found != "" {
			t.Errorf("%s: %v", what, found)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1360, 390} {
			c.resizes(width, 860, scheme)
			at := fmt.Sprint(" in ", scheme, ", ", width, " wide")
			check("the tree" + at)
			c.eval(`[...document.querySelectorAll(".row.path")].find((r) => r.textContent.includes("site")).click()`)
			check("a path" + at)
			c.presses("f")
			c.shows("Freeze site?")
			check("the dialog of a freeze" + at)
			c.presses("Escape")
			c.eval(`[...document.querySelectorAll(".row.claim")].find((r) => r.textContent.includes("cleaner")).click()`)
			check("a claim" + at)
			c.presses("Escape", "Escape", "?")
			c.shows("previous, next row")
			check("the help" + at)
			c.presses("Escape")
		}
	}
	c.resizes(1360, 860, "light")
}

// look judges what the page shows, and photographs it.
func look(t *testing.T, c *chromium, scheme string, width int, name string) {
	t.Helper()
	name = strings.Join([]string{name, scheme, map[int]string{1360: "wide", 900: "middle", 390: "phone"}[width]}, "-")
	c.photographs(name)
	if found := c.eval(judge); found != "" {
		t.Errorf("%s: %s", name, found)
	}
}

// judge returns in words what hinders a reader: a text with too little contrast, a control without a
// name, an id that is there twice, a page that is wider than its window.
const judge = `(() => {
	const wrong = [];
	const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
	const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
	const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
	const ground = (node) => {
		for (; node; node = node.parentElement) {
			const c = numbers(getComputedStyle(node).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
		}
		return [255, 255, 255];
	};
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let text; (text = walker.nextNode());) {
		const node = text.parentElement;
		if (!text.data.trim() || node.closest(".sr, :disabled")) continue;
		if (!node.checkVisibility({ visibilityProperty: true })) continue;
		const [a, b] = [light(numbers(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) wrong.push("contrast " + ratio.toFixed(1) + " of " + JSON.stringify(text.data.slice(0, 40)));
	}
	for (const node of document.querySelectorAll("button, a, input, select, [tabindex]")) {
		const named = node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length;
		if (!named) wrong.push("no name: " + node.outerHTML.slice(0, 80));
	}
	const ids = [...document.querySelectorAll("[id]")].map((n) => n.id);
	if (new Set(ids).size !== ids.length) wrong.push("ids twice: " + ids);
	if (document.documentElement.scrollWidth > innerWidth) wrong.push("wider than the window");
	if (document.querySelectorAll(".row[tabindex='0']").length > 1) wrong.push("several rows are reached by Tab");
	return wrong.join("; ");
})()`
