// Talking to this server. One batch per refresh; every failure becomes a message.

async function json(path, options) {
  const response = await fetch(path, options);
  const body = await response.json().catch(() => null);
  if (body === null) throw new Error(`${path} answered ${response.status}`);
  return body;
}

/** The `data` of a Prometheus endpoint; throws its error message. */
export async function get(path, params = {}, signal = undefined) {
  const query = new URLSearchParams(params).toString();
  const body = await json(query ? `${path}?${query}` : path, { signal });
  if (body.status !== "success") throw new Error(body.error || `${path} failed`);
  return body.data;
}

/** A text of this server. */
export async function text(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.text();
}

/** What the server tells a page first: where the data comes from and how often it is read, the
 * boards (uid, title, description, tags, ids of panels by slug), and one of them as Classic JSON,
 * or null where there is none of that uid. */
export function start(uid = null) {
  return get("/console/api/start", uid === null ? {} : { board: uid });
}

/** A board as Classic JSON; null when there is none of that uid. */
export async function board(uid) {
  const response = await fetch(`/console/api/boards/${encodeURIComponent(uid)}`);
  return response.ok ? response.json() : null;
}

/** Answers many queries at once: for each `{data}` or `{error}`, in order. */
export async function batch(queries, signal) {
  if (queries.length === 0) return [];
  const body = await json("/console/api/batch", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(queries),
    signal,
  });
  if (body.status !== "success") throw new Error(body.error);
  return body.data.map((one) =>
    one.status === "success" ? { data: one.data } : { error: one.error });
}
