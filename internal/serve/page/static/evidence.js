// Which waits must be explained anew. The stream says that a claim waits; the list says why, at which
// position, and for how long it may still wait. The page asks only for what is on the screen.

const MOST_PATHS = 20_000;

/** Knows since when what the page knows of the waits at a path may be old. */
export class Evidence {
  constructor() {
    this.clock = 1; // counts changes
    this.floor = 1; // of the latest change of everything
    this.at = new Map(); // the latest change at each path
    this.below = new Map(); // the latest change below each path
    this.asked = new Map(); // the clock of the latest list of each path
  }

  /** A holder, a waiter or a freeze at this path has changed. It matters above and below it, too. */
  outdate(path) {
    if (path === "/") {
      this.outdateAll();
      return;
    }
    this.clock++;
    this.at.set(path, this.clock);
    for (const above of pathsAbove(path)) this.below.set(above, this.clock);
    if (this.at.size > MOST_PATHS) this.outdateAll();
  }

  outdateAll() {
    this.floor = ++this.clock;
    this.at.clear();
    this.below.clear();
    this.asked.clear();
  }

  isOld(path) {
    let latest = Math.max(this.floor, this.at.get(path) ?? 0, this.below.get(path) ?? 0);
    for (const above of pathsAbove(path)) latest = Math.max(latest, this.at.get(above) ?? 0);
    return latest > (this.asked.get(path) ?? 0);
  }

  /** A list that was asked for at that clock has explained the waits at these paths. */
  explained(paths, clock) {
    for (const path of paths) this.asked.set(path, clock);
  }
}

function pathsAbove(path) {
  const above = [];
  for (let i = path.lastIndexOf("/"); i > 0; i = path.lastIndexOf("/", i - 1)) above.push(path.slice(0, i));
  return above;
}

/** Returns the longest path that is at or above all of these; "" if there is none. */
export function common(paths) {
  let shared = paths[0]?.split("/") ?? [];
  for (const path of paths) {
    const names = path.split("/");
    const end = shared.findIndex((name, i) => name !== names[i]);
    if (end >= 0) shared = shared.slice(0, end);
  }
  return shared.join("/");
}
