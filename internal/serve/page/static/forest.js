// The tree of paths with their claims and freezes, kept in order while claims come and go, and the
// rows that a search and a filter show of it. Nothing here touches the document.

/** A queue that is longer shows its first SHORT waiters, and a row that unfolds the others. */
const LONG = 12;
const SHORT = 8;

/** Sorts claims as they are granted: holders by age, then waiters by priority and ticket. */
export function inOrder(list) {
  const rank = (st) => (st.state === "held" ? 0 : 1);
  return list.sort((a, b) => rank(a) - rank(b) || (rank(a) === 0 ? (a.fence ?? 0) - (b.fence ?? 0)
    : (b.priority ?? 0) - (a.priority ?? 0) || (a.ticket ?? 0) - (b.ticket ?? 0)));
}

/** A path, with what is there and the totals of everything below it. */
class Node {
  constructor(name, parent) {
    this.name = name;
    this.path = parent?.path ? parent.path + "/" + name : name;
    this.order = name.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0")); // 2 before 10
    this.parent = parent;
    this.children = new Map(); // by name
    this.claims = new Map(); // by reference
    this.frozen = null; // the freeze at this path
    this.held = 0;
    this.waiting = 0;
    this.sortedChildren = null; // null: to be sorted
    this.sortedClaims = null;
    this.drawn = null; // { level, rows } of this path and all below; null: something there has changed
  }

  /** Something at this path has changed: the rows of it and of those above are to be made again. */
  touch() {
    for (let node = this; node; node = node.parent) node.drawn = null;
  }

  inside() {
    this.sortedChildren ??= [...this.children.values()].sort((a, b) => (a.order < b.order ? -1
      : a.order > b.order ? 1 : a.name < b.name ? -1 : 1));
    return this.sortedChildren;
  }

  queue() {
    this.sortedClaims ??= inOrder([...this.claims.values()]);
    return this.sortedClaims;
  }

  count(held, waiting) {
    for (let node = this; node; node = node.parent) {
      node.held += held;
      node.waiting += waiting;
    }
  }
}

export class Forest {
  constructor() {
    this.root = new Node("", null); // everything: its freeze is at "/"
    this.nodes = new Map([["/", this.root]]); // by path
  }

  /** Returns the node of a path, and makes it and those above it. */
  make(path) {
    const known = this.nodes.get(path);
    if (known) return known;
    const slash = path.lastIndexOf("/");
    const parent = slash < 0 ? this.root : this.make(path.slice(0, slash));
    const node = new Node(path.slice(slash + 1), parent);
    parent.children.set(node.name, node);
    parent.sortedChildren = null;
    this.nodes.set(path, node);
    return node;
  }

  /** Removes a node, and those above it, as far as they are empty. */
  prune(node) {
    while (node.parent && !node.claims.size && !node.children.size && !node.frozen) {
      this.nodes.delete(node.path);
      node.parent.children.delete(node.name);
      node.parent.sortedChildren = null;
      node = node.parent;
    }
  }

  /** Adds a claim that is new, or in a new state. */
  put(st, old) {
    if (old) this.remove(old, st);
    for (const { path } of st.targets) {
      const node = this.make(path);
      if (!node.claims.has(st.claim)) node.count(...tally(st));
      node.claims.set(st.claim, st);
      node.touch();
      node.sortedClaims = null;
    }
  }

  /** Removes a claim. The nodes of the paths of next stay. */
  remove(st, next) {
    for (const { path } of st.targets) {
      const node = this.nodes.get(path);
      const known = node?.claims.get(st.claim);
      if (!known) continue;
      const [held, waiting] = tally(known);
      node.count(-held, -waiting);
      node.claims.delete(st.claim);
      node.touch();
      node.sortedClaims = null;
      if (!next?.targets.some((t) => t.path === path)) this.prune(node);
    }
  }

  /** Freezes a path, or thaws it if st is null. */
  freeze(path, st) {
    const node = st ? this.make(path) : this.nodes.get(path);
    if (!node) return;
    node.frozen = st;
    node.touch();
    this.prune(node);
  }

  /** The rows of a path are folded or unfolded. */
  touch(path) {
    this.nodes.get(path)?.touch();
  }

  /** Returns [claim, path] of the holders above a path. */
  above(path) {
    const found = [];
    for (let i = path.lastIndexOf("/"); i > 0; i = path.lastIndexOf("/", i - 1)) {
      const at = path.slice(0, i);
      for (const st of this.at(at)) if (st.state === "held") found.push([st, at]);
    }
    return found;
  }

  /** Returns [claim, path] of the first holders below a path. */
  below(path, most) {
    const found = [];
    const visit = (node) => {
      for (const child of node.inside()) {
        if (found.length >= most) return;
        if (!child.held) continue;
        for (const st of child.queue()) if (st.state === "held" && found.length < most) found.push([st, child.path]);
        visit(child);
      }
    };
    if (this.nodes.has(path)) visit(this.nodes.get(path));
    return found;
  }

