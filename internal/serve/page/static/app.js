// Starts the page: session, stream, tree and panel, and the keys that work everywhere.

import { Cluster } from "./cluster.js";
import { Detail } from "./detail.js";
import { el, fill, icon, icons, setText } from "./dom.js";
import * as dialogs from "./dialogs.js";
import { common } from "./evidence.js";
import * as server from "./server.js";
import { now, Store } from "./store.js";
import { Tree } from "./tree.js";
import { clock, plural, visible } from "./words.js";

const app = document.getElementById("app");
const filters = [["", "All"], ["held", "Held"], ["waiting", "Waiting"], ["frozen", "Frozen"]];
const OVER = "The session is over: an hour has passed, or the token was withdrawn. Log in to go on.";
const MOST_LISTS = 6; // in one round of questions
let running = null; // the page of one session

/** Shows the page of a session, or without one the login, with a text that says why. */
function start(session, why = "This server asks for a token.") {
  running?.stop();
  running = session ? new Page(session) : null;
  if (!session) showLogin(why);
}

function showLogin(why) {
  document.title = "Log in · Lockkeeper";
  fill(app, el("main", { class: "login" }, el("div", { class: "brand" }, icon(icons.lock), el("h1", {}, "Lockkeeper")),
    el("p", { class: "muted", role: "status" }, why), dialogs.loginForm((session) => start(session))));
  app.querySelector("input").focus();
}

/** The page of one session. */
class Page {
  constructor(session) {
    this.session = session;
    this.store = new Store();
    this.state = "connecting";
    this.actions = {
      revoke: (st) => dialogs.revoke(st), freeze: (path) => dialogs.freeze(path),
      thaw: (path) => dialogs.thaw(path, this.store.freezes.get(path)),
    };
    this.tree = new Tree(this.store, {
      choose: (row, enter) => this.choose(row, enter), act: (row, key) => this.act(row, key),
    });
    this.cluster = new Cluster(() => running === this && this.changed());
    this.detail = new Detail(this.store, this.cluster, {
      show: (what) => this.show(what, true), actions: this.actions, may: (verb, paths) => this.may(verb, paths),
    });
    this.scope = new URLSearchParams(location.hash.slice(1)).get("only") ?? "";
    this.layout();
    this.listen();
    this.restore();
    this.stream = server.follow(this.scope, {
      event: (name, st) => {
        this.store.event(name, st);
        this.changed();
      },
      state: (state, text) => this.connection(state, text),
    });
    this.timer = setInterval(() => this.tick(), 1000);
    this.changed();
  }

  layout() {
    this.search = el("input", {
      type: "search", placeholder: "Search paths, owners, notes", "aria-label": "Search paths, owners and notes",
      "aria-keyshortcuts": "/", spellcheck: "false", autocomplete: "off", input: () => this.filter(),
    });
    this.chips = filters.map(([only, text], i) => el("button", {
      type: "button", class: "chip", "aria-pressed": String(only === ""), "aria-keyshortcuts": String(i + 1),
        click: () => this.only(only),
    }, text));
    this.pill = el("span", { class: "pill", role: "status" });
    this.nodes = el("button", {
      type: "button", class: "chip nodes", hidden: true, "aria-label": "Cluster", "aria-keyshortcuts": "c",
      click: () => this.show({ cluster: true }, true),
    });
    this.banner = el("div", { class: "banner", hidden: true });
    this.foot = el("footer", { class: "foot" });
    this.count = el("span", { class: "sr", role: "status" });
    this.main = el("main", {}, el("section", { class: "list", "aria-label": "Locks" }, this.tree.element),
      this.detail.element);
    fill(app, el("header", { class: "top" },
      el("div", { class: "brand" }, icon(icons.lock), el("h1", {}, "Lockkeeper"), this.pill, this.nodes),
      el("div", { class: "find" }, el("label", { class: "search" }, icon(icons.search), this.search, el("kbd", {},
        "/")),
        el("div", { class: "chips", role: "group", "aria-label": "Show" }, this.chips)),
      el("div", { class: "who" }, this.session.identity && el("bdi", { class: "identity" },
        visible(this.session.identity)),
        this.session.action && el("button", { type: "button", class: "quiet text", click: () => this.logout() },
          "Log out"),
        el("button", { type: "button", class: "quiet", "aria-label": "Dark or light", "aria-keyshortcuts": "d",
          click: theme }, icon(icons.theme)),
        el("button", { type: "button", class: "quiet text", "aria-label": "Keys and help", "aria-keyshortcuts": "?",
          click: dialogs.help }, "?"))),
    this.banner, this.main, this.foot, this.count);
  }

