// What the page knows: the claims and freezes of now, and what it has seen since it was opened.
// Nothing here touches the document.
//
//   open ──snapshot*──> ready ──change*──> ... ──reset snapshot* ready──> ...
//
// A snapshot replaces everything at its end (ready), so that the page never shows half of one. All
// bounds are fixed: a page that is open for weeks keeps the latest.

const MOST_CLAIMS = 5000;
const MOST_ENDED = 2000; // claims whose history is kept after their end
const MOST_STEPS = 100; // of the history of one claim
const MOST_EVENTS = 200; // of the feed
const MOST_SPANS = 100; // of one path
const MOST_PATHS = 2000; // with spans

export const now = () => Date.now() / 1000;

export class Store {
  constructor() {
    this.claims = new Map(); // present ones, by reference
    this.freezes = new Map(); // by path
    this.records = new Map(); // what was seen of a claim, by reference; insertion is by first sight
    this.spans = new Map(); // waits and holds by path: lists, the newest last
    this.events = []; // the newest last
    this.opened = now();
    this.gaps = []; // [from, to] of cuts after which changes were missed
    this.truncated = false;
    this.ready = false;
    this.version = 0; // rises with every change
    this.dirty = new Set(); // trees whose evidence may be old
    this.pending = null; // the snapshot under way
    this.cutAt = 0; // since when the stream is cut, until it has resumed; 0: it is not
    this.lastAt = now(); // of the latest event
  }