  /** Returns [path, waiters] of the longest queues. */
  queues(most) {
    const found = [];
    const visit = (node) => {
      let waiting = 0;
      for (const st of node.claims.values()) if (st.state !== "held") waiting++;
      if (waiting > 1) found.push([node.path, waiting]);
      for (const child of node.children.values()) if (child.waiting > 1) visit(child);
    };
    visit(this.root);
    return found.sort((a, b) => b[1] - a[1]).slice(0, most);
  }

  /** Returns the claims with a target at exactly that path: holders first, then the queue. */
  at(path) {
    return this.nodes.get(path)?.queue() ?? [];
  }
}

const tally = (st) => (st.state === "held" ? [1, 0] : [0, 1]);

/**
 * Returns { rows, found }: the rows in order, and how many claims and freezes match a search. A row is
 *
 *   { key, level, path, name, held, waiting, frozen, open, folds }  of a path
 *   { key, level, path, claim, target }                             of a claim
 *   { key, level, path, more }                                      of waiters that are folded
 *
 * closed has the folded paths, whole those whose long queues are unfolded.
 */
export function rowsOf(forest, { text, only, closed, whole }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = new Set();
  const shown = words.length || only ? filtered(forest, words, only, matches) : null;
  const rows = [];
  const { root } = forest;
  if (root.frozen && (!shown || shown.get(root)?.frozen)) {
    rows.push({ key: "p:/", level: 1, path: "/", name: "everything", frozen: root.frozen, held: 0, waiting: 0 });
  }
  const how = { closed, whole, shown, openAll: words.length > 0 };
  for (const child of insideOf(root, shown)) append(rows, walk(child, 1, how));
  return { rows, found: matches.size };
}

/** Returns what a search and a filter show of each node, and adds the claims and freezes to matches. */
function filtered(forest, words, only, matches) {
  const shown = new Map();
  const visit = (node) => {
    const part = { claims: [], held: 0, waiting: 0, frozen: null, any: false };
    for (const st of node.queue()) {
      if (only === "frozen" || only && st.state !== only && !(only === "waiting" && st.converting)) continue;
      if (!words.every((word) => textOf(st).includes(word))) continue;
      part.claims.push(st);
      matches.add(st);
      part[st.state === "held" ? "held" : "waiting"]++;
    }
    if (node.frozen && matchesFreeze(node, words, only)) {
      part.frozen = node.frozen;
      matches.add(node);
    }
    part.any = part.claims.length > 0 || part.frozen !== null;
    for (const child of node.children.values()) {
      const below = visit(child);
      part.held += below.held;
      part.waiting += below.waiting;
      part.any ||= below.any;
    }
    if (part.any) shown.set(node, part);
    return part;
  };
  visit(forest.root);
  return shown;
}

function matchesFreeze(node, words, only) {
  if (only && only !== "frozen") return false;
  const st = node.frozen;
  const text = [node.path || "everything", st.as, st.note, st.link].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

const texts = new WeakMap();

/** Returns what a search looks at, which is the same for the life of a status. */
function textOf(st) {
  let text = texts.get(st);
  if (text === undefined) {
    text = [...st.targets.map((t) => t.path), st.as, st.note, st.claim, st.link].join("\n").toLowerCase();
    texts.set(st, text);
  }
  return text;
}

const insideOf = (node, shown) => (shown ? node.inside().filter((child) => shown.has(child)) : node.inside());

/** Adds rows at the end of others. */
function append(rows, more) {
  for (const row of more) rows.push(row);
}

/**
 * Returns the rows of a path and below. Paths that only lead to one other path share its row. Without a
 * search the rows are kept until something there changes, so that a change of one path costs no walk
 * through all the others.
 */
function walk(node, level, how) {
  if (!how.shown && node.drawn?.level === level) return node.drawn.rows;
  const rows = rowsBelow(node, level, how);
  if (!how.shown) node.drawn = { level, rows };
  return rows;
}

function rowsBelow(node, level, how) {
  const { closed, whole, shown, openAll } = how;
  const rows = [];
  let name = node.name;
  let part = shown ? shown.get(node) : node;
  let inside = insideOf(node, shown);
  const isEmpty = () => (shown ? part.claims.length === 0 : node.claims.size === 0) && !part.frozen;
  while (inside.length === 1 && isEmpty()) {
    node = inside[0];
    name += "/" + node.name;
    part = shown ? shown.get(node) : node;
    inside = insideOf(node, shown);
  }
  const claims = shown ? part.claims : node.queue();
  const { path } = node;
  const folds = claims.length + inside.length > 0;
  const open = folds && (openAll || !closed.has(path));
  rows.push({ key: "p:" + path, level, path, name, held: part.held, waiting: part.waiting, frozen: part.frozen,
    folds, open });
  if (!open) return rows;
  let waiters = 0;
  const waiting = claims.length > LONG ? claims.filter((st) => st.state !== "held").length : 0;
  const fold = waiting > LONG && !openAll && !whole.has(path);
  for (const st of claims) {
    if (fold && st.state !== "held" && ++waiters > SHORT) break;
    rows.push({ key: "c:" + st.claim + "@" + path, level: level + 1, path, claim: st,
      target: st.targets.find((t) => t.path === path) });
  }
  if (fold) rows.push({ key: "m:" + path, level: level + 1, path, more: waiting - SHORT });
  for (const child of inside) append(rows, walk(child, level + 1, how));
  return rows;
}
