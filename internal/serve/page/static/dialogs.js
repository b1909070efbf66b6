// The dialogs: help, and the operator's actions, each with a reason and a confirmation.

import { el, fill, icon, icons } from "./dom.js";
import * as server from "./server.js";
import { duration, ownerOf, visible } from "./words.js";

/** Opens a modal dialog, and removes it when it closes. The browser keeps the focus inside. */
function open(title, ...content) {
  const back = document.activeElement;
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" },
    el("header", {}, el("h2", { id: "dialog-title" }, title),
      el("button", { type: "button", class: "quiet", "aria-label": "Close", click: () => dialog.close() },
        icon(icons.close))),
    content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (back?.isConnected) back.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks for a reason and a confirmation, and then acts. fields are further parts of the form. */
function confirm({ title, text, fields, button, act, done }) {
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const reason = el("input", { name: "reason", required: true, maxlength: 200, autocomplete: "off", autofocus: true });
  const submit = el("button", { class: "danger" }, button);
  const form = el("form", {
    submit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      error.hidden = true;
      try {
        await act(reason.value.trim(), new FormData(form));
        dialog.close();
        done?.();
      } catch (failed) {
        error.textContent = visible(failed.name === "TimeoutError"
          ? "The server did not answer in time. The outcome is unknown: look at the state before you repeat it."
            : failed.message);
        error.hidden = false;
      }
      submit.disabled = false;
    },
  }, el("p", {}, text), fields, el("label", {}, "Reason", reason,
    el("small", {}, "Others see it, and the audit log keeps it.")), error,
  el("footer", {}, el("button", { type: "button", click: () => dialog.close() }, "Cancel"), submit));
  const dialog = open(title, form);
}

/** Revokes a claim. */
export function revoke(st, done) {
  const paths = st.targets.map((t) => visible(t.path)).join(", ");
  const held = st.state === "held";
  const force = held && el("label", { class: "check" }, el("input", { type: "checkbox", name: "force" }),
    "At once, without asking. The holder may still be at work.");
  confirm({
    title: "Revoke the claim of " + ownerOf(st) + "?",
    text: held ? "The holder of " + paths + " is asked to release. Its hold ends after its TTL if it does not."
      : "It stops waiting for " + paths + " at once.",
    fields: force, button: "Revoke", done,
    act: (note, form) => server.revoke(st.claim, note, form.get("force") === "on"),
  });
}

const spans = [["300", "5 minutes"], ["1800", "30 minutes"], ["7200", "2 hours"], ["86400", "1 day"], ["604800",
  "7 days"]];

/** Freezes a path; without one it asks for the path, which nobody has to use yet. */
export function freeze(path, done) {
  const options = spans.map(([value, text]) => el("option", { value, selected: value === "1800" }, text));
  const typed = !path && el("label", {}, "Path", el("input", { name: "path", required: true, autocomplete: "off",
    spellcheck: "false", placeholder: "db/a", autofocus: true }));
  confirm({
    title: path ? "Freeze " + nameOf(path) + "?" : "Freeze a path",
    text: "Nothing new is granted there or below. Holders keep what they have, and waiters keep their positions.",
    fields: [typed, el("label", {}, "For", el("select", { name: "for" }, options))], button: "Freeze", done,
    act: (note, form) => {
      const at = path ?? form.get("path").trim();
      if (!path && !at.replaceAll("/", "")) throw new Error("This is no path. The key F freezes everything.");
      return server.freeze(at, Number(form.get("for")), note);
    },
  });
}

/** Thaws a path. */
export function thaw(path, st, done) {
  const left = st?.left == null ? "" : " It would end by itself in " +
    duration(st.left - (Date.now() / 1000 - st.received)) + ".";
  confirm({
    title: "Thaw " + nameOf(path) + "?", text: "The freeze ends, and waiters are granted what is free." + left,
    button: "Thaw", act: (note) => server.thaw(path, note), done,
  });
}

const nameOf = (path) => (path === "/" ? "everything" : visible(path));

const keys = [
  ["/", "search"], ["1 2 3 4", "show all, held, waiting, frozen"], ["↑ ↓ or k j", "previous, next row"],
  ["← → or h l", "fold, unfold"], ["Enter", "open details"], ["Esc", "back to the tree"],
  ["r", "revoke the claim"], ["f", "freeze the path"], ["t", "thaw the path"], ["p", "freeze a path that you type"],
  ["F", "freeze everything"],
  ["c", "nodes of the cluster"], ["d", "dark or light"], ["?", "this help"],
];

/** Shows the keys, and what the page knows and does not know. */
export function help() {
  open("Keys", el("dl", { class: "keys" }, keys.map(([key, text]) => el("div", {}, el("dt", {}, el("kbd", {}, key)),
    el("dd", {}, text)))),
  el("p", { class: "muted" }, "History and timelines begin with the changes that the server remembers. ",
    "Of earlier times it knows only the holds that still last. Times are of this computer's clock."));
}

/** Shows the form to log in; done(session) is called when that has worked. */
export function loginForm(done) {
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const token = el("input", {
    type: "password", name: "token", required: true, autocomplete: "current-password", spellcheck: "false",
      autofocus: true,
  });
  const submit = el("button", { class: "primary" }, "Log in");
  const form = el("form", {
    submit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      let session = null;
      try {
        session = await server.login(token.value.trim());
      } catch (failed) {
        fill(error, "You are not logged in: " + visible(failed.message) + ".");
        error.hidden = false;
        token.focus();
        token.select();
      }
      submit.disabled = false;
      if (session) done(session);
    },
  }, el("label", {}, "Token", token, el("small", {},
    "lk token new NAME makes one. The browser stays logged in for an hour.")),
  error, submit);
  return form;
}
