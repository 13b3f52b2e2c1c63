// One request to the api, and its answer as plain values.
import { session } from "./session.js";

const TIMEOUT_MS = 20000;

export const pairPath = (pair) => `/v1/pairs/${encodeURIComponent(pair)}`;
export const workloadPath = (pair, key) => `${pairPath(pair)}/workloads/${encodeURIComponent(key)}`;

export function authorised(headers = {}) {
  return session.token ? { ...headers, Authorization: `Bearer ${session.token}` } : headers;
}

// -> {status, ok, body, etag, stale, error: {code, message, field}}; status 0 when nobody answered.
export async function call(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = authorised(headers);
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const response = await fetch(path, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
      redirect: "error",
    });
    const text = await response.text();
    if (response.status === 401) session.unauthenticated();
    return {
      status: response.status,
      ok: response.ok,
      body: parsed(text),
      etag: response.headers.get("etag"),
      stale: response.headers.get("accord-stale") === "true",
      error: response.ok ? null : failure(response.status, parsed(text)),
    };
  } catch (error) {
    if (signal?.aborted) throw error;
    const message = limit.aborted ? "the server did not answer in time" : "the server cannot be reached";
    return { status: 0, ok: false, body: undefined, etag: null, stale: false, error: { code: "unreachable", message } };
  }
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}

function failure(status, body) {
  const error = body?.error ?? {};
  return { code: error.code ?? `http_${status}`, message: error.message ?? `the server answered ${status}`, field: error.field };
}
