// The analyst's page: choose a dataset, write a question, see its price, ask it.

import { at, attemptName, call } from "./api.js";
import { answerOf } from "./answer.js";
import { budgetCard } from "./budget.js";
import { bounded, defaultsOf, starter, tablesOf } from "./data.js";
import { byId, el, problem, show } from "./dom.js";
import { dropEstimate, estimateSoon } from "./estimate.js";
import { followHistory, showHistory } from "./history.js";
import { keepAsPanel } from "./keep.js";
import { addColumn, question, showDefaults, showPaying } from "./request.js";

const DRAFT = "halftone.sql";
const state = { dataset: null, schema: null, budget: null, after: null, setSql, showAnswer, showProblem, follow };
let attempt = { body: null, name: null };
let waiting = null; // the id of the query that this page waits for
let opened = false;

export async function openAsk() {
  if (opened) return refreshBudget();
  opened = true;
  listen();
  try {
    const { body } = await call("GET", "/v1/datasets");
    show(byId("dataset"), body.map((each) => el("option", { value: each.name }, each.name)));
    if (body.length === 0) return show(byId("budget"), el("p", {}, "This key reads no dataset. Ask an admin for one."));
    await choose(body[0].name);
  } catch (error) {
    show(byId("budget"), problem(error));
  }
}

function listen() {
  const changed = () => {
    sessionStorage.setItem(DRAFT, byId("sql").value);
    estimateSoon(question, { found, goTo });
  };
  byId("question").addEventListener("input", changed);
  byId("question").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  byId("sql").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask();
    }
  });
  byId("pay").addEventListener("change", () => {
    showPaying();
    changed();
  });
  byId("add-column").addEventListener("click", () => addColumn(bounded(state.schema), changed));
  byId("dataset").addEventListener("change", () => choose(byId("dataset").value));
  byId("cancel").addEventListener("click", cancel);
  byId("tables-box").open = window.matchMedia("(min-width: 60rem)").matches;
  followHistory(state);
}

async function choose(dataset) {
  state.dataset = dataset;
  const { body } = await call("GET", at`/v1/datasets/${dataset}`);
  state.schema = body;
  show(byId("tables"), el("p", { class: "hint" }, defaultsOf(body)), tablesOf(body, insert));
  showDefaults(body);
  setSql(byId("sql").value || sessionStorage.getItem(DRAFT) || starter(body));
  await Promise.all([refreshBudget(), showHistory(state)]);
}

async function refreshBudget() {
  const dataset = state.dataset;
  if (dataset === null) return;
  try {
    state.budget = (await call("GET", at`/v1/datasets/${dataset}/budget`)).body;
    drawBudget();
  } catch (error) {
    show(byId("budget"), problem(error));
  }
}

const drawBudget = () => state.budget && show(byId("budget"), budgetCard(state.budget, state.after));

// What an estimate found: the gauge shows what would be taken, and accuracy can name the outputs.
function found(estimate) {
  state.after = estimate && !estimate.replay_of ? estimate.remaining_after : null;
  drawBudget();
  if (estimate === null) return;
  const outputs = estimate.columns.filter((column) => column.role === "value");
  show(byId("outputs"), outputs.map((column) => el("option", { value: column.name })));
  if (!byId("pay-output").value && outputs.length) byId("pay-output").value = outputs[0].name;
}

function setSql(sql) {
  byId("sql").value = sql;
  byId("question").dispatchEvent(new Event("input"));
}

function insert(word) {
  const box = byId("sql");
  box.setRangeText(word, box.selectionStart, box.selectionEnd, "end");
  box.focus();
  setSql(box.value);
}

function goTo(line, column) {
  const box = byId("sql");
  const before = box.value.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  box.focus();
  box.setSelectionRange(before + column - 1, before + column);
}

// The same question asked again after a lost connection is the same attempt: it is paid once.
function attemptFor(body) {
  const text = JSON.stringify(body);
  if (attempt.body !== text) attempt = { body: text, name: attemptName() };
  return attempt.name;
}

async function ask() {
  const asked = question();
  if (waiting !== null || byId("ask").disabled || !asked.sql.trim()) return;
  dropEstimate();
  busy("Asking …");
  try {
    const { status, body } = await call("POST", "/v1/queries", { body: asked, headers: { "Idempotency-Key": attemptFor(asked) } });
    attempt = { body: null, name: null };
    if (status === 202) return await follow(body, asked);
    calm(showAnswer(body, asked));
  } catch (error) {
    if (error.status !== 0) attempt = { body: null, name: null };
    calm(showProblem(error));
  }
}

// 202: look again until it is there. Polled, because a browser's stream of events can not send the key.
async function follow(sent, asked = null) {
  const id = sent.id;
  waiting = id;
  byId("cancel").hidden = false;
  busy("Working on it …");
  try {
    for (;;) {
      const { status, body, retryAfter } = await call("GET", at`/v1/queries/${id}`);
      if (status === 200) return calm(showAnswer(body, asked));
      await new Promise((resolve) => setTimeout(resolve, retryAfter * 1000));
    }
  } catch (error) {
    calm(showProblem(error));
  }
}

async function cancel() {
  const id = waiting;
  if (id === null) return;
  try {
    await call("DELETE", at`/v1/queries/${id}`);
    byId("asking").textContent = "Asked to stop; a charge that was made stays.";
  } catch (error) {
    showProblem(error);
  }
}

function busy(text) {
  byId("ask").disabled = true;
  byId("asking").textContent = text;
}

function calm(said) {
  waiting = null;
  byId("ask").disabled = false;
  byId("cancel").hidden = true;
  byId("asking").textContent = said;
  refreshBudget();
  showHistory(state);
  estimateSoon(question, { found, goTo });
}

// Both give the sentence for the status line, which is what a screen reader hears.
function showAnswer(body, asked = null) {
  byId("answer").hidden = false;
  show(byId("answer"), answerOf(body, asked ? keepAsPanel(asked) : []));
  byId("answer").scrollIntoView({ block: "nearest" });
  return `Answered: ${body.rows.length} ${body.rows.length === 1 ? "row" : "rows"}.`;
}

function showProblem(error) {
  byId("answer").hidden = false;
  show(byId("answer"), el("h2", {}, "Not answered"), problem(error, { sql: byId("sql").value, goTo }));
  return "Not answered.";
}
