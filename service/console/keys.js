// Keys: make one (its secret is shown once), see all, revoke.

import { at, call } from "./api.js";
import { el, problem, show, table, twice, when } from "./dom.js";

export async function keysCard(box) {
  const [{ body: keys }, { body: datasets }] = await Promise.all([call("GET", "/v1/keys"), call("GET", "/v1/datasets")]);
  const said = el("div", { role: "alert" });
  const made = el("div", { "aria-live": "polite" });
  const list = el("div", {}, listOf(keys, box, said));
  show(box, el("h2", {}, "Keys"), creating(datasets, { box, list, made, said }), made, said, list);
}

function listOf(keys, box, said) {
  const rows = keys.map((key) => [
    el("span", { class: "mono" }, key.prefix), key.name, key.owner, key.role, key.role === "admin" ? "all" : key.datasets.join(", ") || "none",
    when(key.last_used_at), key.expires_at ? when(key.expires_at) : "—",
    key.revoked_at ? ["revoked ", when(key.revoked_at)] : twice("Revoke", `Really revoke ${key.name}?`, () => revoke(key.prefix, box, said)),
  ]);
  return table("Keys, without their secrets", ["Key", "Name", "Owner", "Role", "Datasets", "Last used", "Expires", ""], rows);
}

async function revoke(prefix, box, said) {
  try {
    await call("DELETE", at`/v1/keys/${prefix}`);
    await keysCard(box);
  } catch (error) {
    show(said, problem(error));
  }
}

function creating(datasets, places) {
  const name = el("input", { id: "key-name", required: true, autocomplete: "off" });
  const role = el("select", { id: "key-role" }, ["analyst", "viewer", "admin"].map((each) => el("option", {}, each)));
  const owner = el("input", { id: "key-owner", autocomplete: "off", placeholder: "nobody else's" });
  const expires = el("input", { id: "key-expires", type: "date" });
  const boxes = datasets.map((each) => el("input", { type: "checkbox", value: each.name, id: `key-for-${each.name}` }));
  const allowed = el("fieldset", {}, el("legend", {}, "Datasets"),
    boxes.map((each) => el("span", { class: "check" }, each, el("label", { for: each.id }, each.value))));
  role.addEventListener("change", () => { allowed.hidden = role.value === "admin"; });
  const send = (event) => {
    event.preventDefault();
    create({
      name: name.value.trim(),
      owner: owner.value.trim() || null,
      role: role.value,
      datasets: role.value === "admin" ? [] : boxes.filter((each) => each.checked).map((each) => each.value),
      expires_at: expires.value ? `${expires.value}T00:00:00Z` : null,
    }, places);
  };
  return el("details", { id: "new-key" }, el("summary", {}, "Make a key"), el("form", { submit: send },
    el("div", { class: "row" }, el("label", {}, "Name", name), el("label", {}, "Owner (optional)", owner), el("label", {}, "Role", role), el("label", {}, "Expires (optional)", expires)),
    allowed, el("button", { type: "submit" }, "Make")));
}

async function create(wanted, { box, list, made, said }) {
  show(said);
  try {
    const { body } = await call("POST", "/v1/keys", { body: wanted });
    show(made, secretOf(body));
    show(list, listOf((await call("GET", "/v1/keys")).body, box, said));
  } catch (error) {
    show(said, problem(error));
  }
}

function secretOf(key) {
  const secret = el("code", { class: "secret" }, key.key);
  const select = () => getSelection().selectAllChildren(secret);
  const copy = async () => {
    select();
    await navigator.clipboard?.writeText(key.key).catch(() => {});
  };
  return el("div", { class: "made" }, el("p", {}, `The key of ${key.name}. It is shown this once and kept nowhere:`),
    el("p", {}, secret), el("button", { type: "button", class: "quiet", click: copy }, "Copy"));
}
