// The nodes of the server's cluster: asked for while somebody looks, and drawn beside the tree.

import { el } from "./dom.js";
import * as server from "./server.js";
import { now } from "./store.js";
import { clock, duration, plural, visible } from "./words.js";

const PAUSE = 2; // seconds between two questions

/** Knows the cluster as the server's node knows it. changed() is called when it has asked. */
export class Cluster {
  constructor(changed) {
    this.changed = changed;
    this.status = null; // null: no cluster is known
    this.askedAt = 0; // of the latest question
    this.at = 0; // of the status
    this.failure = ""; // why there is no newer status
  }

  /** Asks, unless an answer is new. With mayLook false there is no cluster for this identity. */
  async follow(mayLook) {
    if (!mayLook) {
      this.status = null;
      return;
    }
    if (document.hidden || now() - this.askedAt < PAUSE * 0.9) return;
    this.askedAt = now();
    try {
      this.status = await server.request("GET", "/v1/cluster");
      this.at = now();
      this.failure = "";
    } catch (error) {
      this.failure = error.message;
    }
    this.changed();
  }

  /** Returns what the header says: "3 of 3 nodes". */
  short() {
    const { nodes } = this.status;
    return nodes.filter((n) => n.reached).length + " of " + plural(nodes.length, "node");
  }

  /** Reports whether an operator has to act. */
  isBad() {
    return this.status.state !== "ready" || (this.status.alarms ?? []).length > 0;
  }

  /** Returns the state of the cluster in a sentence. */
  sentence() {
    const s = this.status;
    if (s.failed) return "The node " + visible(s.node) + " has stopped: " + visible(s.failed);
    const since = s.state !== "ready" && s.since ? " for " + duration(s.since) : "";
    const voters = s.nodes.filter((n) => n.role === "voter").length;
    return capital(visible(s.state)) + since + ": " + s.live + " of " + plural(voters, "voter") + " reached, " +
      s.majority + " needed; " + (s.leader ? visible(s.leader) + " leads" : "none leads") + ".";
  }

  /** Returns the alarms and the nodes, as elements. */
  draw() {
    const s = this.status;
    return [
      el("p", { class: "status" }, el("span", { class: "mark " + (s.state === "ready" ? "held" : "asked") }),
        el("span", {}, this.sentence())),
      (s.alarms ?? []).map((alarm) => el("div", { class: "notice alarm" }, el("strong", {}, "Alarm: "),
        el("bdi", {}, visible(alarm.text)), el("div", {}, "To do: ", el("bdi", {}, visible(alarm.remedy))))),
      el("ul", { class: "cards nodes" }, s.nodes.map((n) => this.node(n))),
      el("p", { class: "muted" }, "As the node " + visible(s.node) + " knows it, in term " + s.term + ", at change " +
        s.applied.toLocaleString() + (this.failure ? ", at " + clock(this.at) + ". The server did not answer since: " +
        visible(this.failure) : ".")),
    ];
  }

  node(n) {
    const roles = { voter: "votes", learner: "does not vote", outside: "has not joined yet" };
    const role = n.leads ? "leads" : roles[n.role] ?? visible(n.role);
    const reach = n.name === this.status.node ? "this node" : n.reached ? "reached"
      : "not reached for " + duration(n.silent);
    const mark = !n.reached ? "ended" : n.role === "voter" ? "held" : "waiting";
    return el("li", {},
      el("span", { class: "mark " + mark }),
      el("span", {}, el("strong", {}, el("bdi", {}, visible(n.name))), " " + role),
      el("span", { class: "muted" },
        [reach, "rank " + visible(n.rank), visible(n.clients || "no clients")].join(" · ")),
      !n.reached && n.error && el("bdi", { class: "note" }, visible(n.error)));
  }
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
