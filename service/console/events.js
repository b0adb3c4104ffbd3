// What failed after its charge and what came late: of a dataset, and of every person who asked it.

import { at, call } from "./api.js";
import { el, table } from "./dom.js";

export function eventsOf(dataset, events, again) {
  const rows = events.owners.map((each) => [
    el("span", { class: "mono" }, each.owner), `${each.failures} of ${each.failures_allowed}`, String(each.late),
    each.paused ? resuming(dataset, each.owner, again) : "",
  ]);
  return el("details", { class: "events", open: events.owners.some((each) => each.paused) || undefined },
    el("summary", {}, "Events"),
    el("p", { class: "hint" },
      `${events.failures} of ${events.failures_allowed} failures allowed, ${events.late} late answers. `
      + `Promised times are at least ${events.safety_factor} times the predicted ones.`),
    rows.length ? table("Events by owner", ["Owner", "Failures", "Late", ""], rows) : el("p", {}, "Nobody has asked yet."));
}

function resuming(dataset, owner, again) {
  const reason = el("input", { class: "short", required: true, autocomplete: "off", "aria-label": `Reason to resume ${owner}`, placeholder: "Reason" });
  const send = (event) => {
    event.preventDefault();
    again(async () => call("POST", at`/v1/datasets/${dataset}/resume`, { body: { owner, reason: reason.value } }));
  };
  return el("form", { class: "row", submit: send }, reason, el("button", { type: "submit" }, "Resume"));
}
