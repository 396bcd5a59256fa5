// Makes a task, sends its lines, seals it and sets its quota, by what was generated beside it.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [url, token] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: `${url}/v1`, headers: { Authorization: `Bearer ${token}` } });

function must<T>(told: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (told.data === undefined) throw new Error(`${told.error?.title}: ${told.error?.detail}`);
  return told.data;
}

const made = must(await api.POST("/tasks", { body: { level: "high", app: "shop", key: "sale" } }));
const task = { params: { path: { task: made.id } } };
const pushes: components["schemas"]["PushLine"][] = [1, 2, 3].map((n) => ({
  recipient: `device-${n}`,
  title: "Sale",
  data: { page: n },
}));
const lines = pushes.map((push) => JSON.stringify(push)).join("\n");
const headers = { "Content-Type": "application/x-ndjson" };
const sent = must(await api.POST("/tasks/{task}/pushes", { ...task, headers, body: lines, bodySerializer: (body) => body }));
const sealed = must(await api.POST("/tasks/{task}/seal", { ...task, body: { total: sent.safe_line } }));
const set = must(await api.PUT("/tasks/{task}/quota", { params: { ...task.params, header: { "If-Match": "*" } }, body: { quota: 5 } }));
const refused = await api.GET("/tasks/{task}", { params: { path: { task: "no-such-task" } } });

console.log(JSON.stringify({ safe: sent.safe_line, total: sealed.total, quota: set.quota, refused: refused.error?.status }));
