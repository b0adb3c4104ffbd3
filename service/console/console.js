// Who is here, and which page they see. The address's hash names the page, so back and bookmarks work.

import { openAdmin } from "./admin.js";
import { call, forgetKey, keepKey, keyPrefix, signedIn } from "./api.js";
import { openAsk } from "./ask.js";
import { byId, el, problem, show } from "./dom.js";
import { openPanels } from "./panels.js";

const PAGES = {
  ask: { title: "Ask", roles: ["analyst", "admin"], open: openAsk },
  panels: { title: "Panels", roles: ["viewer", "analyst", "admin"], open: openPanels },
  admin: { title: "Admin", roles: ["admin"], open: openAdmin },
};
let role = null;
let used = false; // somebody was signed in since the page was loaded

// The API does not say whose key this is; what the key may read tells its role.
async function roleOf() {
  await call("GET", "/v1/datasets");
  if (!(await allowed(() => call("GET", "/v1/queries?limit=1")))) return "viewer";
  return (await allowed(() => call("GET", "/v1/keys"))) ? "admin" : "analyst";
}

async function allowed(asking) {
  try {
    await asking();
    return true;
  } catch (error) {
    if (error.status === 403) return false;
    throw error;
  }
}

async function enter() {
  byId("sign-in").hidden = true;
  role = await roleOf();
  used = true;
  byId("who-text").textContent = `${role} ${keyPrefix()}`;
  byId("who").hidden = byId("nav").hidden = false;
  turn();
}

function leave(why = null) {
  forgetKey();
  role = null;
  for (const name of Object.keys(PAGES)) byId(`page-${name}`).hidden = true;
  byId("who").hidden = byId("nav").hidden = true;
  byId("sign-in").hidden = false;
  show(byId("sign-in-problem"), why ? problem(why) : []);
  byId("key").focus();
}

function turn() {
  if (role === null) return;
  const open = Object.entries(PAGES).filter(([, page]) => page.roles.includes(role));
  const wanted = location.hash.slice(1);
  const name = open.some(([each]) => each === wanted) ? wanted : open[0][0];
  show(byId("nav"), open.map(([each, page]) =>
    el("a", { href: `#${each}`, "aria-current": each === name ? "page" : null }, page.title)));
  for (const each of Object.keys(PAGES)) byId(`page-${each}`).hidden = each !== name;
  document.title = `${PAGES[name].title} · Halftone`;
  PAGES[name].open(role);
}

async function tryToEnter() {
  try {
    await enter();
  } catch (error) {
    leave(error);
  }
}

byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key").value = "";
  if (used) location.reload(); // what was loaded for the last key goes with the page
  else tryToEnter();
});
byId("sign-out").addEventListener("click", () => {
  forgetKey();
  location.reload(); // nothing of the last user stays in memory
});
document.addEventListener("signed-out", (event) => {
  if (role !== null) leave({ body: event.detail });
});
window.addEventListener("hashchange", () => {
  turn();
  byId("main").focus();
});

if (signedIn()) tryToEnter();
else leave();
