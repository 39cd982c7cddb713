import { h, s, put, facts, badge } from "../dom.js";
import { get } from "../api.js";
import { ago, behind, brief, count, duration, moment, percent, rate, size } from "../format.js";
import { Drawing } from "../graph.js";
import { change, mayChange } from "../changes.js";

export async function show(main, context) {
  const top = h("div", {}), side = h("aside", { class: "card" });
  const svg = s("svg", { class: "graph", tabindex: "0", "aria-label": "the graph of the job" });
  let chosen = null, data = await get("job", { job: context.job }, context.signal);
  const drawing = new Drawing(svg, (name) => { chosen = name; detail(); });

  const detail = () => {
    const each = data.steps.find((step) => step.name === chosen) ?? data.steps.find((step) => step.slowest) ?? data.steps[0];
    if (!each) { put(side, h("p", { class: "quiet" }, "the graph is known once the job has run with this version")); return; }
    put(side, h("h2", {}, each.name, " ", each.slowest ? badge("slowest") : null), h("p", { class: "quiet" }, each.kind),
      h("table", {}, h("tbody", {}, [
        ["rows in", rate(each.in_rate)], ["rows out", rate(each.out_rate)], ["busy, 100 % is one task", percent(each.busy)],
        ["keys", count(each.keys)], ["in local copies, one commit ago", size(each.bytes)], ["late", count(each.late)], ["dead letters", count(each.dead)], ["dropped", count(each.dropped)],
        ...(each.kind === "expect" ? [["failed the expectation", count(each.failed)]] : []),
        ...(each.calls === undefined ? [] : [["calls", count(each.calls)], ["failed calls", count(each.call_failures)], ["mean duration of a call", duration(each.call_ms / 1000)]]),
        ...data.hot_keys.filter((hot) => hot.step === each.name).map((hot) => [`key ${hot.key}`, `${percent(hot.share)} of messages`]),
      ].map(([name, value]) => h("tr", {}, h("td", { class: "quiet" }, name), h("td", { class: "n" }, value))))),
      each.stateful ? h("p", {}, h("a", { href: `#/${encodeURIComponent(context.job)}/state?step=${encodeURIComponent(each.name)}` }, "look into its state")) : null,
      h("p", { class: "quiet small" }, `${data.worked_at ? `when it last worked, ${ago(data.worked_at, data.now)}: ` : ""}rates over the last ${count(data.rates_over)} commits; late, dead and dropped over ${duration(data.window_seconds)}; busy is the step's own code in all tasks, without reading, sorting and storing`));
  };

  const draw = () => {
    put(top,
      data.error ? h("div", { class: "trouble" }, h("b", {}, data.error.restarted ? "restarted after: " : data.error.earlier ? "error of an earlier run: " : "error: "), data.error.text) : null,
      facts([
        ["state", [badge(data.state), data.phase ? ` ${data.phase}` : null]], ["rows", rate(data.rate)], ["behind", behind(data)],
        ["the data's clock is behind by", data.clock ? duration(data.now - data.clock) : "–"],
        ["last commit", ago(data.committed_at, data.now)], ["commit", count(data.sequence)], ["events so far", brief(data.events)],
        ["state, the last commit's files", size(data.state_bytes)], ["tasks", count(data.parallelism)], ["last batch ran in", data.ran_in ?? "–"], ["runs on", data.host ? `${data.host}, ${data.pid}` : "–"], ["runs for", data.since ? h("span", { title: `since ${moment(data.since)} UTC` }, duration(data.now - data.since)) : "–"],
        ...Object.entries(data.tables).map(([name, table]) => [`table ${name}`, h("span", { title: `loaded at ${moment(table.loaded_at / 1e9)} UTC` }, `version ${count(table.version)}, ${count(table.rows)} rows`)]),
      ]),
      mayChange() && data.state !== "fleet" ? h("div", { class: "bar" },
        h("button", { id: "stop", class: "bad", disabled: !["running", "perhaps", "starting"].includes(data.state), onclick: () => change({ job: context.job, what: "stop" }) }, "stop …"),
        h("button", { id: "rescale", onclick: () => change({ job: context.job, what: "rescale", parallelism: Number(tasks.value) }) }, "use"), tasks, h("span", { class: "quiet" }, "tasks")) : null);
    drawing.update(data.steps, data.hot_keys);
    detail();
  };
  const tasks = h("input", { type: "number", min: "1", max: String(data.n_shards ?? 1), value: String(data.parallelism ?? 1), "aria-label": "tasks", size: "5" });
  put(main, top, h("div", { class: "split" }, h("section", { class: "card flush" }, svg), side));
  draw();
  context.on("job", (fresh) => { data = fresh; draw(); });
}