  /** Applies one event of the stream. */
  event(name, st) {
    switch (name) {
      case "reset":
        this.pending = { claims: new Map(), freezes: new Map(), truncated: false };
        return;
      case "snapshot":
        this.pending ??= { claims: new Map(), freezes: new Map(), truncated: false };
        this.collect(this.pending, st);
        return;
      case "ready":
        this.replace(this.pending ?? { claims: new Map(), freezes: new Map(), truncated: false });
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
    this.version++;
  }

  /** The stream is cut: a snapshot under way is of no use, because the next one begins again. */
  cut() {
    this.cutAt ||= now();
    this.pending = null;
    this.version++;
  }

  collect(into, st) {
    st.received = now();
    if (st.state === "frozen") {
      for (const target of st.targets ?? []) into.freezes.set(target.path, st);
    } else if (into.claims.size < MOST_CLAIMS) {
      into.claims.set(st.claim, st);
    } else {
      into.truncated = true;
    }
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
    this.freezes = by.freezes;
    this.truncated = by.truncated;
    for (const st of by.claims.values()) this.put(st, before.get(st.claim), first);
    this.ready = true;
  }

  /** Applies a change. The server may send a claim twice: the higher change is the newer one. */
  change(st) {
    st.received = now();
    if (st.state === "frozen") {
      for (const target of st.targets ?? []) this.freezes.set(target.path, st);
      this.log(st, "frozen");
      this.touch(st);
      return;
    }
    if (st.state === "ended" && !st.change) { // of a freeze
      for (const target of st.targets ?? []) {
        const old = this.freezes.get(target.path);
        this.freezes.delete(target.path);
        if (old) this.log({ ...old, age: 0, received: now() }, "thawed");
      }
      this.touch(st);
      return;
    }
    const old = this.claims.get(st.claim) ?? this.records.get(st.claim)?.last;
    if (old && old.change >= st.change) return;
    if (st.state === "ended") {
      this.claims.delete(st.claim);
      this.close(old ?? st, st);
      this.touch(st);
      return;
    }
    if (!this.claims.has(st.claim) && this.claims.size >= MOST_CLAIMS) {
      this.truncated = true;
      return;
    }
    this.put(st, old, false);
    this.touch(st);
  }

  /** Stores a claim that waits or is held, and records what is new of it. */
  put(st, old, first) {
    this.claims.set(st.claim, st);
    const record = this.record(st);
    const since = st.received - st.age;
    if (st.state === "waiting") {
      record.waits ??= since;
      if (!old) this.step(record, since, "waits");
      if (st.priority !== old?.priority && old) this.step(record, st.received, "priority " + (st.priority ?? 0));
    } else if (old?.state !== "held") {
      record.held = since;
      record.fence = st.fence;
      this.step(record, since, "granted");
      if (!first) this.log(st, "granted", record);
    }
    if (st.asked && JSON.stringify(st.asked.reason) !== JSON.stringify(old?.asked?.reason)) {
      this.step(record, st.received, "asked", st.asked);
      if (!first) this.log({ ...st, age: 0 }, "asked", record);
    }
    record.last = st;
    this.markDirty(st);
    for (const target of st.targets ?? []) this.span(target.path, record);
  }

  /** Records the end of a claim. */
  close(old, st) {
    const record = this.record(old);
    record.end = st.received - (st.age ?? 0);
    record.reason = st.unseen ? "unseen" : st.reason;
    record.text = st.text ?? "";
    record.last = { ...old, ...st, claim: old.claim, targets: st.targets ?? old.targets, as: st.as ?? old.as };
    this.step(record, record.end, "ended", st);
    if (!st.unseen) this.log({ ...record.last, age: st.age ?? 0, received: st.received }, "ended", record);
    this.markDirty(old);
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
    let drop = MOST_ENDED / 10;
    for (const [ref, record] of this.records) {
      if (drop <= 0) return;
      if (record.end === undefined) continue;
      this.records.delete(ref);
      drop--;
    }
  }

  step(record, at, kind, detail) {
    record.steps.push({ at, kind, detail });
    if (record.steps.length > MOST_STEPS) record.steps.shift();
  }

  span(path, record) {
    let list = this.spans.get(path);
    if (!list) {
      list = [];
      if (this.spans.size >= MOST_PATHS) this.spans.delete(this.spans.keys().next().value);
      this.spans.set(path, list);
    }
    if (!list.includes(record)) list.push(record);
    if (list.length > MOST_SPANS) list.splice(list.findIndex((r) => r.end !== undefined), 1);
  }

  log(st, kind, record) {
    this.events.push({ at: st.received - (st.age ?? 0), kind, st, record });
    if (this.events.length > MOST_EVENTS) this.events.shift();
  }

  touch(st) {
    for (const target of st.targets ?? []) this.dirty.add(target.path.split("/")[0] || "/");
  }

  markDirty(st) {
    for (const target of st.targets ?? []) this.dirty.add(target.path.split("/")[0]);
  }

  /** Applies what a list says of waiting claims: position, estimate, reasons, blockers. */
  evidence(list) {
    for (const st of list) {
      const known = this.claims.get(st.claim);
      if (known?.state !== "waiting" && !known?.converting) continue;
      if (st.change < known.change) continue;
      const { position, eta, waits, blockers } = st;
      Object.assign(known, { position, waits, blockers, etaAt: eta ? now() + eta : undefined });
    }
    this.version++;
  }

  /** Returns the trees whose evidence is wanted, and begins a new collection. */
  takeDirty() {
    const waiting = new Set();
    for (const st of this.claims.values()) {
      if (st.state === "waiting" || st.converting) for (const t of st.targets) waiting.add(t.path.split("/")[0]);
    }
    const all = this.dirty.has("/") || this.dirty.has("");
    const trees = [...waiting].filter((tree) => all || this.dirty.has(tree));
    this.dirty.clear();
    return trees;
  }

  /** Returns the claims with a target at exactly that path: holders first, then the queue. */
  at(path) {
    return inOrder([...this.claims.values()].filter((st) => st.targets.some((t) => t.path === path)));
  }
}

/** Sorts claims as they are granted: holders by age, then waiters by priority and ticket. */
export function inOrder(list) {
  const rank = (st) => (st.state === "held" ? 0 : 1);
  return list.sort((a, b) => rank(a) - rank(b) || (rank(a) === 0 ? (a.fence ?? 0) - (b.fence ?? 0)
    : (b.priority ?? 0) - (a.priority ?? 0) || (a.ticket ?? 0) - (b.ticket ?? 0)));
}
