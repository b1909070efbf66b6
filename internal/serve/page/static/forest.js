// The rows of the tree: paths with their claims, as far as the search and the filter show them.
// Nothing here touches the document.

import { inOrder } from "./store.js";

/** The most rows that the page draws. */
export const MOST_ROWS = 1000;

/**
 * Returns { rows, more, found }: the rows in order, how many were left out, and how many claims match.
 * A row is { key, level, path, name, held, waiting, frozen, open, folds } of a path, or { key, level,
 * path, claim, target } of a claim.
 */
export function rowsOf(store, { text, only, closed }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const root = node("", "");
  let found = 0;
  for (const st of store.claims.values()) {
    if (only === "frozen" || only && st.state !== only && !(only === "waiting" && st.converting)) continue;
    if (!matches(words, st, st.targets.map((t) => t.path))) continue;
    found++;
    for (const target of st.targets) at(root, target.path).claims.push([st, target]);
  }
  for (const [path, st] of store.freezes) {
    if (only && only !== "frozen" || !matches(words, st, [path])) continue;
    found++;
    (path === "/" ? root : at(root, path)).frozen = st;
  }
  const rows = [];
  if (root.frozen) rows.push({ key: "p:/", level: 1, path: "/", name: "everything", frozen: root.frozen, held: 0,
    waiting: 0 });
  count(root);
  for (const child of sorted(root)) walk(child, 1, rows, closed, words.length > 0);
  return { rows: rows.slice(0, MOST_ROWS), more: Math.max(0, rows.length - MOST_ROWS), found };
}

function matches(words, st, paths) {
  if (!words.length) return true;
  const text = [...paths, st.as, st.note, st.claim, st.link].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

function node(path, name) {
  return { path, name, children: new Map(), claims: [], frozen: null, held: 0, waiting: 0 };
}

function at(root, path) {
  let here = root;
  for (const name of path.split("/")) {
    let next = here.children.get(name);
    if (!next) here.children.set(name, next = node(here.path ? here.path + "/" + name : name, name));
    here = next;
  }
  return here;
}

function count(here) {
  for (const [st] of here.claims) st.state === "held" ? here.held++ : here.waiting++;
  for (const child of here.children.values()) {
    count(child);
    here.held += child.held;
    here.waiting += child.waiting;
  }
}

const collator = new Intl.Collator(undefined, { numeric: true });
const sorted = (here) => [...here.children.values()].sort((a, b) => collator.compare(a.name, b.name));

/** Adds the rows of a path and below. Paths that only lead to one other path share its row. */
function walk(here, level, rows, closed, openAll) {
  let name = here.name;
  while (here.children.size === 1 && !here.claims.length && !here.frozen) {
    here = here.children.values().next().value;
    name += "/" + here.name;
  }
  const folds = here.claims.length + here.children.size > 0;
  const open = folds && (openAll || !closed.has(here.path));
  const { path, held, waiting, frozen } = here;
  rows.push({ key: "p:" + path, level, path, name, held, waiting, frozen, folds, open });
  if (!open) return;
  const order = inOrder(here.claims.map(([st]) => st));
  const target = new Map(here.claims.map(([st, t]) => [st, t]));
  for (const st of order) {
    rows.push({ key: "c:" + st.claim + "@" + path, level: level + 1, path, claim: st, target: target.get(st) });
  }
  for (const child of sorted(here)) walk(child, level + 1, rows, closed, openAll);
}
