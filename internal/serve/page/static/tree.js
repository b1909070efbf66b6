// The tree of paths: a treegrid with one focusable row (roving focus).

import { el, fill, icon, icons, setText } from "./dom.js";
import { rowsOf, MOST_ROWS } from "./forest.js";
import { now } from "./store.js";
import { askedText, clock, duration, modeOf, ownerOf, plural, visible, waitText } from "./words.js";

export class Tree {
  /** choose(row) is called when a row is chosen; act(row, key) for the keys of actions. */
  constructor(store, { choose, act }) {
    this.store = store;
    this.act = act;
    this.choose = choose;
    this.closed = new Set(); // paths that are folded
    this.rows = [];
    this.nodes = new Map(); // by key
    this.focus = ""; // the key of the row that Tab reaches
    this.chosen = "";
    this.text = "";
    this.only = "";
    this.body = el("div", { role: "rowgroup" });
    this.note = el("p", { class: "empty", hidden: true });
    this.grid = el("div", {
      role: "treegrid", class: "tree", "aria-label": "Locks by path", keydown: (e) => this.key(e),
        click: (e) => this.click(e),
    }, el("div", { role: "rowgroup", class: "heads" }, el("div", { role: "row" },
      ["Path and owner", "Mode", "State", "Since", "Left"].map((t, i) => el("span", { role: "columnheader",
        class: "c" + i }, t)))),
    this.body);
    this.element = el("div", { class: "treebox" }, this.grid, this.note);
  }

  /** Draws the rows of now, and reuses the nodes of rows that were there. */
  draw() {
    const { rows, more, found } = rowsOf(this.store, this);
    this.rows = rows;
    this.found = found;
    const nodes = new Map();
    let before = this.body.firstChild;
    for (const row of rows) {
      const part = this.nodes.get(row.key) ?? makeRow(row);
      part.row = row;
      nodes.set(row.key, part);
      update(part, row, row.key === this.chosen);
      if (part.node === before) before = before.nextSibling;
      else this.body.insertBefore(part.node, before);
    }
    const active = this.body.contains(document.activeElement);
    const index = Math.max(0, [...this.nodes.keys()].indexOf(this.focus));
    for (const [key, part] of this.nodes) if (!nodes.has(key)) part.node.remove();
    this.nodes = nodes;
    if (!nodes.has(this.focus)) {
      this.focus = rows[Math.min(index, rows.length - 1)]?.key ?? "";
      if (active) this.nodes.get(this.focus)?.node.focus({ preventScroll: true });
    }
    for (const [key, part] of nodes) part.node.tabIndex = key === this.focus ? 0 : -1;
    this.explain(more);
  }

  explain(more) {
    const text = this.rows.length === 0 ? this.emptyText() : more > 0
      ? plural(more, "more row") + " beyond the first " + MOST_ROWS.toLocaleString() + ": search, or fold paths." : "";
    this.note.hidden = !text;
    setText(this.note, text);
    this.grid.hidden = this.rows.length === 0;
  }

  emptyText() {
    if (!this.store.ready) return "Loading…";
    if (this.text || this.only) return "Nothing matches. Press Esc in the search to see everything.";
    return "Nothing is held, and nothing waits. A lock appears here at once: try lk run demo -- sleep 60";
  }

  /** Updates what passes with time. */
  tick() {
    for (const part of this.nodes.values()) times(part, part.row);
  }

  /** Marks a row as chosen, and optionally focuses it. */
  select(key, focus) {
    this.chosen = key;
    if (this.nodes.has(key)) this.focus = key;
    this.draw();
    if (focus) this.nodes.get(this.focus)?.node.focus();
  }

  current() {
    return this.nodes.get(this.focus)?.row;
  }

  click(event) {
    const node = event.target.closest("[data-key]");
    if (!node) return;
    const row = this.nodes.get(node.dataset.key)?.row;
    if (!row) return;
    if (event.target.closest(".caret") && row.folds) this.fold(row, row.open);
    else {
      this.focus = row.key;
      this.choose(row, false);
    }
  }

  fold(row, close) {
    if (close) this.closed.add(row.path);
    else this.closed.delete(row.path);
    this.focus = row.key;
    this.draw();
    this.nodes.get(row.key)?.node.focus();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.current();
    const i = this.rows.indexOf(row);
    const go = (to) => {
      const next = this.rows[Math.max(0, Math.min(to, this.rows.length - 1))];
      if (!next) return;
      this.nodes.get(this.focus).node.tabIndex = -1;
      this.focus = next.key;
      const node = this.nodes.get(next.key).node;
      node.tabIndex = 0;
      node.focus();
    };
    switch (event.key) {
      case "ArrowDown": case "j": go(i + 1); break;
      case "ArrowUp": case "k": go(i - 1); break;
      case "Home": go(0); break;
      case "End": go(this.rows.length - 1); break;
      case "PageDown": go(i + 15); break;
      case "PageUp": go(i - 15); break;
      case "ArrowRight": case "l":
        if (row.folds && !row.open) this.fold(row, false);
        else if (row.folds) go(i + 1);
        break;
      case "ArrowLeft": case "h":
        if (row.folds && row.open && !this.text) this.fold(row, true);
        else go(this.rows.findLastIndex((r, n) => n < i && r.level < row.level));
        break;
      case "Enter": case " ": this.choose(row, true); break;
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
  if (row.claim) {
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

function update(part, row, chosen) {
  const node = part.node;
  node.setAttribute("aria-level", row.level);
  node.setAttribute("aria-selected", chosen);
  if (row.claim) {
    const st = row.claim;
    const state = st.state === "held" ? (st.asked ? "asked" : "held") : "waiting";
    part.mark.className = "mark " + state;
    setText(part.owner, ownerOf(st));
    setText(part.note, visible(st.note));
    setText(part.cells[1], modeOf(row.target));
    node.classList.toggle("waits", st.state === "waiting");
  } else {
    if (row.folds) node.setAttribute("aria-expanded", row.open);
    else node.removeAttribute("aria-expanded");
    part.caret.classList.toggle("none", !row.folds);
    setText(part.name, visible(row.name));
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
  part.cells[3].title = "since " + clock(since);
  setText(part.cells[4], leftText(st, t));
  if (row.claim) setText(part.cells[2], stateText(st, t));
}

/** Returns what a claim does, and why. */
export function stateText(st, t) {
  if (st.state === "held" && st.asked) return askedText(st.asked, t, st.received);
  if (st.state === "held" && st.converting) return "held, waits to be exclusive";
  if (st.state === "held") return "held";
  return waitText(st) || "waiting";
}

/** Returns how long it will still take, as far as that is known. */
export function leftText(st, t) {
  if (st.etaAt) return "about " + duration(st.etaAt - t);
  if (st.left == null) return "";
  return (st.state === "waiting" ? "gives up in " : "ends in ") + duration(st.left - (t - st.received));
}
