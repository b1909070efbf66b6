// What the page knows: the claims and freezes of now, and what has happened to them, as far as the
// server told. Nothing here touches the document.
//
//   open ──remembered, past*, snapshot*──> ready ──change*──> ... ──reset snapshot* ready──> ...
//
// A snapshot replaces everything at its end (ready), so that the page never shows half of one. All
// bounds are fixed: a page that is open for weeks keeps the latest.

import { Evidence } from "./evidence.js";
import { Forest } from "./forest.js";

const MOST_CLAIMS = 20_000;
const MOST_ENDED = 5000; // claims whose history is kept after their end
const MOST_STEPS = 100; // of the history of one claim
const MOST_EVENTS = 200; // of the latest changes
const MOST_SPANS = 100; // of one path

export const now = () => Date.now() / 1000;

const nothing = () => ({ claims: new Map(), freezes: new Map(), truncated: false });

export class Store {
  constructor() {
    this.gaps = []; // [from, to] of cuts after which changes were missed
    this.cutAt = 0; // since when the stream is cut, until it has resumed; 0: it is not
    this.lastAt = now(); // of the latest event
    this.clear();
  }

  /** Forgets everything: the stream begins again. */
  clear() {
    this.claims = new Map(); // present ones, by reference
    this.freezes = new Map(); // by path
    this.forest = new Forest(); // both by path
    this.records = new Map(); // what is known of a claim, by reference; insertion is by first sight
    this.spans = new Map(); // the records at each path: lists, the newest last
    this.events = []; // the newest last
    this.evidence = new Evidence();
    this.since = now(); // from then on the page knows all changes
    this.truncated = false;
    this.ready = false;
    this.pending = null; // the snapshot under way
  }

  /** Applies one event of the stream. */
  event(name, st) {
    if (st?.state) st.received = now();
    this.live = name === "change"; // else a step may be older than its message, which has no time of its own
    switch (name) {
      case "reset":
        this.pending = nothing();
        return;
      case "remembered": // the past that follows is complete since then
        this.since = Math.min(this.since, now() - st.age);
        return;
      case "past": // changes before the first snapshot, in order
        this.change(st);
        return;
      case "snapshot":
        this.pending ??= nothing();
        collect(this.pending, st);
        return;
      case "ready":
        this.replace(this.pending ?? nothing());
        this.pending = null;
        break;
      case "change":
        if (this.pending) return; // it is in the snapshot, or follows again
        this.cutAt = 0; // it has resumed
        this.change(st);
        break;
      default:
        return;
    }
    this.lastAt = now();
  }

  /** The stream is cut: a snapshot under way is of no use, because the next one begins again. */
  cut() {
    this.cutAt ||= now();
    this.pending = null;
    if (!this.ready) this.clear();
  }

  /** Makes a snapshot the present. What is no longer in it has ended unseen. */
  replace(by) {
    const first = !this.ready;
    for (const [ref, old] of this.claims) {
      if (!by.claims.has(ref)) this.close(old, { state: "ended", reason: "", unseen: true, age: 0, received: now() });
    }
    if (!first) this.gaps.push([this.cutAt || this.lastAt, now()]);
    if (this.gaps.length > 20) this.gaps.shift();
    this.cutAt = 0;
    const before = this.claims;
    this.claims = new Map();
    this.forest = new Forest();
    this.freezes = new Map();
    for (const [path, st] of by.freezes) this.freeze(path, st);
    this.truncated = by.truncated;
    for (const st of by.claims.values()) this.put(st, before.get(st.claim), first);
    this.evidence.outdateAll();
    this.ready = true;
  }

  /** Applies a change. The server may send a claim twice: the higher change is the newer one. */
  change(st) {
    const paths = (st.targets ?? []).map((target) => target.path);
    if (st.state === "frozen") {
      for (const path of paths) this.freeze(path, st);
      this.log(st, "frozen");
    } else if (st.state === "ended" && !st.change) { // of a freeze
      for (const path of paths) {
        const old = this.freezes.get(path);
        this.freeze(path, null);
        if (old) this.log({ ...old, age: st.age, received: st.received }, "thawed");
      }
    } else if (!this.changeClaim(st)) return;
    for (const path of paths) this.evidence.outdate(path);
  }

  /** Applies a change of a claim, and returns whether it is new. */
  changeClaim(st) {
    const old = this.claims.get(st.claim) ?? this.records.get(st.claim)?.last;
    if (old && old.change >= st.change) return false;
    if (st.state === "ended") {
      this.close(old ?? st, st);
    } else if (!this.claims.has(st.claim) && this.claims.size >= MOST_CLAIMS) {
      this.truncated = true;
      return false;
    } else {
      this.put(st, old, false);
      // Past changes begin in the middle: there, the wait may have begun before the server remembers.
      if (!old && st.state === "held" && this.ready && !this.truncated) this.records.get(st.claim).atOnce = true;
    }
    return true;
  }

