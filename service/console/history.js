// This key's own questions, newest first. Looking again is free: the stored answer is shown.

import { at, call } from "./api.js";
import { byId, el, percent, problem, show, when } from "./dom.js";

const PAGE = 10;
const PAUSE_MS = 300;
let timer = null;

export function followHistory(state) {
  byId("history-text").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => showHistory(state), PAUSE_MS);
  });
}

export async function showHistory(state) {
  const list = el("ol", { class: "plain history" });
  const more = el("button", { type: "button", class: "quiet", click: () => page(state, list, more) }, "Older");
  await page(state, list, more);
  show(byId("history-list"), list, more);
}

async function page(state, list, more) {
  const dataset = state.dataset;
  const text = byId("history-text").value.trim();
  const before = list.lastElementChild?.dataset.id;
  const limit = PAGE;
  const rest = (text ? at`&text=${text}` : "") + (before ? at`&before=${before}` : "");
  try {
    const { body } = await call("GET", at`/v1/queries?dataset=${dataset}&limit=${limit}` + rest);
    list.append(...body.map((past) => item(past, state)));
    more.hidden = body.length < PAGE;
    if (!list.children.length) list.append(el("li", { class: "hint" }, text ? "Nothing found." : "Nothing asked yet."));
  } catch (error) {
    more.hidden = true;
    list.append(el("li", {}, problem(error)));
  }
}

function item(past, state) {
  const cost = past.replay_of ? "free replay" : past.share ? `${percent(past.share)} of the budget` : past.status;
  return el("li", { "data-id": past.id },
    el("button", { type: "button", class: "past", title: "Show this question and its answer", click: () => again(past, state) },
      el("code", {}, past.sql ?? "(its process died)"),
      el("span", { class: "quiet-text" }, when(past.asked_at), ` · ${past.status} · ${cost}`)));
}

async function again(past, state) {
  const id = past.id;
  if (past.sql) state.setSql(past.sql);
  try {
    const { status, body } = await call("GET", at`/v1/queries/${id}`);
    if (status === 200) state.showAnswer(body);
    else state.follow(body);
  } catch (error) {
    state.showProblem(error);
  }
}
