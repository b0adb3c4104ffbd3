// What an admin sees: datasets with their budgets, imports, keys, and the books.

import { at, call } from "./api.js";
import { actsOf, auditOf, verifying } from "./books.js";
import { gauge } from "./budget.js";
import { defaultsOf } from "./defaults.js";
import { brief, byId, el, problem, show, twice, when } from "./dom.js";
import { eventsOf } from "./events.js";
import { keysCard } from "./keys.js";

const LOOK_AGAIN_MS = 2000;
const boxes = {};
let datasets = [];

export async function openAdmin() {
  if (!boxes.datasets) {
    for (const name of ["datasets", "imports", "keys", "books"]) boxes[name] = el("section", { class: "card" });
    show(byId("admin"), el("div", { class: "admin" }, Object.values(boxes)));
  }
  await Promise.all([
    filled(boxes.datasets, showDatasets),
    filled(boxes.keys, () => keysCard(boxes.keys)),
    filled(boxes.books, showBooks),
  ]);
}

async function filled(box, filling) {
  try {
    await filling();
  } catch (error) {
    show(box, problem(error));
  }
}

async function showDatasets() {
  datasets = (await call("GET", "/v1/datasets")).body;
  const cards = await Promise.all(datasets.map(datasetOf));
  show(boxes.datasets, el("h2", {}, "Datasets"),
    cards.length ? cards : el("p", {}, "None is declared yet: halftone apply, or PUT /v1/datasets/…"));
}

async function datasetOf({ name, unit }) {
  const dataset = name;
  const [{ body }, { body: events }] = await Promise.all([
    call("GET", at`/v1/datasets/${dataset}/budget`), call("GET", at`/v1/datasets/${dataset}/events`),
  ]);
  const said = el("div", { "aria-live": "polite" });
  const again = async (doing) => {
    try {
      await doing();
      await showDatasets();
    } catch (error) {
      show(said, problem(error));
    }
  };
  return el("article", { class: "dataset", "aria-label": `Dataset ${dataset}` },
    el("h3", {}, dataset, el("span", { class: "quiet-text" }, ` protects each ${unit}`)),
    el("p", { class: "figure" }, el("strong", {}, `ε ${brief(body.remaining.epsilon)}`), ` of ${brief(body.granted.epsilon)} left`,
      el("span", { class: "quiet-text" }, ` · ceiling ε ${brief(body.ceiling.epsilon)} at δ ${brief(body.ceiling.delta)}`)),
    gauge({ granted: body.granted.epsilon, left: body.remaining.epsilon, label: `Budget of ${dataset}` }),
    body.weak && el("p", { class: "warn" }, `A ${body.weak}.`),
    events.paused && el("p", { class: "warn" }, "Paused: no question is answered."),
    granting(dataset, body, again), rationing(dataset, again), pausing(dataset, events.paused, again),
    eventsOf(dataset, events, again), defaultsOf(dataset), said);
}

const field = (label, attributes) => {
  const input = el("input", { class: "short", autocomplete: "off", ...attributes });
  return [input, el("label", {}, label, input)];
};

function granting(dataset, budget, again) {
  const [epsilon, epsilonBox] = field("Epsilon in all", { inputmode: "decimal", placeholder: budget.granted.epsilon });
  const [delta, deltaBox] = field("Delta in all", { inputmode: "decimal", placeholder: budget.granted.delta });
  const [reason, reasonBox] = field("Reason", { required: true });
  const send = (event) => {
    event.preventDefault();
    const body = { epsilon: epsilon.value.trim() || undefined, delta: delta.value.trim() || undefined, reason: reason.value };
    again(async () => call("POST", at`/v1/datasets/${dataset}/grants`, { body }));
  };
  return el("details", {}, el("summary", {}, "Grant"),
    el("p", { class: "hint" }, "How much of the ceiling may be used from now on. What is spent stays spent."),
    el("form", { class: "row", submit: send }, epsilonBox, deltaBox, reasonBox, el("button", { type: "submit" }, "Grant")));
}

function rationing(dataset, again) {
  const [key, keyBox] = field("Key", { required: true, placeholder: "its prefix" });
  const [share, shareBox] = field("Share, 0 to 1", { inputmode: "decimal", placeholder: "none: no ration" });
  const send = (event) => {
    event.preventDefault();
    const prefix = key.value.trim();
    const body = { share: share.value.trim() || null };
    again(async () => call("PUT", at`/v1/datasets/${dataset}/quotas/${prefix}`, { body }));
  };
  return el("details", {}, el("summary", {}, "Ration a key"),
    el("p", { class: "hint" }, "How much of this budget one key may use in all. The list of keys has their prefixes."),
    el("form", { class: "row", submit: send }, keyBox, shareBox, el("button", { type: "submit" }, "Ration")));
}

