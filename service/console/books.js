// The journal: does it hold, and what did admins do.

import { at, call } from "./api.js";
import { el, number, problem, show, table, when } from "./dom.js";

const PAGE = 1000;
const PAGES_MAX = 50;
const SHOWN = 100;

// Every act. The API pages from the oldest on, so all pages are read to reach the newest.
export async function actsOf() {
  const found = [];
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const after = found.length ? found[found.length - 1].number : 0;
    const limit = PAGE;
    const { body } = await call("GET", at`/v1/audit?after=${after}&limit=${limit}`);
    found.push(...body);
    if (body.length < PAGE) break;
  }
  return found;
}

export function verifying() {
  const said = el("div", { role: "status" });
  const verify = async () => {
    show(said, el("p", {}, "Deriving every balance again …"));
    try {
      const { body } = await call("POST", "/v1/ledger/verify");
      show(said, body.holds
        ? el("p", {}, el("span", { class: "tag free" }, "holds"), ` ${number(body.entries)} entries; head `, el("code", {}, body.head.slice(0, 16)), "…")
        : el("p", { class: "warn" }, `Broken at entry ${body.broken_entry}: ${body.problem}`));
    } catch (error) {
      show(said, problem(error));
    }
  };
  return el("div", {}, el("button", { type: "button", id: "verify", click: verify }, "Verify the ledger"), said);
}

function whatOf(act) {
  const { act: name, what } = act.body;
  const subject = what?.subject ?? act.dataset ?? "";
  return [el("span", { class: "mono" }, name ?? act.kind), subject && ` ${subject}`];
}

export function auditOf(acts) {
  const newest = acts.slice(-SHOWN).reverse();
  const rows = newest.map((act) => [number(act.number), when(act.at), act.who, whatOf(act), act.body.why ?? ""]);
  const caption = acts.length > SHOWN ? `The last ${SHOWN} of ${acts.length} admin acts` : "Admin acts, newest first";
  return table(caption, ["Entry", "When", "Who", "What", "Why"], rows);
}
