// Asking the server. The token, if there is one, came in the address; it stays in this tab.

const KEY = "tidewheel-token";

export function takeToken() {
  const found = /^#token=([\w-]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, found[1]);
  history.replaceState(null, "", "/#/");
}

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

async function answer(response) {
  const body = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(body.error ?? `the server answered ${response.status}`);
  return body;
}

export async function get(view, args = {}, signal) {
  const given = Object.entries(args).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return answer(await fetch(`/api/${view}${query ? `?${query}` : ""}`, { headers: headers(), signal }));
}

export async function ask(change) {
  return answer(await fetch("/api/changes", { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(change) }));
}

export async function confirm(code) {
  return answer(await fetch(`/api/changes/${encodeURIComponent(code)}`, { method: "POST", headers: headers() }));
}

// Server-sent events by fetch, which unlike EventSource sends the token. Comes back after an outage.
export async function follow(job, handlers, signal) {
  while (!signal.aborted) {
    try {
      const query = job ? `?job=${encodeURIComponent(job)}` : "";
      const response = await fetch(`/api/events${query}`, { headers: headers(), signal });
      if (!response.ok) throw new Error((await response.json()).error);
      handlers.online?.(true);
      await read(response.body.getReader(), handlers);
    } catch (error) {
      if (signal.aborted) return;
    }
    handlers.online?.(false);
    await new Promise((done) => setTimeout(done, 2000));
  }
}

async function read(reader, handlers) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (kind && data) handlers[kind]?.(JSON.parse(data));
    }
  }
}
