// What is known about a dataset: tables, columns, bounds, domains, and whose privacy is kept.

import { brief, el, number, table as tableOf, width } from "./dom.js";

const DOMAIN_SHOWN = 12;

function unitOf(table) {
  if (!table.private) return "public: read without a charge";
  if (table.unit?.column) return `one person: ${table.unit.column}`;
  const via = table.unit?.via;
  return via ? `one person: ${via.column}, through ${via.references}` : "private";
}

function facts(column) {
  const said = [];
  if (column.bounds) said.push(`${column.bounds[0]} to ${column.bounds[1]}`);
  if (column.domain) {
    const more = column.domain.length - DOMAIN_SHOWN;
    said.push(column.domain.slice(0, DOMAIN_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : ""));
  }
  if (column.unique) said.push("unique");
  if (column.max_bytes) said.push(`at most ${column.max_bytes} bytes`);
  return said.join("; ");
}

function columnRow(name, column, insert) {
  const word = insert
    ? el("button", { type: "button", class: "name", title: "Put into the question", click: () => insert(name) }, name)
    : name;
  return el("tr", {}, el("th", { scope: "row" }, word), el("td", {}, column.type.toLowerCase()),
    el("td", {}, facts(column)));
}

// How large a private table is, as far as that was released or declared.
function sizeOf(table) {
  if (!table.private) return null;
  const cut = table.size && ` At most ${number(table.size.rows_per_unit_at_most)} rows of one count.`;
  if (!table.profile) return el("p", { class: "hint" }, table.size ? "Its size is declared." : "Its size is not known.", cut);
  const { words, cost, noise_std: std } = table.profile;
  const bins = table.profile.bins.map((bin) => [
    bin.most_rows === null ? `${number(bin.fewest_rows)} and more` : `up to ${number(bin.most_rows)}`, number(bin.units)]);
  return [
    el("p", { class: "hint" }, `It has ${words}.`, cut),
    el("details", {}, el("summary", {}, "Profile"),
      el("p", { class: "hint" }, `Released once, for ${cost.rho === null ? `epsilon ${brief(cost.epsilon)}` : `rho ${brief(cost.rho)}`}. `
        + `Every count has noise of deviation ${width(std)}.`),
      tableOf("How many have how many rows", ["Rows", "How many"], bins)),
  ];
}

// All tables, each folded away; clicking a name puts it where the cursor is.
export function tablesOf(schema, insert) {
  return Object.entries(schema.tables).map(([name, table]) =>
    el("details", { class: "table" },
      el("summary", {}, el("span", { class: "mono" }, name),
        el("span", { class: "quiet-text" }, table.private ? "" : " public")),
      el("p", { class: "hint" }, unitOf(table)),
      sizeOf(table),
      el("table", {},
        el("thead", { class: "unseen" }, el("tr", {}, ["Column", "Type", "Declared"].map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, Object.entries(table.columns).map(([each, column]) => columnRow(each, column, insert))))));
}

// The defaults that an empty field takes, in a sentence.
export function defaultsOf(schema) {
  const given = schema.defaults;
  return [
    `Protects each ${schema.unit} as a whole.`,
    given.epsilon && ` Default: epsilon ${given.epsilon} a question.`,
    schema.epsilon_per_query_max && ` At most ${schema.epsilon_per_query_max}.`,
  ];
}

// A first question that works: a table with a declared domain is counted by it.
export function starter(schema) {
  const tables = Object.entries(schema.tables).filter(([, table]) => table.private);
  for (const [name, table] of tables) {
    const key = Object.keys(table.columns).find((each) => table.columns[each].domain);
    if (key) return `SELECT ${key}, COUNT(*) AS n\nFROM ${name}\nGROUP BY ${key}`;
  }
  return tables.length ? `SELECT COUNT(*) AS n\nFROM ${tables[0][0]}` : "";
}

// table.column of everything that a question may bound.
export const bounded = (schema) =>
  Object.entries(schema.tables).flatMap(([name, table]) =>
    Object.entries(table.columns).filter(([, column]) => column.bounds).map(([each]) => `${name}.${each}`));
