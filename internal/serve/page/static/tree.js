// The tree of paths: a treegrid with one focusable row (roving focus). Only the rows on the screen are
// in the document, so that ten thousand claims cost no more than thirty.

import { el, fill, icon, icons, setAttribute, setText } from "./dom.js";
import { rowsOf } from "./forest.js";
import { now } from "./store.js";
import { askedText, clock, duration, modeOf, ownerOf, visible, waitText } from "./words.js";

const BEYOND = 10; // rows above and below the screen that are in the document, too

export class Tree {
  /** choose(row) is called when a row is chosen; act(row, key) for the keys of actions. */
  constructor(store, { choose, act }) {
    Object.assign(this, { store, choose, act });
    this.closed = new Set(); // paths that are folded
    this.whole = new Set(); // paths whose long queues are unfolded
    this.rows = []; // all of them, in order
    this.nodes = new Map(); // of the rows in the document, by key
    this.focus = ""; // the key of the row that Tab reaches
    this.focusAt = 0; // its latest index
    this.chosen = "";
    this.text = "";
    this.only = "";
    this.partial = false; // the tree leaves out what the rights or the address do not show
    this.body = el("div", { role: "rowgroup", class: "rows" });
    this.note = el("p", { class: "empty", hidden: true });
    this.grid = el("div", {
      role: "treegrid", class: "tree", "aria-label": "Locks by path", keydown: (e) => this.key(e),
      click: (e) => this.click(e),
    }, el("div", { role: "rowgroup", class: "heads" }, el("div", { role: "row", "aria-rowindex": 1 },
      ["Path and owner", "Mode", "State", "For", "Left"].map((t, i) => el("span", { role: "columnheader",
        class: "c" + i }, t)))),
    this.body);
    this.element = el("div", { class: "treebox" }, this.grid, this.note);
  }

  /** Draws the rows of now. A row on the screen stays where it is if others come before it. */
  draw() {
    const { rows, found } = rowsOf(this.store.forest, this);
    const before = this.measure();
    const anchor = before.box?.scrollTop > 0 ? this.rows[before.first] : null;
    this.rows = rows;
    this.found = found;
    this.focusAt = this.indexOf(this.focus, this.focusAt);
    if (this.focusAt < 0) {
      this.focusAt = Math.max(0, Math.min(this.lastAt ?? 0, rows.length - 1));
      this.focus = rows[this.focusAt]?.key ?? "";
    }
    this.lastAt = this.focusAt;
    this.body.style.height = rows.length * before.height + "px";
    this.grid.setAttribute("aria-rowcount", rows.length + 1);
    const anchorAt = anchor ? this.indexOf(anchor.key, before.first) : -1;
    if (anchorAt >= 0 && anchorAt !== before.first) before.box.scrollTop += (anchorAt - before.first) * before.height;
    this.paint();
    this.explain();
  }

  /** Returns the index of a row, which is likely to be at a place; -1 if there is none. */
  indexOf(key, likely = 0) {
    if (this.rows[likely]?.key === key) return likely;
    return this.rows.findIndex((row) => row.key === key);
  }

