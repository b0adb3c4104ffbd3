// What the question in the box would cost and how wide its intervals would be: asked while one types, free.

import { call } from "./api.js";
import { clippedBadge } from "./clipped.js";
import { brief, byId, el, percent, problem, show, width } from "./dom.js";

const PAUSE_MS = 400;
let timer = null;
let underWay = null;

// Estimate soon; every keystroke starts the pause anew and drops what is under way.
export function estimateSoon(question, { found, goTo }) {
  clearTimeout(timer);
  underWay?.abort();
  timer = setTimeout(() => estimate(question(), { found, goTo }), PAUSE_MS);
}

export function dropEstimate() {
  clearTimeout(timer);
  underWay?.abort();
}

async function estimate(asked, { found, goTo }) {
  const box = byId("estimate");
  if (!asked.sql.trim() || !asked.dataset) {
    show(box);
    found(null);
    return;
  }
  underWay = new AbortController();
  try {
    const { body } = await call("POST", "/v1/estimates", { body: asked, signal: underWay.signal });
    show(box, told(body));
    found(body);
  } catch (error) {
    if (error.name === "AbortError") return;
    show(box, problem(error, { sql: asked.sql, goTo }));
    found(null);
  }
}

export function costText(cost) {
  if (cost.replay_of) return "nothing: it was answered before";
  const main = cost.epsilon !== null ? `ε ${brief(cost.epsilon)}` : `ρ ${brief(cost.rho)}`;
  const delta = Number(cost.delta) ? `, δ ${brief(cost.delta)}` : "";
  return `${main}${delta} (${percent(cost.share)} of the budget)`;
}

function widths(columns) {
  const values = columns.filter((column) => column.role === "value");
  return values.map((column) => el("li", {}, el("span", { class: "mono" }, column.name), " ",
    column.half_width_95 === null || column.half_width_95 === undefined
      ? el("span", { class: "quiet-text" }, "its interval comes with the answer")
      : `± ${width(column.half_width_95)}`, " ", clippedBadge(column)));
}

function groupsText(groups) {
  const hidden = groups.find((each) => !each.declared);
  return hidden && `A group is shown from about ${Math.ceil(hidden.threshold.people)} people on.`;
}

function told(body) {
  const needs = body.would_need && Object.entries(body.would_need).map(([name, amount]) => `${name} ${brief(amount)}`);
  const groups = groupsText(body.groups ?? []);
  return [
    el("p", { class: "figure" }, "Would cost ", el("strong", {}, costText(body.cost))),
    el("ul", { class: "plain widths", "aria-label": "Half-widths of 95 % intervals" }, widths(body.columns)),
    el("p", { class: "hint" },
      groups && `${groups} `,
      !body.replay_of && `Takes ${body.seconds} s, whatever the data holds. `,
      !body.replay_of && `About ${body.similar_queries_left} like this left. `,
      needs && `That accuracy needs ${needs.join(" or ")}. `,
      body.notes.filter((note) => !note.startsWith("Group keys are private")).join(" ")),
    !body.fits && el("p", { class: "warn" }, "The budget does not cover this any more."),
  ].filter(Boolean);
}
