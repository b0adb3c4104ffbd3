// An answer: a table of values with their intervals, a chart where there is one, notes, cost and receipt.

import { at, call } from "./api.js";
import { chartOf } from "./chart.js";
import { clippedBadge, clippedLine } from "./clipped.js";
import { brief, el, number, problem, table, width } from "./dom.js";
import { costText } from "./estimate.js";

const ROWS_SHOWN = 200;

// value ± half-width where the interval lies evenly around it, else value [low, high].
// Ends are rounded to what their width makes meaningful, so a column's own half-width is the better figure.
function interval(value, low, high, known) {
  if (low === null || low === undefined || high === null || high === undefined) return null;
  if ([value, low, high].every((each) => typeof each === "number")) {
    const half = (high - low) / 2;
    const even = half > 0 && Math.abs(high - value - half) <= 0.05 * half;
    if (even) return `± ${width(typeof known === "number" && Math.abs(known - half) <= 0.05 * half ? known : half)}`;
  }
  return `[${number(low)}, ${number(high)}]`;
}

function cell(answer, row, column) {
  const value = answer.rows[row][column];
  const shown = value === null ? el("span", { class: "quiet-text" }, "NULL") : number(value);
  if (answer.columns[column].role !== "value") return shown;
  const around = interval(value, answer.low_95?.[row]?.[column], answer.high_95?.[row]?.[column], answer.columns[column].half_width_95);
  return [el("span", { class: "value" }, shown), around && el("span", { class: "around" }, ` ${around}`)];
}

// Rows up to a page; the rest by a button, because a browser is slow with a hundred thousand.
export function tableOf(answer, caption) {
  const heads = answer.columns.map((column) => [column.name, " ", clippedBadge(column)]);
  const rowAt = (row) => answer.columns.map((_, column) => cell(answer, row, column));
  const shown = Math.min(ROWS_SHOWN, answer.rows.length);
  const built = table(caption, heads, Array.from({ length: shown }, (_, row) => rowAt(row)));
  answer.columns.forEach((column, index) => {
    if (column.role === "value") built.querySelectorAll("th")[index].classList.add("right");
  });
  built.querySelectorAll("td").forEach((td, index) => {
    if (answer.columns[index % heads.length].role === "value") td.classList.add("right");
  });
  const hidden = answer.rows.length - shown;
  return [built, hidden > 0 && el("p", { class: "hint" }, `${hidden} more rows: the CSV file has all ${answer.rows.length}.`)];
}

async function download(answer, problems) {
  try {
    const id = answer.id;
    const { body } = await call("GET", at`/v1/queries/${id}?format=csv`, { as: "blob" });
    const address = URL.createObjectURL(body);
    el("a", { href: address, download: `${id}.csv` }).click();
    URL.revokeObjectURL(address);
  } catch (error) {
    problems.replaceChildren(problem(error));
  }
}

function receipt(answer) {
  const found = { id: answer.id, data_version: answer.data_version, cost: answer.cost, remaining: answer.remaining, ...answer.receipt };
  return el("details", {}, el("summary", {}, "Receipt"), el("pre", { class: "receipt" }, JSON.stringify(found, null, 2)));
}

function price(answer) {
  const { cost, remaining } = answer;
  const left = remaining ? ` ε ${brief(remaining.epsilon)} was left.` : "";
  if (cost.replay_of) return [el("span", { class: "tag free" }, "free replay"), ` Answered before; this cost nothing.${left}`];
  return [`Cost ${costText(cost)}.${left}`];
}

// Everything about one answer, as nodes.
export function answerOf(answer, extra = []) {
  const problems = el("div", { role: "alert" });
  const chart = chartOf(answer);
  const empty = answer.rows.length === 0 && el("p", {}, "No rows: no group was large enough to be shown, or none is left.");
  return [
    el("h2", {}, "Answer"),
    el("p", { class: "figure price" }, price(answer)),
    chart,
    chart && clippedLine(answer),
    empty || tableOf(answer, "Values with 95 % intervals of their noise"),
    answer.notes.length > 0 && el("ul", { class: "notes", "aria-label": "Notes" }, answer.notes.map((note) => el("li", {}, note))),
    el("p", { class: "row" }, el("button", { type: "button", click: () => download(answer, problems) }, "Download CSV"), extra),
    problems,
    receipt(answer),
  ];
}
