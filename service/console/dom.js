// Building the page. Text only ever becomes a text node: whatever an alias, a title or a cell holds, it is shown
// and never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// el("p", { class: "hint" }, "text", otherNode); a function as attribute listens: { click: () => … }.
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
export const show = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter(Boolean));

// A number for people: grouped digits, nothing rounded.
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });
export const number = (value) => (typeof value === "number" ? grouped.format(value) : String(value));

// A width rounded up to two digits: it may promise too little, never too much.
export function width(value) {
  if (typeof value !== "number" || value === 0 || !Number.isFinite(value)) return String(value);
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 1);
  const digits = Math.max(0, Math.ceil(-Math.log10(step)));
  const up = Math.ceil(value / step - 1e-9) * step;
  return up >= 1e15 || up < 1e-6 ? up.toExponential(1) : number(Number(up.toFixed(Math.min(20, digits))));
}

// A decimal string cut to at most five digits, for prices and shares; the receipt has all of them.
export function brief(text) {
  const value = Number(text);
  if (text === null || text === undefined || !Number.isFinite(value)) return "—";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e6)) return value.toExponential(1).replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
}

export const percent = (share) => `${brief(Number(share) * 100)} %`;

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export function when(text) {
  if (!text) return "—";
  const moment = new Date(text);
  return el("time", { datetime: text, title: text }, Number.isNaN(moment.getTime()) ? text : clock.format(moment));
}

// A table whose first row of cells are headings; cells may be nodes or text.
export function table(caption, heads, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "quiet-text" }, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));
}

// Everything a refusal says: title, detail, where, what instead, and whether it cost anything.
export function problem(error, { sql, goTo } = {}) {
  if (error.name === "AbortError") return null;
  const body = error.body ?? { title: "The page failed", detail: error.message };
  const placed = Number.isInteger(body.line) && Number.isInteger(body.column);
  const line = placed && sql ? sql.split("\n")[body.line - 1] : undefined;
  const caret = line === undefined ? null : `${line}\n${" ".repeat(Math.max(0, body.column - 1))}^`;
  const others = (body.errors ?? []).slice(1).map((each) => el("li", {}, `${each.where}: ${each.message}`));
  return el("div", { class: "problem" },
    el("p", {}, el("strong", {}, body.title ?? "Refused"), body.detail ? ` — ${body.detail}` : ""),
    placed && el("p", {}, `Line ${body.line}, column ${body.column}`,
      goTo && [" ", el("button", { type: "button", class: "quiet", click: () => goTo(body.line, body.column) }, "Go there")]),
    caret && el("pre", { "aria-hidden": "true" }, caret),
    body.remedy && el("p", { class: "remedy" }, el("span", { class: "tag" }, "Instead"), ` ${body.remedy}`),
    others.length > 0 && el("ul", {}, others),
    body.budget_spent === true && el("p", {}, "The cost of this question stays spent."));
}

// A button that asks once more before it does something that can not be taken back.
export function twice(label, question, act) {
  const button = el("button", { type: "button", class: "quiet" }, label);
  const calm = () => {
    button.textContent = label;
    button.classList.remove("danger");
  };
  button.addEventListener("blur", calm);
  button.addEventListener("click", () => {
    if (button.classList.contains("danger")) {
      calm();
      act();
    } else {
      button.textContent = question;
      button.classList.add("danger");
    }
  });
  return button;
}
