// Builds elements. Text from others only ever becomes text nodes and attribute values: nothing in
// this page is parsed as HTML, and the server's policy forbids it.

import { visible } from "./words.js";

/**
 * Returns an element. In attrs a function is a listener, true is an empty attribute, and false, null
 * and undefined leave the attribute out. Children are nodes, texts, lists of them, or nothing.
 */
export function el(tag, attrs, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(9).filter((child) => child != null && child !== false));
  return node;
}

/** Sets the text of a node if it differs, so that a screen reader and the browser are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute of a node if it differs. */
export function setAttribute(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Replaces the children of a node. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(9).filter((child) => child != null && child !== false));
}

/**
 * Makes a node like a fresh one, and keeps the nodes that are of the same kind. So the focus, a
 * selection and a half-done click survive. Listeners are not carried over.
 */
export function patch(old, fresh) {
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  const [olds, news] = [[...old.childNodes], [...fresh.childNodes]];
  news.forEach((child, i) => (i < olds.length ? patch(olds[i], child) : old.append(child)));
  for (const extra of olds.slice(news.length)) extra.remove();
}

/** Returns a link for an address that somebody gave: only http and https become links. */
export function link(address) {
  const text = visible(address);
  let url;
  try {
    url = new URL(address);
  } catch {
    return el("span", {}, text);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return el("span", {}, text);
  return el("a", { href: url.href, rel: "noopener noreferrer", target: "_blank" }, text);
}

const SVG = "http://www.w3.org/2000/svg";

/** Returns a small decorative drawing of one path in a box of 16 by 16. */
export function icon(d) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  svg.append(path);
  return svg;
}

export const icons = {
  caret: "M6 4l4 4-4 4",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9zM10.5 10.5L14 14",
  close: "M4 4l8 8M12 4l-8 8",
  more: "M8 3v10M4 9l4 4 4-4",
  back: "M10 3L5 8l5 5",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  lock: "M5 7V5a3 3 0 0 1 6 0v2M3.5 7h9v6.5h-9z",
};
