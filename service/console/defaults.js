// Default bounds of one dataset: as they were first used, beside what the profile of today says; and to accept that.

import { at, call } from "./api.js";
import { el, problem, show, table, when } from "./dom.js";

const HEADS = ["Questions to", "Groups", "In use", "Fits today", "Since"];
const bounds = (fitted) => (fitted ? `${fitted.rows_per_unit} rows, ${fitted.groups_per_unit} groups` : "not known");
const asked = ({ table: name, joined }) => (joined.length ? `${name} with ${joined.join(", ")}` : name);
const groups = (each) => (each.groups === null ? "not declared" : String(each.groups));

// Looked up when it is unfolded: a dataset may have many.
export function defaultsOf(dataset) {
  const inside = el("div", { "aria-live": "polite" });
  const box = el("details", { toggle: () => box.open && look(dataset, inside) }, el("summary", {}, "Default bounds"), inside);
  return box;
}

async function look(dataset, inside) {
  try {
    const { body } = await call("GET", at`/v1/datasets/${dataset}/defaults`);
    const rows = body.map((each) => [asked(each), groups(each), bounds(each.before), bounds(each.after), when(each.kept_at)]);
    show(inside, rows.length
      ? [table(`Default bounds of ${dataset}`, HEADS, rows), refitting(dataset, inside)]
      : el("p", { class: "hint" }, "None is in use yet: no question has been asked without bounds since there is a profile."));
  } catch (error) {
    show(inside, problem(error));
  }
}

function refitting(dataset, inside) {
  const reason = el("input", { class: "short", required: true, autocomplete: "off" });
  const said = el("div", { role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    try {
      const { body } = await call("POST", at`/v1/datasets/${dataset}/defaults/refit`, { body: { reason: reason.value } });
      await look(dataset, inside);
      inside.append(el("p", {}, body.length ? `Accepted: ${body.length} changed.` : "Nothing changed: they fit already."));
    } catch (error) {
      show(said, problem(error));
    }
  };
  return [
    el("p", { class: "hint" }, "With what fits today, questions without bounds are new questions and cost anew; panels mark the jump."),
    el("form", { class: "row", submit: send }, el("label", {}, "Reason", reason), el("button", { type: "submit" }, "Accept what fits today")),
    said,
  ];
}
