// Panels: questions that refresh themselves. Looking is free, as often as one likes.

import { at, call, keyPrefix } from "./api.js";
import { tableOf } from "./answer.js";
import { gauge } from "./budget.js";
import { chartOf } from "./chart.js";
import { clippedLine } from "./clipped.js";
import { brief, byId, el, problem, show, twice, when } from "./dom.js";

const LOOK_AGAIN_MS = 30_000;
const STATES = { good: "good", waiting: "waiting for its first refresh" };
let timer = null;
let shownAs = "";

export async function openPanels(role) {
  clearInterval(timer);
  timer = setInterval(() => (byId("page-panels").hidden || document.hidden ? null : look(role)), LOOK_AGAIN_MS);
  await look(role);
}

async function look(role) {
  try {
    const { body } = await call("GET", "/v1/panels");
    const answers = await Promise.all(body.map((each) => load(each)));
    const now = JSON.stringify(answers);
    if (now === shownAs) return; // nothing new: whatever is unfolded or focused stays so
    shownAs = now;
    const cards = answers.map((panel) => card(panel, role));
    show(byId("panels"), cards.length
      ? el("div", { class: "panels" }, cards)
      : el("p", { class: "card" }, "There are no panels yet. An analyst keeps a question as a panel under its answer."));
  } catch (error) {
    shownAs = "";
    show(byId("panels"), problem(error));
  }
}

async function load(listed) {
  const { panel, dataset } = listed; // several datasets may have a panel of one name
  try {
    return (await call("GET", at`/v1/panels/${panel}?dataset=${dataset}`)).body;
  } catch (error) {
    return { ...listed, failure: error.body ?? { title: "Could not be read", detail: error.message } };
  }
}

function facts(panel) {
  const rows = [
    ["State", panel.state === "good" ? "good" : [el("span", { class: "warn" }, STATES[panel.state] ?? panel.state), panel.state_detail ? `: ${panel.state_detail}` : ""]],
    ["Refreshed", when(panel.refreshed_at)],
    ["Next refresh", panel.next_refresh_at ? when(panel.next_refresh_at) : "only when told"],
    ["Runs out on", panel.runs_out_on ?? "—"],
    ["Dataset", panel.dataset],
    ...(panel.bounds_change ? [["Bounds changed", el("span", { class: "warn" }, panel.bounds_change)]] : []),
  ];
  return el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function card(panel, role) {
  const said = el("div", { role: "alert" });
  const { unit, line, spent, per_refresh: each } = panel.budget;
  const left = String(Math.max(0, Number(line) - Number(spent)));
  const chart = panel.rows ? chartOf(panel) : null;
  const mine = role === "admin" || (role === "analyst" && panel.owner === keyPrefix());
  return el("article", { class: "card panel", "aria-label": panel.title || panel.panel },
    el("h2", {}, panel.title || panel.panel),
    panel.failure && problem({ body: panel.failure }),
    panel.rows ? [chart, chart && clippedLine(panel), chart === null ? tableOf(panel, "Values with 95 % intervals") : folded(panel)]
      : el("p", { class: "hint" }, "No answer yet."),
    facts(panel),
    gauge({ granted: line, left, label: "Budget line of this panel" }),
    el("p", { class: "hint" }, `${brief(left)} of ${brief(line)} ${unit} left, ${brief(each)} a refresh.`),
    mine && el("p", { class: "row" }, refreshing(panel, role, said), deleting(panel, role, said)),
    said);
}

const folded = (panel) => el("details", {}, el("summary", {}, "Numbers"), tableOf(panel, "Values with 95 % intervals"));

function refreshing({ panel, dataset }, role, said) {
  const refresh = async () => call("POST", at`/v1/panels/${panel}/refresh?dataset=${dataset}`);
  return el("button", { type: "button", class: "quiet", click: () => act(refresh, role, said) }, "Refresh now");
}

function deleting({ panel, dataset }, role, said) {
  return twice("Delete", "Really delete?", () => act(async () => call("DELETE", at`/v1/panels/${panel}?dataset=${dataset}`), role, said));
}

async function act(doing, role, said) {
  try {
    await doing();
    await look(role);
  } catch (error) {
    show(said, problem(error));
  }
}
