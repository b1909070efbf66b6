// The timeline of a path: who waited, who had it, and for how long.

import { el } from "./dom.js";
import { now } from "./store.js";
import { clock, duration, ownerOf } from "./words.js";

const MOST_LINES = 25;
const LONGEST = 3600; // seconds that a timeline shows at most

/** Returns the timeline of the records at a path; null if nothing was seen there. */
export function timeline(store, path) {
  const t = now();
  const records = (store.spans.get(path) ?? []).filter((r) => (r.end ?? t) > t - LONGEST).sort(byGrant);
  if (!records.length) return null;
  const shown = records.slice(-MOST_LINES);
  const begin = Math.max(t - LONGEST, Math.min(...shown.map((r) => r.waits ?? r.held ?? r.seen)));
  const span = Math.max(30, t - begin);
  const from = t - span;
  const place = (at) => 100 * Math.max(0, Math.min(1, (at - from) / span));
  return el("div", { class: "timeline" },
    el("table", {},
      el("caption", {}, "The last " + duration(span) + ", newest below"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Owner"), el("th", { scope: "col", class: "axis" },
        el("span", {}, clock(from)), el("span", {}, "now")), el("th", { scope: "col" }, "Waited"), el("th",
          { scope: "col" }, "Held"))),
      el("tbody", {}, shown.map((r) => line(r, t, place)))),
    records.length > shown.length && el("p", { class: "muted" }, (records.length - shown.length) +
      " earlier ones are left out."));
}

/** Orders records by their grants; those without one come last, by the beginnings of their waits. */
export function byGrant(a, b) {
  if (a.held !== b.held) return (a.held ?? Infinity) - (b.held ?? Infinity);
  return (a.waits ?? a.seen) - (b.waits ?? b.seen);
}

/** Returns the line of one claim. */
function line(r, t, place) {
  const end = r.end ?? t;
  const lane = el("div", { class: "bars" });
  if (r.waits !== undefined) lane.append(bar("waited", r.waits, r.held ?? end, place));
  if (r.held !== undefined) lane.append(bar(r.end === undefined ? "held" : "was", r.held, end, place));
  return el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", class: "link", "data-claim": r.claim,
      title: ownerOf(r.last) }, el("bdi", {}, ownerOf(r.last)))),
    el("td", { class: "axis" }, lane),
    el("td", {}, waited(r, end)),
    el("td", {}, r.held === undefined ? "" : (r.early ? "≥ " : "") + duration(end - r.held)));
}

function waited(r, end) {
  if (r.early) return "not seen";
  if (r.waits !== undefined) return duration((r.held ?? end) - r.waits);
  return r.atOnce ? "0 s" : "not seen";
}

function bar(kind, from, to, place) {
  const node = el("span", { class: "bar " + kind });
  node.style.left = place(from) + "%";
  node.style.width = Math.max(0.6, place(to) - place(from)) + "%";
  return node;
}