  listen() {
    this.off = new AbortController();
    const signal = this.off.signal;
    document.addEventListener("keydown", (e) => this.key(e), { signal });
    addEventListener("online", () => this.stream.retry(), { signal });
    addEventListener("resize", () => this.changed(), { signal });
    document.addEventListener("scroll", () => this.scrolled(), { signal, capture: true, passive: true });
    addEventListener("popstate", () => this.restore(), { signal });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.stream.retry();
    }, { signal });
  }

  stop() {
    this.off.abort();
    this.stream.stop();
    clearInterval(this.timer);
    for (const timer of [this.evidenceTimer, this.frame, this.later]) clearTimeout(timer);
    document.querySelector("dialog")?.close();
  }

  may(verb, paths) {
    const needs = verb === "freeze" ? "freeze" : "revoke";
    const reach = this.session.may?.[verb] ?? [];
    if (!paths && !reach.length) return false;
    return (this.session.features ?? []).some((f) => f.includes(needs)) && (paths ?? []).every((path) =>
      reach.some((at) => at === "*" || path === at || path.startsWith(at + "/")));
  }

  // --- drawing

  /**
   * Draws soon, once for many changes. However slow the browser is, it has time for its reader. The tree and
   * the panel are drawn in tasks of their own, so that a key waits for one of them at most.
   */
  changed() {
    if (this.frame) return;
    this.frame = setTimeout(() => {
      this.frame = 0;
      this.tree.partial = Boolean(this.scope) || !(this.session.may?.look ?? []).includes("*");
      this.cost = timed(() => {
        this.tree.draw();
        this.markSought();
        this.say();
      });
      this.later ||= setTimeout(() => {
        this.later = 0;
        this.cost += timed(() => {
          this.detail.draw();
          this.wantEvidence();
        });
      });
    }, document.hidden ? 1000 : Math.max(60, 6 * this.cost));
  }

  /** Draws the rows that a scroll brings to the screen. */
  scrolled() {
    if (this.scrolling) return;
    this.scrolling = requestAnimationFrame(() => {
      this.scrolling = 0;
      this.tree.paint();
      this.wantEvidence();
    });
  }

  tick() {
    this.tree.tick();
    if (!document.hidden && ++this.ticks % 2) this.detail.draw();
    if (this.ticks % 30 === 0) {
      this.store.evidence.outdateAll(); // estimates change without an event
      this.refresh();
      this.wantEvidence();
    }
    this.cluster.follow(this.session.cluster);
    this.showState();
  }

  cost = 0; // milliseconds of the latest drawing
  pause = 250; // milliseconds before the next questions
  ticks = 0;

  /** Shows how the stream is, and what the page leaves out. */
  showState() {
    const t = now();
    this.pill.className = "pill " + this.state;
    setText(this.pill, this.state === "live" ? "Live" : this.state === "cut" ? "Cut" : "Connecting");
    const { status } = this.cluster;
    this.nodes.hidden = !status;
    if (status) {
      setText(this.nodes, this.cluster.short());
      this.nodes.classList.toggle("bad", this.cluster.isBad());
      this.nodes.setAttribute("aria-label", "Cluster: " + this.cluster.short() + " reached" +
        (this.cluster.isBad() ? ", with alarms" : ""));
    }
    const notes = [];
    if (status && status.state !== "ready") notes.push("The cluster: " + this.cluster.sentence());
    if (this.state === "cut") {
      notes.push("The stream of changes is cut since " + clock(this.store.cutAt || t) +
        ". You see the state of then. " +
        "The page tries again and resumes." + (this.failure ? " The server says: " + visible(this.failure) : ""));
    }
    if (this.session.draining) notes.push("The server takes no new claims: " + visible(this.session.draining));
    if (this.session.failed) notes.push("The engine did not answer: " + visible(this.session.failed));
    if (this.store.truncated) {
      notes.push("There are more claims than this page shows. Add #only=PATH to the address to see one path.");
    }
    if (this.scope) notes.push("Only " + visible(this.scope) +
      ", above and below. Remove #only from the address to see everything.");
    this.banner.hidden = notes.length === 0;
    this.banner.classList.toggle("bad", this.state === "cut" || Boolean(status && status.state !== "ready"));
    const text = notes.join(" · ");
    if (this.said !== text) fill(this.banner, notes.map((n) => el("p", {}, n)));
    this.said = text;
    setText(this.foot, this.footText());
  }

  footText() {
    const s = this.session;
    const look = s.may?.look ?? [];
    const parts = ["Lockkeeper " + visible(s.version), visible(s.engine)];
    if (!look.includes("*")) {
      const shown = this.store.claims.size;
      const more = (s.held ?? 0) + (s.waiting ?? 0) - shown;
      parts.push("Your rules show " + (look.length ? look.map(visible).slice(0, 5).join(", ") + (look.length > 5
        ? " and others" : "") +
        ", and your own claims" : "your own claims only") + (more > 0 ? "; the server has " + plural(more,
          "more claim") : ""));
    }
    return parts.join(" · ");
  }

  /** Tells screen readers the counts after a search. */
  say() {
    if (this.tree.text || this.tree.only) setText(this.count, plural(this.tree.found ?? 0, "match", "matches"));
    else setText(this.count, "");
    const waiting = this.store.forest.root.waiting;
    document.title = (waiting ? "(" + waiting + " waiting) " : "") + "Locks · Lockkeeper";
    this.showState();
  }

  // --- the server

  connection(state, text) {
    if (state === "login") {
      start(null, OVER);
      return;
    }
    if (state === "cut") this.store.cut();
    this.state = state;
    this.failure = text;
    this.changed();
    if (state === "live") this.refresh();
  }

  async refresh() {
    try {
      const session = await server.session();
      if (running !== this) return;
      if (!session) start(null, OVER);
      else this.session = session;
    } catch {
      // the stream says whether the server is there
    }
  }

  async logout() {
    try {
      await server.logout();
    } catch {
      // the cookie stays; the next request says what is wrong
    }
    start(await server.session().catch(() => null));
  }

  /**
   * Asks why the claims on the screen wait, at which positions, and how long they still may, where that
   * is not known or may have changed. The pauses bound what a viewer costs the server.
   */
  wantEvidence() {
    const { evidence } = this.store;
    if (this.evidenceTimer || this.state !== "live" || !this.store.ready || document.hidden) return;
    if (!this.waitsShown().some((path) => evidence.isOld(path))) return;
    this.evidenceTimer = setTimeout(async () => {
      const clock = evidence.clock;
      const paths = this.waitsShown().filter((path) => evidence.isOld(path));
      let claims = 0;
      try {
        if (paths.length > MOST_LISTS) {
          const all = await this.list(common(paths) || this.scope);
          claims += all.claims.length;
          if (!all.more) evidence.explained(paths, clock);
        }
        for (const path of paths.filter((p) => evidence.asked.get(p) !== clock).slice(0, MOST_LISTS)) {
          claims += (await this.list(path)).claims.length;
          evidence.explained([path], clock);
        }
        this.pause = Math.max(250, 2 * claims);
      } catch {
        this.pause = 5000; // the stream says whether the server is there
      }
      this.evidenceTimer = 0;
      if (running === this) this.changed();
    }, this.pause);
  }

  /** Lists the claims at, above and below a path, and stores what that explains. */
  async list(path) {
    const query = new URLSearchParams({ limit: "1000" });
    if (path) query.set("path", path);
    const said = await server.request("GET", "/v1/claims?" + query);
    this.store.explain(said.claims ?? []);
    return { claims: said.claims ?? [], more: Boolean(said.more) };
  }

  /** Returns the paths at which claims on the screen wait. */
  waitsShown() {
    const paths = new Set();
    const add = (st) => {
      if (st?.state === "waiting" || st?.converting) paths.add(st.targets[0].path);
    };
    for (const { row } of this.tree.nodes.values()) add(row.claim);
    const { path, claim } = this.detail.what;
    if (path) this.store.at(path).forEach(add);
    add(this.store.claims.get(claim));
    return [...paths];
  }

  // --- choosing

  choose(row, enter) {
    this.show(row.claim ? { claim: row.claim.claim, key: row.key } : { path: row.path, key: row.key }, true);
    if (enter) this.detail.focus();
  }

  /** Marks the row of a claim that was chosen before the page knew it. */
  markSought() {
    const st = this.store.ready && this.store.claims.get(this.sought);
    if (!st) return;
    this.sought = "";
    this.tree.select(this.tree.reveal(st), false);
  }

  show(what, remember) {
    this.detail.what = what;
    const st = this.store.claims.get(what.claim);
    const key = what.key ?? (what.path ? "p:" + what.path : st ? this.tree.reveal(st) : "");
    this.sought = st ? "" : what.claim; // its row is still to come
    const chosen = Boolean(what.path || what.claim || what.cluster);
    this.main.classList.toggle("chosen", chosen);
    this.tree.select(key, !chosen);
    this.detail.draw();
    this.wantEvidence();
    if (!remember) return;
    const hash = new URLSearchParams();
    if (this.scope) hash.set("only", this.scope);
    if (what.path) hash.set("path", what.path);
    if (what.claim) hash.set("claim", what.claim);
    if (what.cluster) hash.set("cluster", "");
    const text = hash.toString();
    if (text !== location.hash.slice(1)) history.pushState(null, "", text ? "#" + text : location.pathname);
    if (chosen) this.detail.focus();
  }

  restore() {
    const hash = new URLSearchParams(location.hash.slice(1));
    if ((hash.get("only") ?? "") !== this.scope) {
      location.reload(); // another stream
      return;
    }
    this.show({ path: hash.get("path") ?? undefined, claim: hash.get("claim") ?? undefined,
      cluster: hash.has("cluster") }, false);
  }

  filter() {
    this.tree.text = this.search.value;
    this.changed();
  }

  only(only) {
    this.tree.only = only;
    this.chips.forEach((chip, i) => chip.setAttribute("aria-pressed", filters[i][0] === only));
    this.changed();
  }

  /** Runs an action of the keyboard on a row of the tree, or on what the panel shows. */
  act(row, key) {
    const path = row?.path;
    const st = row?.claim;
    if (key === "r" && st && this.may("revoke", st.targets.map((t) => t.path))) this.actions.revoke(st);
    else if (key === "f" && path && this.may("freeze", [path])) this.actions.freeze(path);
    else if (key === "t" && path && this.store.freezes.has(path) && this.may("freeze", [path])) this.actions.thaw(path);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      if (event.target === this.search) {
        this.search.value = "";
        this.search.blur(); // also if there is no row that could have the focus
        this.filter();
        this.tree.select(this.tree.chosen, true);
      } else if (this.main.classList.contains("chosen")) {
        const key = this.tree.chosen;
        this.show({}, true);
        this.tree.select(key, true);
        this.tree.select("", true);
      } else this.tree.select(this.tree.chosen, true);
      event.preventDefault();
      return;
    }
    if (event.target.matches?.("input, select, textarea")) {
      if (event.target === this.search && (event.key === "ArrowDown" || event.key === "Enter")) {
        this.tree.select(this.tree.chosen, true);
        event.preventDefault();
      }
      return;
    }
    const { path, claim } = this.detail.what;
    const st = this.store.claims.get(claim);
    switch (event.key) {
      case "/": this.search.focus(); this.search.select(); break;
      case "?": dialogs.help(); break;
      case "d": theme(); break;
      case "c": if (this.cluster.status) this.show({ cluster: true }, true); break;
      case "F": if (this.may("freeze", ["/"])) this.actions[this.store.freezes.has("/") ? "thaw"
        : "freeze"]("/"); break;
      case "p": if (this.may("freeze")) this.actions.freeze(); break;
      case "1": case "2": case "3": case "4": this.only(filters[event.key - 1][0]); break;
      case "r": case "f": case "t": this.act({ path: path ?? st?.targets[0].path, claim: st }, event.key); break;
      case "j": case "k": case "ArrowDown": case "ArrowUp":
        if (event.target !== document.body) return;
        this.tree.select(this.tree.chosen, true);
        break;
      default: return;
    }
    event.preventDefault();
  }
}

/** Returns how many milliseconds a function took. */
function timed(act) {
  const began = performance.now();
  act();
  return performance.now() - began;
}

/** Changes between dark and light, and remembers it in this browser. */
function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const is = document.documentElement.style.colorScheme || (dark ? "dark" : "light");
  setTheme(is === "dark" ? "light" : "dark");
}

function setTheme(scheme) {
  document.documentElement.style.colorScheme = scheme;
  try {
    localStorage.setItem("scheme", scheme);
  } catch {
    // the browser keeps nothing: the choice lasts until the page is closed
  }
}

try {
  const scheme = localStorage.getItem("scheme");
  if (scheme === "dark" || scheme === "light") setTheme(scheme);
} catch {
  // as above
}

server.session().then((session) => start(session), (error) => {
  fill(app, el("main", { class: "login" }, el("h1", {}, "Lockkeeper"), el("p", { class: "error", role: "alert" },
    "The server did not answer: " + visible(error.message)), el("button", { type: "button",
      click: () => location.reload() }, "Try again")));
});
