// The one place that talks to the service. Every call is call("METHOD", path): tests/console reads them all
// and compares them with the documented endpoints.

const KEY = "halftone.key";

// sessionStorage: gone with the tab, never sent by the browser on its own, not shared with other origins.
export const signedIn = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.clear(); // drafts too: the next user of this tab is somebody else
export const keyPrefix = () => (sessionStorage.getItem(KEY) ?? "").split("_")[1] ?? "";

// What the service refused, as RFC 9457 tells it; or what kept us from reaching it (status 0).
export class Problem extends Error {
  constructor(body, status) {
    super(body.title ?? "Something went wrong");
    this.body = body;
    this.status = status;
  }
}

// A path with names put in safely: at`/v1/datasets/${dataset}`.
export const at = (parts, ...names) =>
  parts.reduce((path, part, index) => path + encodeURIComponent(names[index - 1]) + part);

// Whole numbers beyond 2^53 stay the digits that were sent.
const exact = (_, value, context) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
    ? context.source
    : value;
const parse = (text) => JSON.parse(text, /\d{16}/.test(text) ? exact : undefined);

// A key may have a few requests at once; the page takes at most this many of them and lines the others up.
const AT_ONCE = 4;
const line = [];
let running = 0;

async function inTurn(doing) {
  if (running >= AT_ONCE) await new Promise((resolve) => line.push(resolve));
  else running += 1;
  try {
    return await doing();
  } finally {
    if (line.length) line.shift()(); // hands its place over
    else running -= 1;
  }
}

async function reach(path, request) {
  try {
    return await inTurn(() => fetch(path, request));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = "No answer came. If you asked something, asking it again now is the same attempt: it is paid once.";
    throw new Problem({ title: "The service could not be reached", detail, budget_spent: null }, 0);
  }
}

// One request. Gives { status, body, retryAfter }; body is parsed JSON, or a Blob with as: "blob".
export async function call(method, path, { body, headers = {}, signal, as = "json" } = {}) {
  const sent = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const request = { method, headers: sent, signal, credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
  if (body !== undefined) request.body = JSON.stringify(body);
  const response = await reach(path, request);
  if (!response.ok) throw await problemOf(response);
  const retryAfter = Number(response.headers.get("Retry-After") ?? 1);
  if (as === "blob") return { status: response.status, body: await response.blob(), retryAfter };
  const text = await response.text();
  return { status: response.status, body: text ? parse(text) : null, retryAfter };
}

async function problemOf(response) {
  let body = { title: `The service answered ${response.status}`, detail: "without saying why" };
  try {
    body = await response.json();
  } catch {
    // A proxy in between may answer with something else; the status is all that it told us.
  }
  if (response.status === 401) document.dispatchEvent(new CustomEvent("signed-out", { detail: body }));
  return new Problem(body, response.status);
}

// Names one attempt. getRandomValues, because randomUUID is missing where the page is served without TLS.
export const attemptName = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
