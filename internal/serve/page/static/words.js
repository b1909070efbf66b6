// Words for people: durations, times, modes, reasons. The same words as lk and the documentation.

/** Returns text with hidden characters written out, so that no name can disguise itself. */
export function visible(text) {
  return String(text ?? "").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\u034f\u115f\u1160\u3164\uffa0]/gu,
    (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

/** Returns a duration of so many seconds in at most two units, which no line break separates: "3 min 12 s". */
export function duration(seconds) {
  return inUnits(seconds).replaceAll(" ", "\u00a0");
}

function inUnits(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return s + " s";
  if (s < 600) return Math.floor(s / 60) + " min" + (s % 60 ? " " + (s % 60) + " s" : "");
  if (s < 3600) return Math.floor(s / 60) + " min";
  const m = Math.floor(s / 60);
  if (m < 1440) return Math.floor(m / 60) + " h" + (m % 60 ? " " + (m % 60) + " min" : "");
  const h = Math.floor(m / 60);
  return Math.floor(h / 24) + " d" + (h % 24 ? " " + (h % 24) + " h" : "");
}

const clockForm = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayForm = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit",
  minute: "2-digit" });

/** Returns the local time of a moment in seconds; of another day with the date. */
export function clock(at) {
  const date = new Date(at * 1000);
  return (date.toDateString() === new Date().toDateString() ? clockForm : dayForm).format(date);
}

/** Returns 1st, 2nd, 3rd, 4th and so on. */
export function ordinal(n) {
  const tens = n % 100;
  if (tens > 10 && tens < 14) return n + "th";
  return n + (["th", "st", "nd", "rd"][n % 10] ?? "th");
}

/** Returns how a target is claimed: "exclusive", "2 of 5 permits". */
export function modeOf(target) {
  if (target.mode === "permits") return (target.units ?? 1) + " of " + target.limit + " permits";
  return target.mode;
}

/** Returns the name of a claim's owner; without one, the claim's reference. */
export function ownerOf(st) {
  return visible(st.as || st.claim || "an operator");
}

/** Returns "2nd in line"; "" if that is unknown, or says nothing because the claim waits for the end of a freeze. */
export function positionText(st) {
  const frozen = st.waits?.includes("frozen") || st.blockers?.[0]?.why === "frozen";
  return st.position && !frozen ? ordinal(st.position) + " in line" : "";
}

const MOST_BLOCKERS = 8; // the engine names no more of them

/** Returns why a claim waits, in a few words, as far as that is known. */
export function waitText(st) {
  const parts = [];
  const position = positionText(st);
  if (position) parts.push(position);
  const blocker = st.blockers?.[0];
  if (blocker) parts.push(blockerText(blocker));
  else if (st.waits?.length) parts.push(st.waits.map(visible).join(", "));
  const more = (st.blockers ?? []).filter((b) => b.why === blocker.why).length - 1;
  const least = st.blockers?.length >= MOST_BLOCKERS ? "at least " : "";
  return parts.join(" · ") + (more > 0 ? " and " + least + more + " more" : "");
}

/** Returns what a blocker does: "held by nightly". */
export function blockerText(b) {
  const who = b.as || b.claim;
  if (b.why === "frozen") {
    return "frozen" + (who ? " by " + visible(who) : "") + (b.endsAt ? " until " + clock(b.endsAt) : "");
  }
  if (b.why === "own limit") return "over its own limit, with " + visible(who || "others");
  if (b.why === "asked to yield") return visible(who || "the holder") + " was asked to yield";
  return visible(b.why) + (who ? " " + visible(who) : "");
}

/** Returns what a holder was asked to do. */
export function askedText(asked) {
  const by = asked.as || asked.by;
  return asked.reason === "overdue" ? "held for too long, asked to yield"
    : "asked to yield" + (by ? " by " + visible(by) : "");
}

/** Returns "1 claim", "2 claims". */
export function plural(n, one, many) {
  return n.toLocaleString() + " " + (n === 1 ? one : many ?? one + "s");
}

/** Returns the end of a claim in words. */
export function endText(st) {
  const text = st.text ? ": " + visible(st.text) : "";
  return (visible(st.reason) || "ended") + text;
}
