// The panel beside the tree: an overview, a path, or a claim with its history.

import { el, fill, icon, icons, link, patch } from "./dom.js";
import { now } from "./store.js";
import { timeline } from "./timeline.js";
import { leftText, stateText } from "./tree.js";
import {
  askedText, blockerText, clock, duration, endText, modeOf, ownerOf, plural, positionText, visible,
} from "./words.js";

const MOST_BELOW = 10; // holders below a path

/** Returns when a step or a change was, as far as the page knows. */
const timeOf = (e) => (e.late ? "before " : "") + clock(e.at);

export class Detail {
  /**
   * show({ path } | { claim } | { cluster } | {}) is called to go elsewhere, actions has revoke, freeze and thaw, and
   * may(verb, paths)
   * says whether this identity may do that; without paths, whether it may anywhere.
   */
  constructor(store, cluster, { show, actions, may }) {
    Object.assign(this, { store, cluster, show, actions, may });
    this.what = {};
    this.body = el("div", { class: "detail", click: (e) => this.click(e) });
    this.element = el("aside", { class: "panel", "aria-label": "Details" }, this.body);
  }

  /** Draws what is chosen. What is there already changes in place. */
  draw() {
    const { path, claim, cluster } = this.what;
    const fresh = el("div", { class: "detail" }, claim ? this.claim(claim) : path ? this.path(path)
      : cluster ? this.nodes() : this.overview());
    const key = JSON.stringify([path, claim, cluster]);
    if (key === this.drawn) patch(this.body, fresh);
    else {
      fill(this.body, [...fresh.childNodes]);
      this.element.scrollTop = 0;
    }
    this.drawn = key;
  }

  /** Buttons say in data what they are for, so that one of them may become another. */
  click(event) {
    const data = event.target.closest("button")?.dataset;
    if (!data) return;
    const { path, claim } = this.what;
    if (data.claim) this.show({ claim: data.claim });
    else if (data.path) this.show({ path: data.path });
    else if (data.act === "back") this.show({});
    else if (data.act === "revoke" && this.store.claims.has(claim)) this.actions.revoke(this.store.claims.get(claim));
    else if (data.act === "freeze-typed") this.actions.freeze();
    else if (data.act === "freeze" || data.act === "thaw") this.actions[data.act](path);
  }

  /** Moves the focus to the panel. */
  focus() {
    this.body.querySelector("h2")?.focus();
  }

  head(kind, title, ...buttons) {
    return el("header", {},
      el("button", { type: "button", class: "quiet back", "aria-label": "Back to the tree",
        "data-act": "back" }, icon(icons.back)),
      el("div", {}, el("p", { class: "kind" }, kind), el("h2", { tabindex: -1 }, el("bdi", {}, title))),
      el("div", { class: "buttons" }, buttons));
  }

  button(text, key, verb, paths) {
    if (!this.may(verb, paths)) return null;
    return el("button", { type: "button", "data-act": text.toLowerCase(), "aria-keyshortcuts": key }, text);
  }

  nodes() {
    return [this.head("Cluster", "Nodes"), this.cluster.status ? this.cluster.draw()
      : el("p", { class: "muted" }, "No cluster is known: the server belongs to none, or your rules do not let you " +
        "look at everything.")];
  }

  overview() {
    const counts = { held: 0, waiting: 0 };
    const oldest = { held: null, waiting: null };
    const since = (st) => st.received - st.age;
    for (const st of this.store.claims.values()) {
      counts[st.state]++;
      if (!oldest[st.state] || since(st) < since(oldest[st.state])) oldest[st.state] = st;
    }
    const t = now();
    const figure = (n, text, kind) => el("div", { class: "figure" },
      el("dt", {}, el("span", { class: "mark " + kind }), text), el("dd", {}, n.toLocaleString()));
    return [
      el("header", {}, el("div", {}, el("p", { class: "kind" }, "Overview"), el("h2", { tabindex: -1 }, "Now")),
        el("div", { class: "buttons" }, this.may("freeze") && el("button", { type: "button", "data-act": "freeze-typed",
          "aria-keyshortcuts": "p" }, "Freeze a path"))),
      el("dl", { class: "figures" }, figure(counts.held, "held", "held"), figure(counts.waiting, "waiting", "waiting"),
        figure(this.store.freezes.size, "frozen", "frozen")),
      this.cluster.status && el("section", {}, el("h3", {}, "Cluster"), this.cluster.draw()),
      this.extreme("Longest hold", oldest.held, t), this.extreme("Longest wait", oldest.waiting, t),
      this.queues(), this.feed(),
    ];
  }

