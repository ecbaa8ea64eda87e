/** Requests to our own server. Two things can go wrong: nobody answers, or the server refuses with a reason. */

/** The server did not answer, or not as itself: try again later. */
export class Unreachable extends Error {}

/** The server understood and said no. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether the same request would be refused again: then there is no use in repeating it. */
  get final() {
    return [400, 404, 410, 422].includes(this.status);
  }
}

const PATIENCE = 15_000; // milliseconds
let project = "";

/** Name the project that every change is meant for. */
export function aim(id) {
  project = id;
}

async function request(path, options, patience = PATIENCE) {
  let response;
  try {
    response = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(patience) });
  } catch (error) {
    throw new Unreachable(error.message);
  }
  const body = await response.json().catch(() => null);
  if (body === null) throw new Unreachable(`no answer (${response.status})`);
  if (!response.ok) throw new Refused(response.status, body.error ?? "refused");
  return body;
}

export const get = (path) => request(path, {});

export function post(path, body, patience = PATIENCE) {
  const headers = { "Content-Type": "application/json", "X-MMA": project };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) }, patience);
}

/** The address of an image, smaller ("thumb") or as large as is useful ("full"). */
export const imageAddress = (id, size) => `/images/${id}/${size}`;