  /** Returns the height of a row, the box that scrolls, and the first and last index on its screen. */
  measure() {
    const height = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) || 34;
    let box = this.element;
    while (box && !/auto|scroll/.test(getComputedStyle(box).overflowY)) box = box.parentElement;
    const top = (box?.getBoundingClientRect().top ?? 0) - this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height));
    return { height, box, first, last: first + Math.ceil((box?.clientHeight ?? innerHeight) / height) };
  }

  /** Puts the rows on the screen into the document, and the one with the focus, and no others. */
  paint() {
    const { height, first, last } = this.measure();
    const from = Math.max(0, first - BEYOND);
    const to = Math.min(this.rows.length - 1, last + BEYOND);
    const wanted = [];
    if (this.rows.length && this.focusAt < from) wanted.push(this.focusAt);
    for (let i = from; i <= to; i++) wanted.push(i);
    if (this.rows.length && this.focusAt > to) wanted.push(this.focusAt);
    const active = this.body.contains(document.activeElement);
    const nodes = new Map(wanted.map((i) => [this.rows[i].key, this.nodes.get(this.rows[i].key)]));
    for (const [key, part] of this.nodes) if (!nodes.has(key)) part.node.remove();
    let before = this.body.firstChild;
    for (const i of wanted) {
      const row = this.rows[i];
      const part = nodes.get(row.key) ?? makeRow(row);
      part.row = row;
      nodes.set(row.key, part);
      update(part, row, { chosen: row.key === this.chosen, focus: row.key === this.focus, at: i, height });
      if (part.node === before) before = before.nextSibling;
      else this.body.insertBefore(part.node, before); // a node that moves loses the focus
    }
    this.nodes = nodes;
    if (active && !this.body.contains(document.activeElement)) {
      nodes.get(this.focus)?.node.focus({ preventScroll: true });
    }
  }

  explain() {
    const text = this.rows.length === 0 ? this.emptyText() : "";
    this.note.hidden = !text;
    setText(this.note, text);
    this.grid.hidden = this.rows.length === 0;
  }

  emptyText() {
    if (!this.store.ready) return "Loading…";
    if (this.text || this.only) return "Nothing matches. Press Esc in the search to see everything.";
    if (this.partial) return "Of what this page shows you, nothing is held, and nothing waits.";
    return "Nothing is held, and nothing waits. A lock appears here at once: try lk run demo -- sleep 60";
  }

  /** Updates what passes with time. */
  tick() {
    for (const part of this.nodes.values()) times(part, part.row);
  }

  /** Marks a row as chosen, and optionally focuses it. */
  select(key, focus) {
    this.chosen = key;
    if (this.indexOf(key) >= 0) this.focus = key;
    this.draw();
    if (focus) this.nodes.get(this.focus)?.node.focus();
  }

  current() {
    return this.nodes.get(this.focus)?.row;
  }

  click(event) {
    const node = event.target.closest("[data-key]");
    const row = node && this.nodes.get(node.dataset.key)?.row;
    if (!row) return;
    if (row.more) this.unfold(row);
    else if (event.target.closest(".caret") && row.folds) this.fold(row, row.open);
    else {
      this.focus = row.key;
      this.choose(row, false);
    }
  }

  fold(row, close) {
    if (close) this.closed.add(row.path);
    else this.closed.delete(row.path);
    this.whole.delete(row.path);
    this.store.forest.touch(row.path);
    this.focus = row.key;
    this.draw();
    this.nodes.get(row.key)?.node.focus();
  }

  /** Shows the rest of a long queue. The focus goes to its first waiter. */
  unfold(row) {
    const i = this.indexOf(row.key);
    this.whole.add(row.path);
    this.store.forest.touch(row.path);
    this.draw();
    this.go(i);
  }

  /** Unfolds what hides a claim, and returns the key of its row; "" if a search or a filter leaves it out. */
  reveal(st) {
    const keyOf = () => this.rows.find((row) => row.claim?.claim === st.claim)?.key ?? "";
    const key = keyOf();
    if (key) return key;
    const { path } = st.targets[0];
    this.whole.add(path);
    for (const at of [...this.closed]) if (path === at || path.startsWith(at + "/")) this.closed.delete(at);
    this.store.forest.touch(path);
    this.draw();
    return keyOf();
  }

  /** Moves the focus to a row. */
  go(to) {
    this.focusAt = Math.max(0, Math.min(to, this.rows.length - 1));
    this.lastAt = this.focusAt;
    this.focus = this.rows[this.focusAt]?.key ?? "";
    this.paint();
    this.nodes.get(this.focus)?.node.focus();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.current();
    if (!row) return;
    const i = this.focusAt;
    switch (event.key) {
      case "ArrowDown": case "j": this.go(i + 1); break;
      case "ArrowUp": case "k": this.go(i - 1); break;
      case "Home": this.go(0); break;
      case "End": this.go(this.rows.length - 1); break;
      case "PageDown": this.go(i + 15); break;
      case "PageUp": this.go(i - 15); break;
      case "ArrowRight": case "l":
        if (row.more) this.unfold(row);
        else if (row.folds && !row.open) this.fold(row, false);
        else if (row.folds) this.go(i + 1);
        break;
      case "ArrowLeft": case "h":
        if (row.folds && row.open && !this.text) this.fold(row, true);
        else this.go(this.rows.findLastIndex((r, n) => n < i && r.level < row.level));
        break;
      case "Enter": case " ":
        if (row.more) this.unfold(row);
        else this.choose(row, true);
        break;
      case "r": case "f": case "t": this.act(row, event.key); break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Makes the nodes of a row; update fills them. */
function makeRow(row) {
  const part = { cells: [], row };
  for (let i = 0; i < 5; i++) part.cells.push(el("span", { role: "gridcell", class: "c" + i }));
  part.node = el("div", { role: "row", "data-key": row.key, class: row.claim ? "row claim" : "row path" }, part.cells);
  part.node.style.setProperty("--level", row.level);
  if (row.more) {
    part.node.className = "row more";
    part.cells[0].append(icon(icons.more), part.name = el("span"));
  } else if (row.claim) {
    part.mark = el("span", { class: "mark" });
    part.owner = el("bdi", { class: "owner" });
    part.note = el("bdi", { class: "note" });
    part.cells[0].append(part.mark, part.owner, part.note);
  } else {
    part.caret = el("span", { class: "caret" }, icon(icons.caret));
    part.name = el("bdi", { class: "name" });
    part.badges = el("span", { class: "badges" });
    part.cells[0].append(part.caret, part.name);
    part.cells[2].append(part.badges);
  }
  return part;
}

function update(part, row, { chosen, focus, at, height }) {
  const node = part.node;
  const top = "translateY(" + at * height + "px)";
  if (part.top !== top) {
    node.style.transform = part.top = top;
    node.setAttribute("aria-rowindex", at + 2);
  }
  setAttribute(node, "tabindex", focus ? 0 : -1);
  setAttribute(node, "aria-level", row.level);
  setAttribute(node, "aria-selected", chosen);
  if (row.more) {
    setText(part.name, row.more.toLocaleString() + " more wait");
    return;
  }
  if (row.claim) {
    const st = row.claim;
    const state = st.state === "held" ? (st.asked ? "asked" : "held") : "waiting";
    setAttribute(part.mark, "class", "mark " + state);
    setLong(part.owner, ownerOf(st));
    setLong(part.note, visible(st.note));
    setText(part.cells[1], modeOf(row.target));
    node.classList.toggle("waits", st.state === "waiting");
  } else {
    if (row.folds) setAttribute(node, "aria-expanded", row.open);
    else node.removeAttribute("aria-expanded");
    part.caret.classList.toggle("none", !row.folds);
    setLong(part.name, visible(row.name), row.path === "/" ? row.name : visible(row.path));
    const text = row.held + "/" + row.waiting + "/" + Boolean(row.frozen);
    if (part.said !== text) fill(part.badges, badges(row));
    part.said = text;
  }
  times(part, row);
}

/** Returns the counts of a path in words. */
function badges(row) {
  return [
    row.frozen && el("span", { class: "badge frozen" }, el("span", { class: "mark frozen" }), "frozen"),
    row.held > 0 && el("span", { class: "badge" }, row.held.toLocaleString() + " held"),
    row.waiting > 0 && el("span", { class: "badge waiting" }, row.waiting.toLocaleString() + " waiting"),
  ];
}

/** Fills the cells that change with time. */
function times(part, row) {
  const t = now();
  const st = row.claim ?? row.frozen;
  if (!st) {
    setText(part.cells[3], "");
    setText(part.cells[4], "");
    return;
  }
  const since = st.received - st.age;
  setText(part.cells[3], duration(t - since));
  if (part.since !== since) part.cells[3].title = "since " + clock(since);
  part.since = since;
  setText(part.cells[4], leftText(st, t));
  if (row.claim) setLong(part.cells[2], stateText(st));
}

/** Sets a text that its column may cut, and the tooltip that has it whole. */
function setLong(node, text, whole = text) {
  setText(node, text);
  if (node.title !== whole) node.title = whole;
}

/** Returns what a claim does, and why. */
export function stateText(st) {
  if (st.state === "held" && st.asked) return askedText(st.asked);
  if (st.state === "held" && st.converting) return "held, waits to be exclusive";
  if (st.state === "held") return "held";
  return waitText(st) || "waiting";
}

/** Returns how long it will still take, as far as that is known. */
export function leftText(st, t) {
  if (st.etaAt) return st.etaAt > t ? "about " + duration(st.etaAt - t) : "longer than usual";
  const left = st.left ?? st.asked?.left;
  if (left == null) return "";
  return (st.state === "waiting" ? "gives up in " : "ends in ") + duration(left - (t - st.received));
}
