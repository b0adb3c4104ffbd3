// Keep a question as a panel: it gets a name, a rhythm and a budget line of its own.

import { at, call } from "./api.js";
import { el, problem, show } from "./dom.js";

const field = (label, input) => el("label", {}, label, input);

// A folded form under an answer; `asked` is the request that was answered.
export function keepAsPanel(asked) {
  const name = el("input", { class: "short", required: true, pattern: "[a-z][a-z0-9_]*", placeholder: "by_country", autocomplete: "off" });
  const title = el("input", { autocomplete: "off" });
  const rhythm = el("select", {}, [["P1D", "every day"], ["PT1H", "every hour"], ["P7D", "every week"], ["", "only when told"]]
    .map(([value, text]) => el("option", { value }, text)));
  const budget = el("input", { class: "short", required: true, inputmode: "decimal", placeholder: "0.5", autocomplete: "off" });
  const said = el("div", { "aria-live": "polite" });
  const form = el("form", { class: "keep", submit: (event) => { event.preventDefault(); keep(); } },
    el("div", { class: "row" }, field("Name", name), field("Title", title), field("Refresh", rhythm),
      field("Budget, in what the question pays with", budget), el("button", { type: "submit" }, "Keep")), said);

  async function keep() {
    const panel = name.value.trim();
    const { fresh, ...question } = asked; // a panel pays once per data version
    const body = { ...question, title: title.value.trim(), refresh: rhythm.value || null, budget: budget.value.trim() };
    try {
      await call("PUT", at`/v1/panels/${panel}`, { body });
      show(said, el("p", {}, "Kept. ", el("a", { href: "#panels" }, "See the panels")));
    } catch (error) {
      show(said, problem(error));
    }
  }
  return el("details", {}, el("summary", {}, "Keep as a panel"), form);
}