function pausing(dataset, paused, again) {
  const [reason, reasonBox] = field("Reason", { required: true });
  const send = (event) => {
    event.preventDefault();
    const body = { reason: reason.value };
    again(async () => (paused
      ? call("POST", at`/v1/datasets/${dataset}/resume`, { body })
      : call("POST", at`/v1/datasets/${dataset}/pause`, { body })));
  };
  const word = paused ? "Resume" : "Pause";
  return el("details", {}, el("summary", {}, word), el("form", { class: "row", submit: send }, reasonBox, el("button", { type: "submit" }, word)));
}

async function showBooks() {
  const acts = await actsOf();
  show(boxes.books, el("h2", {}, "Books"), verifying(), auditOf(acts));
  await filled(boxes.imports, () => showImports(acts));
}

// The API has no list of imports; the audit names the import of every declared table, and each can be looked up.
async function showImports(acts) {
  const last = new Map();
  for (const act of acts) {
    const started = act.body?.what?.import;
    if (started) last.set(act.body.what.subject, started);
  }
  const found = await Promise.all([...last].map(async ([subject, started]) => {
    try {
      return { subject, ...(await call("GET", at`/v1/imports/${started}`)).body };
    } catch (error) {
      return { subject, state: "unknown", detail: error.body?.detail ?? error.message };
    }
  }));
  const hidden = await privateTables(new Set(found.map((each) => each.subject.split(".")[0])));
  const items = found.map((each) => importOf(each, hidden.has(each.subject)));
  show(boxes.imports, el("h2", {}, "Imports"), items.length ? el("ul", { class: "plain" }, items) : el("p", {}, "None yet."));
  const running = found.some((each) => each.state === "running");
  if (running && !byId("page-admin").hidden) setTimeout(() => filled(boxes.imports, () => showImports(acts)), LOOK_AGAIN_MS);
}

// Only private tables have a profile; a dataset that is gone has no tables.
async function privateTables(datasets) {
  const tablesOf = async (name) => {
    try {
      const { body } = await call("GET", at`/v1/datasets/${name}`);
      return Object.entries(body.tables).filter(([, table]) => table.private).map(([table]) => `${name}.${table}`);
    } catch {
      return [];
    }
  };
  return new Set((await Promise.all([...datasets].map(tablesOf))).flat());
}

function importOf(found, isPrivate) {
  const running = found.state === "running";
  const [dataset, table] = found.subject.split(".");
  return el("li", { class: "import" }, el("span", { class: "mono" }, found.subject), " ",
    el("span", { class: found.state === "failed" ? "warn" : "quiet-text" }, found.state), " ",
    running && el("progress", { max: "100", value: found.percent ?? 0, "aria-label": `Import of ${found.subject}` }),
    found.finished_at && el("span", { class: "quiet-text" }, when(found.finished_at)), " ",
    !running && importing(dataset, table), " ",
    !running && isPrivate && twice("Profile again", "Really pay for a new profile?", () => profileAgain(dataset, table)),
    found.detail && el("p", { class: "hint" }, found.detail));
}

// Before an import: what it makes payable again. Then a reason, which only copies of known files need, and the word.
function importing(dataset, table) {
  const asking = el("div", { class: "asking", "aria-live": "polite" });
  const ask = async () => {
    try {
      const { body } = await call("GET", at`/v1/datasets/${dataset}/tables/${table}/dependents`);
      const [reason, reasonBox] = field("Reason, if it is a copy of known files", {});
      const send = (event) => {
        event.preventDefault();
        importAgain(dataset, table, reason.value.trim());
      };
      show(asking, el("p", { class: "warn" }, payableAgain(body)),
        el("form", { class: "row", submit: send }, reasonBox,
          el("button", { type: "submit" }, "Really import again"),
          el("button", { type: "button", class: "quiet", click: () => show(asking) }, "Leave it")));
    } catch (error) {
      show(asking, problem(error));
    }
  };
  return [el("button", { type: "button", class: "quiet", click: ask }, "Import again"), asking];
}

function payableAgain({ tables, answers, panels }) {
  const built = `This builds ${tables.join(", ")} anew.`;
  const paid = answers === 1 ? "1 stored answer that is free today becomes payable again." : `${answers} stored answers that are free today become payable again.`;
  return [built, paid, panels.length ? `Panels that read it: ${panels.join(", ")}.` : "No panel reads it."].join(" ");
}

// New data under the same declaration; the old version serves until the new one is ready.
async function importAgain(dataset, table, reason) {
  await filled(boxes.imports, async () => {
    const { body: declared } = await call("GET", at`/v1/datasets/${dataset}/declaration`);
    const body = reason ? { ...declared.tables[table], reason } : declared.tables[table];
    await call("PUT", at`/v1/datasets/${dataset}/tables/${table}`, { body });
    await showBooks();
  });
}

// About how many units and rows a private table has now, for a new charge; what is kept of a unit follows at the next import.
async function profileAgain(dataset, table) {
  await filled(boxes.imports, async () => {
    await call("POST", at`/v1/datasets/${dataset}/tables/${table}/profile`, { body: { reason: "asked for in the console" } });
    await Promise.all([showDatasets(), showBooks()]);
  });
}
