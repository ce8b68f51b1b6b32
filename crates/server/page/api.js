// The server's API: requests with the key, refusals as errors, streams as events.

const KEY = "weighbridge/key";
/** Where sessionStorage is forbidden, the key lasts as long as the page. */
let kept = "";

/** The API key of this tab, or "". */
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? kept;
  } catch {
    return kept;
  }
}

/** Keeps the API key until the tab is closed. */
export function setKey(value) {
  kept = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // It is in `kept`.
  }
}

/** Why a request has no answer. `status` is 0 if the server was not reached or broke off. */
export class Refusal extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Sends a request: GET, or POST with a JSON body. A refusal of the server is thrown with all of its lines. */
export async function ask(path, { body, signal } = {}) {
  const headers = {};
  // A header holds bytes: a key with other characters would be an error here, and is a wrong key there.
  if (key()) headers.Authorization = `Bearer ${key().replace(/[^\x21-\x7e]/g, "?")}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    // The API answers the same whatever is cached; credentials of the browser are none of its business.
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  let message = text.trim() || response.statusText || "The server gave no reason.";
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // A proxy's page, perhaps: it is shown as it is.
  }
  const seconds = Number(response.headers.get("Retry-After"));
  return new Refusal(response.status, String(message), seconds > 0 ? seconds : undefined);
}

/** The events of a stream, until `[DONE]`. A stream that ends before is a refusal. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += value;
      const lines = rest.split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        // Each event of this API is one line; lines that begin with a colon keep the connection alive.
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Refusal(event.error.code === "deadline_exceeded" ? 504 : 500, event.error.message);
        yield event;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof Refusal) throw error;
    throw new Refusal(0, `The connection broke: ${error.message}`);
  } finally {
    reader.cancel().catch(() => {});
  }
  throw new Refusal(0, "The connection ended before the answer did.");
}