  freeze(path, st) {
    if (st) this.freezes.set(path, st);
    else this.freezes.delete(path);
    this.forest.freeze(path, st);
  }

  /** Stores a claim that waits or is held, and records what is new of it. */
  put(st, old, first) {
    const present = this.claims.get(st.claim);
    if (old?.state === st.state) inherit(st, old);
    this.claims.set(st.claim, st);
    this.forest.put(st, present);
    const record = this.record(st);
    const since = st.received - st.age;
    if (st.state === "waiting") {
      record.waits ??= since;
      if (!old) this.step(record, since, "waits");
      if (st.priority !== old?.priority && old) {
        this.step(record, st.received, "priority " + (st.priority ?? 0), undefined, !this.live);
      }
    } else if (old?.state !== "held") {
      record.held = since;
      record.fence = st.fence;
      this.step(record, since, "granted");
      if (!first) this.log(st, "granted", record);
    }
    if (st.asked && JSON.stringify(st.asked.reason) !== JSON.stringify(old?.asked?.reason)) {
      this.step(record, st.received, "asked", st.asked, !this.live);
      if (!first) this.log({ ...st, age: 0 }, "asked", record, !this.live);
    }
    record.last = st;
    for (const target of st.targets ?? []) this.span(target.path, record);
  }

  /** Records the end of a claim. */
  close(old, st) {
    const present = this.claims.get(old.claim);
    if (present) this.forest.remove(present);
    this.claims.delete(old.claim);
    const record = this.record(old);
    if (record.reason === "unseen") record.steps.pop(); // now it is seen
    record.end = st.received - (st.age ?? 0);
    if (record.held === undefined && st.fence) { // it was granted before the page knows
      record.held = record.waits ?? Math.min(this.since, record.end);
      record.early = true;
    }
    record.reason = st.unseen ? "unseen" : st.reason;
    record.last = { ...old, ...st, claim: old.claim, targets: st.targets ?? old.targets, as: st.as ?? old.as };
    this.step(record, record.end, "ended", st);
    if (!st.unseen) this.log({ ...record.last, age: st.age ?? 0, received: st.received }, "ended", record);
    for (const target of record.last.targets ?? []) this.span(target.path, record);
  }

  record(st) {
    let record = this.records.get(st.claim);
    if (!record) {
      record = { claim: st.claim, seen: now(), steps: [], last: st };
      this.records.set(st.claim, record);
      if (this.records.size > MOST_CLAIMS + MOST_ENDED) this.forget();
    }
    return record;
  }

  /** Drops the oldest records of ended claims. */
  forget() {
    let drop = MOST_ENDED / 5;
    for (const [ref, record] of this.records) {
      if (drop <= 0) return;
      if (record.end === undefined) continue;
      this.records.delete(ref);
      for (const { path } of record.last.targets ?? []) {
        const rest = (this.spans.get(path) ?? []).filter((r) => r !== record);
        if (rest.length) this.spans.set(path, rest);
        else this.spans.delete(path);
      }
      drop--;
    }
  }

  /** Adds a step to a claim's history. late: it was before at, nobody knows when. */
  step(record, at, kind, detail, late) {
    record.steps.push({ at, kind, detail, late });
    if (record.steps.length > MOST_STEPS) record.steps.shift();
  }

  span(path, record) {
    const list = this.spans.get(path);
    if (!list) {
      this.spans.set(path, [record]);
      return;
    }
    if (list.includes(record)) return;
    list.push(record);
    if (list.length > MOST_SPANS) list.splice(Math.max(0, list.findIndex((r) => r.end !== undefined)), 1);
  }

  log(st, kind, record, late) {
    this.events.push({ at: st.received - (st.age ?? 0), kind, st, record, late });
    if (this.events.length > MOST_EVENTS) this.events.shift();
  }

  /** Applies what a list says of claims: position, estimate, reasons, blockers. */
  explain(list) {
    for (const st of list) {
      const known = this.claims.get(st.claim);
      if (known?.state !== "waiting" && !known?.converting || st.change < known.change) continue;
      const { position, eta, waits } = st;
      const blockers = st.blockers?.map((b) => ({ ...b, endsAt: b.left ? now() + b.left : undefined }));
      Object.assign(known, { position, waits, blockers, etaAt: eta ? now() + eta : undefined });
    }
  }

  /** Returns the claims with a target at exactly that path: holders first, then the queue. */
  at(path) {
    return this.forest.at(path);
  }
}

/** Adds a claim or a freeze to a snapshot. */
function collect(into, st) {
  if (st.state === "frozen") {
    for (const target of st.targets ?? []) into.freezes.set(target.path, st);
  } else if (into.claims.size < MOST_CLAIMS) {
    into.claims.set(st.claim, st);
  } else {
    into.truncated = true;
  }
}

/** Gives a newer status the evidence of an older one, until the next list. */
function inherit(st, old) {
  const { position, waits, blockers, etaAt } = old;
  Object.assign(st, { position, waits, blockers, etaAt });
}
