/** Requests to our own server. Two things can go wrong: nobody answers, or the server refuses with a reason. */

/** The server did not answer, or not as itself: try again later. */
export class Unreachable extends Error {}

/** The server answered with an error. It is final when our own server names its reason: other programs may have its port. */
export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? "refused");
    Object.assign(this, { status, final: body.refused === true && body.project === project });
  }
}

const PATIENCE = 15_000; // milliseconds
let project = "";
let asking = 0;

/** Name the project that every change is meant for. */
export function aim(id) {
  project = id;
}

/** Ask, and return the response with its body; null where that is no JSON. */
async function ask(path, options, patience) {
  underWay(+1);
  try {
    const response = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(patience) });
    return [response, await response.json().catch(() => null)];
  } catch (error) {
    throw new Unreachable(error.message);
  } finally {
    underWay(-1);
  }
}

/** Requests under way; the page shows it to whoever drives it, for example a test. */
function underWay(change) {
  asking += change;
  document.body.toggleAttribute("data-asking", asking > 0);
}

async function request(path, options, patience = PATIENCE) {
  const [response, body] = await ask(path, options, patience);
  if (body === null) throw new Unreachable(`no answer (${response.status})`);
  if (!response.ok) throw new Refused(response.status, body);
  return body;
}

export const get = (path) => request(path, {});

export function post(path, body, patience = PATIENCE) {
  const headers = { "Content-Type": "application/json", "X-MMA": project };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) }, patience);
}

/** Do something in one tab of this browser at a time. */
export const oneTab = (name, act) => (navigator.locks ? navigator.locks.request(name, act) : act());

/** The address of an image, smaller ("thumb") or as large as is useful ("full"). */
export const imageAddress = (id, size) => `/images/${id}/${size}`;
