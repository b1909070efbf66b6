// Requests to the server, and the stream of its events.

const KEEP_ALIVE = 15; // seconds between two comments of a quiet stream
const SILENCE = 2.5 * KEEP_ALIVE; // after so long without a byte the stream counts as cut
const LONGEST_PAUSE = 15; // seconds between two attempts

/** The answer of a server that refused a request. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || "the server answered " + status);
    this.status = status;
  }
}

let action = ""; // the token that the server wants with every action

/** Sends a request, and returns the JSON of the answer; null if it has none. */
export async function request(method, path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (action && method !== "GET") headers["Lockkeeper-Action"] = action;
  const answer = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin",
    cache: "no-store", redirect: "error", signal: AbortSignal.timeout(20_000),
  });
  const text = await answer.text();
  let said = null;
  try {
    said = text ? JSON.parse(text) : null;
  } catch {
    // not JSON: a proxy, say
  }
  if (!answer.ok) throw new Refusal(answer.status, said);
  return said;
}

/** Returns what the server says of itself and of this browser; null if the browser must log in. */
export async function session() {
  try {
    const said = await request("GET", "/page/session");
    action = said.action ?? "";
    return said;
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

/** Logs in with a token. */
export async function login(token) {
  const said = await request("POST", "/page/session", { token });
  action = said.action ?? "";
  return said;
}

/** Logs out. */
export async function logout() {
  await request("DELETE", "/page/session");
  action = "";
}

/** Returns a path as a part of a URL. */
export function inURL(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}

export const revoke = (claim, note, force) =>
  request("POST", "/v1/claims/" + encodeURIComponent(claim) + "/revoke", { note, force });

export const freeze = (path, seconds, note) => path === "/"
  ? request("PUT", "/v1/freezes", { all: true, for: seconds, note })
  : request("PUT", "/v1/freezes/" + inURL(path), { for: seconds, note });

export const thaw = (path, note) => path === "/"
  ? request("DELETE", "/v1/freezes?all=true&note=" + encodeURIComponent(note))
  : request("DELETE", "/v1/freezes/" + inURL(path) + "?note=" + encodeURIComponent(note));

/**
 * Follows the server's events until stop is called. It calls on.event(name, data) for each, and
 * on.state("live" | "cut" | "login", text) when the stream begins, is cut, or needs a login. After a
 * cut it resumes from the last event that it received.
 */
export function follow(path, on) {
  let stopped = false;
  let last = "";
  let failures = 0;
  let timer = 0;
  let control = null;
  async function once() {
    control = new AbortController();
    const query = new URLSearchParams();
    if (path) query.set("path", path);
    if (last) query.set("last_event_id", last);
    else query.set("past", "true");
    const answer = await fetch("/v1/events?" + query, {
      headers: { Accept: "text/event-stream" }, credentials: "same-origin", cache: "no-store", redirect: "error",
      signal: control.signal,
    });
    if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => null));
    on.state("live", "");
    failures = 0;
    await read(answer.body, control, (name, id, data) => {
      if (id) last = id;
      if (name && !stopped) on.event(name, JSON.parse(data || "{}"));
    });
    throw new Error("the server ended the stream");
  }
  async function run() {
    try {
      await once();
    } catch (error) {
      if (stopped) return;
      if (error.status === 401) {
        on.state("login", "");
        return;
      }
      failures++;
      on.state("cut", error instanceof Refusal ? error.message : "");
      const pause = Math.min(LONGEST_PAUSE, 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
      timer = setTimeout(run, pause * 1000);
    }
  }
  run();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      control?.abort();
    },
    retry() { // at once, because the browser is online again
      if (!stopped && failures > 0) {
        clearTimeout(timer);
        timer = setTimeout(run, 0);
      }
    },
  };
}

/** Reads server-sent events until the stream ends, and fails if it is silent for too long. */
async function read(body, control, event) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let at = { name: "", id: "", data: "" };
  for (;;) {
    const silence = setTimeout(() => control.abort(new Error("silent")), SILENCE * 1000);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const colon = line.indexOf(": ");
      const field = colon < 0 ? line : line.slice(0, colon);
      const text = colon < 0 ? "" : line.slice(colon + 2);
      if (field === "event") at.name = text;
      else if (field === "id") at.id = text;
      else if (field === "data") at.data = text;
      else if (line === "") {
        event(at.name, at.id, at.data);
        at = { name: "", id: "", data: "" };
      }
    }
  }
}