  extreme(title, st, t) {
    if (!st) return null;
    return el("section", {}, el("h3", {}, title), el("p", { class: "line" }, this.toClaim(st.claim, ownerOf(st)), " ",
      el("span", { class: "muted" }, duration(t - (st.received - st.age)) + " at "), this.toPath(st.targets[0].path)));
  }

  queues() {
    const longest = this.store.forest.queues(5);
    if (!longest.length) return null;
    return el("section", {}, el("h3", {}, "Longest queues"), el("ul", { class: "cards" }, longest.map(([path, n]) =>
      el("li", {}, el("span", { class: "mark waiting" }), el("span", {}, this.toPath(path),
        el("span", { class: "muted" }, " " + n.toLocaleString() + " waiting"))))));
  }

  feed() {
    const list = this.store.events.slice(-30).reverse();
    return el("section", {}, el("h3", {}, "Latest changes"), list.length
      ? el("ol", { class: "steps" }, list.map((e) => el("li", {}, el("time", {}, timeOf(e)), el("span", {},
        this.event(e)))))
      : el("p", { class: "muted" }, "None since " + clock(this.store.since) + "."));
  }

  event({ kind, st, record }) {
    const path = st.targets?.[0]?.path ?? "";
    const who = st.claim && record ? this.toClaim(record.claim, ownerOf(st)) : el("bdi", {}, ownerOf(st));
    switch (kind) {
      case "granted": {
        const waited = record.waits === undefined ? "" : " after " + duration(record.held - record.waits);
        return [who, " got ", this.toPath(path), waited];
      }
      case "frozen": return [who, " froze ", this.toPath(path)];
      case "thawed": return [this.toPath(path), " was thawed"];
      case "asked": return [who, " was asked to yield ", this.toPath(path)];
      default:
        return record.held === undefined ? [who, " stopped waiting for ", this.toPath(path), " (" + endText(st) + ")"]
          : [who, " no longer has ", this.toPath(path), " (" + endText(st) + ")"];
    }
  }

  path(path) {
    const list = this.store.at(path);
    const frozen = this.store.freezes.get(path);
    const above = [...this.store.freezes].filter(([p]) => p === "/" && path !== "/" || path.startsWith(p + "/"));
    const t = now();
    const lines = timeline(this.store, path);
    return [
      this.head("Path", path === "/" ? "everything" : visible(path),
        frozen ? this.button("Thaw", "t", "freeze", [path])
          : this.button("Freeze", "f", "freeze", [path])),
      frozen && this.frozen(frozen, t, "Frozen"),
      above.map(([p, st]) => this.frozen(st, t, "Frozen with " + (p === "/" ? "everything" : visible(p)))),
      this.claims("Held by", list.filter((st) => st.state === "held"), t),
      this.claims("Waiting", list.filter((st) => st.state !== "held"), t),
      !list.length && el("p", { class: "muted" }, "Nobody holds exactly this path, and nobody waits for it."),
      this.around("Held above", this.store.forest.above(path)),
      this.around("Held below", this.store.forest.below(path, MOST_BELOW)),
      el("section", {}, el("h3", {}, "Timeline"), lines ?? el("p", { class: "muted" }, "Nothing was seen here yet."),
        el("p", { class: "muted" }, this.known())),
    ];
  }

  /** Lists holders of other paths, which are in the way of this one. */
  around(title, holders) {
    if (!holders.length) return null;
    return el("section", {}, el("h3", {}, title), el("ul", { class: "cards" }, holders.map(([st, at]) => el("li", {},
      el("span", { class: "mark held" }), el("span", {}, this.toClaim(st.claim, ownerOf(st)),
        el("span", { class: "muted" }, " at "), this.toPath(at))))));
  }

  /** Says what the page can know of the past. */
  known() {
    const gaps = this.store.gaps.map(([from, to]) => clock(from) + " to " + clock(to)).slice(-3);
    return "All changes since " + clock(this.store.since) + ". Of earlier times the engine states only the holds " +
      "that still last." + (gaps.length ? " Changes were missed from " + gaps.join(", ") + "." : "");
  }

  frozen(st, t, title) {
    return el("div", { class: "notice frozen" }, el("strong", {}, title), " by ", el("bdi", {}, ownerOf(st)),
      st.note && [": ", el("bdi", {}, visible(st.note))], st.link && [" ", link(st.link)],
      el("br"), el("span", { class: "muted" }, "since " + clock(st.received - st.age) + (leftText(st, t) ? ", " +
        leftText(st, t) : "")));
  }

