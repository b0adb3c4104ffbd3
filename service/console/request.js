// The form as the body of a request. Amounts stay the text that was typed: the service reads decimals exactly.

import { byId, el, show } from "./dom.js";

const LABELS = { epsilon: "Epsilon", rho: "Rho", share: "Share of the budget, 0 to 1", accuracy: "Half-width" };
const text = (id) => byId(id).value.trim();
const whole = (id) => (/^\d+$/.test(text(id)) ? Number(text(id)) : text(id) || undefined);

// Fields of the way to pay that was chosen, and no others.
export function showPaying() {
  const how = text("pay");
  byId("pay-amount-box").hidden = how === "default";
  byId("pay-output-box").hidden = byId("pay-confidence-box").hidden = how !== "accuracy";
  byId("pay-amount-label").textContent = LABELS[how] ?? "Amount";
}

function payment() {
  const how = text("pay");
  if (how === "default" || (how !== "accuracy" && !text("pay-amount"))) return {};
  if (how !== "accuracy") return { [how]: text("pay-amount") };
  const confidence = String(Number((Number(text("pay-confidence") || "95") / 100).toFixed(8)));
  return { accuracy: { output: text("pay-output"), half_width: text("pay-amount"), confidence } };
}

function bounds() {
  const found = { rows_per_unit: whole("rows-per-unit"), groups_per_unit: whole("groups-per-unit") };
  const columns = {};
  const sums = {};
  for (const row of byId("column-bounds").children) {
    const [column, low, high, sum] = [...row.querySelectorAll("select, input")].map((field) => field.value.trim());
    if (low && high) columns[column] = [low, high];
    if (sum) sums[column] = sum;
  }
  if (Object.keys(columns).length) found.columns = columns;
  if (Object.keys(sums).length) found.unit_sum = sums;
  return found;
}

// One more column whose bounds the question narrows.
export function addColumn(names, changed) {
  if (names.length === 0) return;
  const field = (label, attributes = {}) =>
    el("label", {}, label, el("input", { class: "short", autocomplete: "off", ...attributes }));
  const row = el("div", { class: "row" },
    el("label", {}, "Column", el("select", {}, names.map((name) => el("option", {}, name)))),
    field("From"), field("To"), field("Most per person, summed"),
    el("button", { type: "button", class: "quiet", click: () => { row.remove(); changed(); } }, "Remove"));
  byId("column-bounds").append(row);
  row.querySelector("select").focus();
}

// undefined fields are left out by JSON, so the dataset's defaults apply.
export function question() {
  const delta = text("delta");
  return {
    dataset: text("dataset"),
    sql: byId("sql").value,
    ...payment(),
    delta: delta || undefined,
    bounds: bounds(),
    min_units: whole("min-units"),
    dialect: text("dialect"),
    fresh: byId("fresh").checked,
  };
}

// Which fields can be left empty, and what they are then.
export function showDefaults(schema) {
  const given = schema.defaults;
  const bound = (name) => (given.fitted?.includes(name) ? "fitted" : given[name]);
  const hints = { "rows-per-unit": bound("rows_per_unit"), "groups-per-unit": bound("groups_per_unit"), "min-units": given.min_units, delta: given.delta };
  for (const [id, value] of Object.entries(hints)) byId(id).placeholder = value ?? "";
  byId("pay-amount").placeholder = given.epsilon ?? "";
  show(byId("column-bounds"));
}