  claims(title, list, t) {
    if (!list.length) return null;
    return el("section", {}, el("h3", {}, title), el("ul", { class: "cards" }, list.slice(0, 50).map((st) => el("li",
      {},
      el("span", { class: "mark " + (st.asked ? "asked" : st.state) }), this.toClaim(st.claim, ownerOf(st)),
      el("span", { class: "muted" }, [modeOf(st.targets[0]), st.state === "held" && !st.asked ? "" : stateText(st),
        duration(t - (st.received - st.age)), leftText(st, t)].filter(Boolean).join(" · ")),
      st.note && el("bdi", { class: "note" }, visible(st.note))))),
    list.length > 50 && el("p", { class: "muted" }, plural(list.length - 50, "more claim") + " in the tree"));
  }

  toClaim(claim, text) {
    return el("button", { type: "button", class: "link", "data-claim": claim }, el("bdi", {}, text));
  }

  toPath(path) {
    return el("button", { type: "button", class: "link path", "data-path": path },
      el("bdi", {}, path === "/" ? "everything" : visible(path)));
  }

  claim(ref) {
    const record = this.store.records.get(ref);
    const st = this.store.claims.get(ref) ?? record?.last;
    if (!st) {
      return [this.head("Claim", visible(ref)), el("p", { class: "muted" },
        "This claim has ended, or your rules do not show it. " +
        "Nothing of it has changed since " + clock(this.store.since) + ".")];
    }
    const t = now();
    const present = this.store.claims.has(ref);
    const paths = st.targets.map((target) => target.path);
    return [
      this.head("Claim", ownerOf(st), present && this.button("Revoke", "r", "revoke", paths)),
      el("p", { class: "status" }, el("span", { class: "mark " + (!present ? "ended" : st.asked ? "asked"
        : st.state) }),
        present ? this.sentence(st, t) : "Ended" + (record.reason === "unseen" ? " while the stream was cut" : ": " +
          endText(st))),
      st.note && el("p", {}, el("bdi", {}, visible(st.note))),
      st.link && el("p", {}, link(st.link)),
      present && this.why(st),
      this.facts(st, record, t),
      record && el("section", {}, el("h3", {}, "History"), el("ol", { class: "steps" },
        record.steps.slice().reverse().map((s) =>
        el("li", {}, el("time", {}, timeOf(s)), el("span", {}, this.stepText(s))))), el("p", { class: "muted" },
          this.known())),
    ];
  }

  sentence(st, t) {
    const since = duration(t - (st.received - st.age));
    if (st.state === "held") {
      return "Held for " + since + (st.asked ? ", " + askedText(st.asked) : "") +
        (leftText(st, t) ? ", " + leftText(st, t) : "");
    }
    const position = positionText(st);
    return "Waits for " + since + (position ? ", " + position : "") +
      (leftText(st, t) ? ", " + leftText(st, t) + (st.etaAt > t ? " left" : "") : "");
  }

  why(st) {
    if (!st.blockers?.length && !st.waits?.length) return null;
    const blockers = (st.blockers ?? []).map((b) => el("li", {},
      b.claim && this.store.claims.has(b.claim) ? this.toClaim(b.claim, blockerText(b)) : el("bdi", {}, blockerText(b)),
      el("span", { class: "muted" }, " at ", el("bdi", {}, visible(b.path)) , ", " + visible(b.mode)),
      b.note && el("bdi", { class: "note" }, visible(b.note))));
    return el("section", {}, el("h3", {}, "Why it waits"), blockers.length ? el("ul", { class: "cards" }, blockers)
      : el("p", {}, st.waits.map(visible).join(", ")));
  }

  facts(st, record, t) {
    const fact = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    return el("section", {}, el("h3", {}, "Facts"), el("dl", { class: "facts" },
      st.targets.map((target) => fact(st.targets.length > 1 ? "Path" : "Path", this.toPath(target.path), " ",
        el("span", { class: "muted" }, modeOf(target) + (target.slot ? ", slot " + target.slot : "")))),
      record?.waits !== undefined && fact("Waited", duration((record.held ?? record.end ?? t) - record.waits)),
      record?.held !== undefined && fact("Granted", clock(record.held)),
      st.fence > 0 && fact("Fence", String(st.fence)),
      st.priority && fact("Priority", String(st.priority)),
      st.unconfirmed && fact("Unconfirmed", "the former holder may not know yet that it lost"),
      st.inside && fact("Inside", this.toClaim(st.inside, visible(st.inside))),
      fact("Reference", el("code", {}, visible(st.claim)))));
  }

  stepText(s) {
    switch (s.kind) {
      case "waits": return "began to wait";
      case "granted": return "granted";
      case "asked": return s.detail.reason === "overdue" ? "held for too long, asked to yield"
        : "asked to yield" + (s.detail.as ? " by " + visible(s.detail.as) : "") + (s.detail.note ? ": " +
          visible(s.detail.note) : "");
      case "ended": return s.detail.unseen ? "ended while the stream was cut" : endText(s.detail);
      default: return s.kind;
    }
  }
}
