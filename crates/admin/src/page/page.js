"use strict";
// Draws /api/state once a second, or the minute that a saved page carries. Counters in it run from
// the server's start: what is shown is the difference of two answers.
const $ = (id) => document.getElementById(id);
const KEPT = 120, WINDOW = 10, QUANTILES = [["p50", 0.5], ["p99", 0.99], ["p99.9", 0.999]];
const LANES = ["small", "large"];
const history = []; // what was derived from each pair of answers
const states = []; // the answers themselves
let paused = false, cursor = null, recorded = JSON.parse($("recording").textContent);

// How numbers are told.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = (n) => n >= 100 ? whole.format(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
const count = (n) => n >= 1e6 ? three(n / 1e6) + " M" : n >= 1e4 ? three(n / 1e3) + " k" : whole.format(n);
const micros = (us) => us == null ? "–" : us >= 1e6 ? three(us / 1e6) + " s" : us >= 1e3 ? three(us / 1e3) + " ms" : three(us) + " µs";
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; unit++; }
  return (unit ? three(n) : whole.format(n)) + " " + units[unit];
};
const percent = (share) => share == null ? "–" : (share * 100).toFixed(share > 0.9995 || share < 0.1 ? 2 : 1) + " %";
const text = (value) => String(value).replace(/[&<>"]/g, (c) => "&#" + c.charCodeAt(0) + ";");
const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);

// Differences.
function bucketsBetween(now, before, keep) {
  const all = new Map();
  const add = (state, sign) => {
    for (const row of state.latencies.filter(keep)) {
      for (const [end, n] of row.buckets_us) all.set(end, (all.get(end) || 0) + sign * n);
    }
  };
  add(now, 1); add(before, -1);
  return [...all].filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0]);
}
function quantile(buckets, share) {
  const wanted = Math.max(1, Math.ceil(sum(buckets, (b) => b[1]) * share));
  let seen = 0;
  for (const [end, n] of buckets) if ((seen += n) >= wanted) return end;
  return null;
}
function derive(now, before) {
  const seconds = Math.max(0.001, (now.at - before.at) / 1000);
  const point = { at: now.at, seconds };
  for (const lane of LANES) {
    const mine = (row) => row.lane === lane;
    const buckets = bucketsBetween(now, before, mine);
    const total = (field) => sum(now.latencies.filter(mine), (r) => r[field]) - sum(before.latencies.filter(mine), (r) => r[field]);
    const n = total("count");
    point[lane] = { n, rate: n / seconds, wait: total("wait_us"), service: total("service_us"), drain: total("drain_us") };
    for (const [name, share] of QUANTILES) point[lane][name] = n > 0 ? quantile(buckets, share) : null;
  }
  const requests = (field) => now.requests[field] - before.requests[field];
  const hits = requests("get_hits_small") + requests("get_hits_large") + requests("get_hits_kernel");
  const asked = hits + requests("get_misses");
  point.hits = asked > 0 ? hits / asked : null;
  point.received = requests("received_bytes") / seconds;
  point.sent = requests("sent_bytes") / seconds;
  point.cpu = (now.cpu_seconds - before.cpu_seconds) / seconds;
  return point;
}
function take(state) {
  const last = states[states.length - 1];
  if (last && (state.uptime_seconds < last.uptime_seconds || state.at <= last.at)) { // it was started anew
    states.length = history.length = 0;
  } else if (last) {
    history.push(derive(state, last));
  }
  states.push(state);
  if (states.length > KEPT + 1) states.shift();
  if (history.length > KEPT) history.shift();
}

// Parts of the page.
function rows(table, head, body) {
  const cells = (tag, row) => "<tr>" + row.map((c) => `<${tag}${tag === "th" ? ' scope="col"' : ""}>${c}</${tag}>`).join("") + "</tr>";
  $(table).innerHTML = (head ? "<thead>" + cells("th", head) + "</thead>" : "") + "<tbody>" + body.map((r) => cells("td", r)).join("") + "</tbody>";
}
function figures(state, point) {
  const memory = state.memory, used = memory.pool_bytes - memory.free_bytes + memory.index_bytes;
  const figure = (name, value, more, kind = "") => `<div class="figure"><dt>${name}</dt><dd class="${kind}">${value}</dd><small>${more}</small></div>`;
  $("figures").innerHTML = [
    figure("Small requests", count(point.small.rate) + "/s", `p50 ${micros(point.small.p50)}`, "small"),
    figure("Small p99", micros(point.small.p99), `p99.9 ${micros(point.small["p99.9"])}`, "small"),
    figure("Large requests", count(point.large.rate) + "/s", `p99 ${micros(point.large.p99)}`, "large"),
    figure("Hit ratio", percent(point.hits), "of keys asked for"),
    figure("Memory", percent(used / memory.limit_bytes), `${bytes(used)} of ${bytes(memory.limit_bytes)}`),
    figure("Connections", count(state.connections.open), `CPU ${three(point.cpu)} cores`),
  ].join("");
}
function lane(name, state, before, point) {
  const seconds = point.seconds, mine = point[name], field = "requests_" + name;
  const serves = (w) => w.role === "both" || w.role === "standby" || w.role === name;
  const limit = bytes(Math.min(...state.threshold_bytes));
  $(name + "-lead").textContent = name === "small" ? `Items below ${limit}, served at once.` : `Items of ${limit} and more, moved slice by slice.`;
  const waiting = sum(state.workers, (w) => w["queue_" + name]) + (name === "large" ? state.queue_shared : 0);
  $(name + "-rate").innerHTML = `${count(mine.rate)} <small class="lead">requests per second, ${count(waiting)} waiting</small>`;
  const all = state.workers.map((w, n) => ({ w, n, rate: before.workers[n] ? (w[field] - before.workers[n][field]) / seconds : 0 }));
  const most = Math.max(1, ...all.map((one) => one.rate));
  $(name + "-workers").innerHTML = all.filter(({ w }) => serves(w)).map(({ w, n, rate }) =>
    `<li><b>Worker ${n}</b>${count(rate)}/s, ${w.role === "both" ? "both lanes" : w.role}<br>${count(w["queue_" + name])} waiting` +
    (name === "small" ? `, ${count(w.connections)} conns` : "") + `<div class="load"><i class="fill" style="width:${(rate / most * 100).toFixed(1)}%"></i></div></li>`).join("");
  const time = mine.wait + mine.service + mine.drain;
  const part = (what) => time > 0 ? mine[what] / time * 100 : 0;
  const mean = (what) => mine.n > 0 ? micros(mine[what] / mine.n) : "–";
  const kinds = [["wait", "waiting"], ["service", "service"], ["drain", "draining"]];
  $(name + "-parts").innerHTML =
    `<div class="bar ${name}" role="img" aria-label="Of the mean request: ${kinds.map(([k, n]) => n + " " + mean(k)).join(", ")}">` +
    kinds.map(([k]) => `<i class="p-${k}" style="width:${part(k).toFixed(1)}%"></i>`).join("") + "</div>" +
    `<div class="key ${name}">` + kinds.map(([k, n]) => `<span><i class="p-${k}"></i>${n} ${mean(k)}</span>`).join("") + "</div>";
}

// Charts: a box of time on x, whose lines are drawn by the caller.
function box(id, left = 56) {
  const svg = $(id), w = Math.max(280, svg.clientWidth), h = Math.max(160, svg.clientHeight);
  svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
  return { svg, w, h, left, right: w - 10, top: 12, bottom: h - 22 };
}
const span = () => history.length <= 60 ? 60 : KEPT; // seconds that charts show
const timeX = (b, n) => b.right - (history.length - 1 - n) / (span() - 1) * (b.right - b.left);
function timeAxis(b) {
  let out = "";
  for (let ago = 0; ago < span(); ago += span() / 4) {
    const x = b.right - ago / (span() - 1) * (b.right - b.left);
    out += `<text x="${x}" y="${b.h - 5}" text-anchor="${ago ? "middle" : "end"}">${ago ? "−" + ago + " s" : "now"}</text>`;
  }
  return out;
}
// A logarithmic scale on y from one power of ten to another, and its lines.
function logScale(b, values, told) {
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const y = (v) => v > 0 ? b.bottom - (Math.log10(v) - low) / (high - low) * (b.bottom - b.top) : null;
  let lines = "";
  for (let power = low; power <= high; power++) {
    const at = y(10 ** power);
    lines += `<line class="grid" x1="${b.left}" x2="${b.right}" y1="${at}" y2="${at}"/><text x="${b.left - 7}" y="${at + 4}" text-anchor="end">${told(10 ** power).replace(/\.0+ /, " ")}</text>`;
  }
  return { y, lines };
}
function path(points) {
  let out = "", open = false;
  for (const [x, y] of points) {
    if (y == null) { open = false; continue; }
    out += (open ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
    open = true;
  }
  return out;
}
const STROKES = { "p50": "stroke-width='1.3' opacity='.85'", "p99": "stroke-width='2.6'", "p99.9": "stroke-width='1.6' stroke-dasharray='5 3'" };
function latencyChart() {
  const b = box("latency"), values = history.flatMap((p) => LANES.flatMap((l) => QUANTILES.map(([q]) => p[l][q]))).filter((v) => v > 0);
  if (!values.length) { b.svg.innerHTML = `<text x="${b.w / 2}" y="${b.h / 2}" text-anchor="middle">No request yet.</text>`; return; }
  const { y, lines } = logScale(b, values, micros);
  let out = timeAxis(b) + lines;
  for (const l of LANES) {
    for (const [q] of QUANTILES) {
      out += `<path fill="none" stroke="var(--${l})" ${STROKES[q]} d="${path(history.map((p, n) => [timeX(b, n), y(p[l][q])]))}"/>`;
    }
  }
  if (cursor != null && history[cursor]) out += `<line class="cursor" x1="${timeX(b, cursor)}" x2="${timeX(b, cursor)}" y1="${b.top}" y2="${b.bottom}"/>`;
  b.svg.innerHTML = out;
  const last = history[history.length - 1];
  const told = (p) => LANES.map((l) => `${l}: ${QUANTILES.map(([q]) => q + " " + micros(p[l][q])).join(", ")}`).join("; ");
  b.svg.setAttribute("aria-label", "Latency over time. Now " + told(last));
  if (cursor != null && history[cursor]) $("latency-said").textContent = `${history.length - 1 - cursor} s ago: ${told(history[cursor])}`;
  rows("latency-table", ["Seconds ago", ...LANES.flatMap((l) => QUANTILES.map(([q]) => l + " " + q))],
    history.slice(-10).reverse().map((p, n) => [n, ...LANES.flatMap((l) => QUANTILES.map(([q]) => micros(p[l][q])))]));
}
function sizesChart(state) {
  const b = box("sizes"), before = states[Math.max(0, states.length - 1 - WINDOW)];
  const octaves = new Map(), was = new Map(before.sizes), limit = Math.min(...state.threshold_bytes);
  for (const [first, n] of state.sizes) {
    const more = n - (was.get(first) || 0), octave = Math.floor(Math.log2(Math.max(1, first)));
    if (more <= 0) continue;
    const kept = octaves.get(octave) || { small: 0, large: 0 };
    kept[first >= limit ? "large" : "small"] += more;
    octaves.set(octave, kept);
  }
  const low = 4, high = Math.max(21, ...octaves.keys(), Math.ceil(Math.log2(limit)) + 1) + 1;
  const x = (v) => b.left + (Math.min(Math.max(v, low), high) - low) / (high - low) * (b.right - b.left);
  const most = Math.max(10, ...[...octaves.values()].map((k) => k.small + k.large)), tall = Math.log10(most) + 0.15;
  const y = (n) => n >= 1 ? b.bottom - (Math.log10(n) + 0.15) / (tall + 0.15) * (b.bottom - b.top - 16) : b.bottom;
  let out = "";
  for (let power = 0; power <= Math.log10(most); power++) {
    out += `<line class="grid" x1="${b.left}" x2="${b.right}" y1="${y(10 ** power)}" y2="${y(10 ** power)}"/><text x="${b.left - 7}" y="${y(10 ** power) + 4}" text-anchor="end">${count(10 ** power).replace(".0", "")}</text>`;
  }
  for (let power = low; power <= high; power += 4) out += `<text x="${x(power)}" y="${b.h - 5}" text-anchor="middle">${bytes(2 ** power).replace(/\.0+ /, " ")}</text>`;
  for (const [octave, kept] of octaves) {
    const wide = x(octave + 1) - x(octave) - 2;
    const bar = (kind, n, from) => n > 0 ? `<rect x="${x(octave) + 1 + from}" y="${y(n)}" width="${wide * (kept.small && kept.large ? 0.5 : 1)}" height="${b.bottom - y(n)}" rx="2" fill="var(--${kind})"/>` : "";
    out += bar("small", kept.small, 0) + bar("large", kept.large, kept.small ? wide / 2 : 0);
  }
  const at = x(Math.log2(limit)), side = at > b.w * 0.6 ? "end" : "start";
  out += `<line x1="${at}" x2="${at}" y1="${b.top}" y2="${b.bottom}" stroke="var(--text)" stroke-width="2"/><text class="mark" x="${at + (side === "end" ? -7 : 7)}" y="${b.top + 10}" text-anchor="${side}">threshold ${bytes(limit)}</text>`;
  b.svg.innerHTML = out;
  const both = (kind) => sum([...octaves.values()], (k) => k[kind]), all = both("small") + both("large");
  const told = all ? `${count(both("small"))} small and ${count(both("large"))} large (${percent(both("large") / all)}); the scale of the counts is logarithmic.` : "No item was asked for.";
  $("sizes-said").textContent = told;
  b.svg.setAttribute("aria-label", `Requests by size; the threshold is ${bytes(limit)}. ${told}`);
}
function ratesChart() {
  const b = box("rates"), values = history.flatMap((p) => LANES.map((l) => p[l].rate)).filter((v) => v > 0);
  b.right -= 44;
  const { y, lines } = logScale(b, values.length ? values.concat(1) : [1, 10], count);
  const share = (v) => v == null ? null : b.bottom - v * (b.bottom - b.top);
  let out = timeAxis(b) + lines;
  for (const part of [0, 0.5, 1]) out += `<text x="${b.right + 7}" y="${share(part) + 4}">${part * 100} %</text>`;
  const line = (of, style) => `<path fill="none" ${style} d="${path(history.map((p, n) => [timeX(b, n), of(p)]))}"/>`;
  for (const l of LANES) out += line((p) => y(p[l].rate), `stroke='var(--${l})' stroke-width='2.4'`);
  out += line((p) => share(p.hits), "stroke='var(--good)' stroke-width='2' stroke-dasharray='2 4'");
  b.svg.innerHTML = out;
  const last = history[history.length - 1];
  const told = `Small ${count(last.small.rate)}/s and large ${count(last.large.rate)}/s, on a logarithmic scale; hits ${percent(last.hits)}, dotted, on the scale at the right.`;
  $("rates-said").textContent = told;
  b.svg.setAttribute("aria-label", told);
}
function memory(state) {
  const m = state.memory, items = m.pool_bytes - m.free_bytes, parts = [["items", items, "var(--small)"], ["index", m.index_bytes, "var(--large)"], ["free chunks", m.free_bytes, "var(--soft)"], ["datagrams", m.datagram_bytes, "var(--good)"]];
  $("memory").innerHTML = `<div class="bar" style="height:16px" role="img" aria-label="${parts.map(([n, v]) => n + " " + bytes(v)).join(", ")}, limit ${bytes(m.limit_bytes)}">` +
    parts.map(([, v, color]) => `<i style="width:${(v / m.limit_bytes * 100).toFixed(2)}%;background:${color}"></i>`).join("") + "</div>" +
    `<div class="key">${parts.map(([n, v, color]) => `<span><i style="background:${color}"></i>${n} ${bytes(v)}</span>`).join("")}</div><div class="wide"><table id="memory-table"></table></div>`;
  const before = states[0].memory, seconds = Math.max(1, (state.at - states[0].at) / 1000);
  rows("memory-table", null, [
    ["Limit on items and index", bytes(m.limit_bytes)], ["Resident in all", bytes(m.resident_bytes)], ["Items", count(m.items)],
    ["Evictions", `${count((m.evictions - before.evictions) / seconds)}/s`],
    ["of items still in use", `${count((m.evictions_active - before.evictions_active) / seconds)}/s`], ["Expired, since the start", count(m.expired)],
  ]);
}
function tables(state, point) {
  const names = { malformed_request: "Malformed requests", item_too_large: "Items too large", out_of_memory: "Out of memory", too_many_connections: "Connections beyond the limit", no_descriptors: "Pauses without descriptors", idle_timeout: "Idle connections closed", too_many_of_address: "Connections beyond an address's limit", read_only_port: "Writes at read-only ports", no_password: "Requests before a password", wrong_password: "Wrong passwords", password_limit: "Passwords refused unseen", malformed_password: "Malformed passwords" };
  const before = states[0].errors;
  rows("errors", ["Cause", "Now", "Since start"], Object.entries(names).map(([key, name]) => [name, count(state.errors[key] - before[key]), count(state.errors[key])]));
  rows("traffic", null, [
    ["Open connections", `${count(state.connections.open)} of ${count(state.connections.most)}`], ["Ever opened", count(state.connections.opened)],
    ["Received", bytes(point.received) + "/s"], ["Sent", bytes(point.sent) + "/s"], ["CPU", three(point.cpu) + " cores"],
    ["Changes of roles", count(state.role_changes)], ["Plans made", count(state.epochs)],
  ]);
  $("clients-card").hidden = !state.clients;
  if (state.clients) {
    const was = new Map((states[states.length - 2].clients || []).map((c) => [c.address, c]));
    const rate = (c, field) => Math.max(0, c[field] - (was.get(c.address) || c)[field]) / point.seconds;
    const shown = [...state.clients].map((c) => ({ c, moved: rate(c, "bytes_in") + rate(c, "bytes_out") })).sort((a, b) => b.moved - a.moved).slice(0, 20);
    rows("clients", ["Address", "Connections", "Requests", "Large", "Bytes in", "Bytes out", "Since start"], shown.map(({ c, moved }) =>
      [text(c.address), count(c.connections), count(rate(c, "requests")) + "/s", count(rate(c, "requests_large")) + "/s", bytes(rate(c, "bytes_in")) + "/s", bytes(rate(c, "bytes_out")) + "/s", bytes(c.bytes_in + c.bytes_out)]));
  }
  $("tier-card").hidden = !state.tier;
  if (state.tier) rows("tier", ["Requests", "Waiting", "Brought into memory", "Written large", "Refused writes", "Damaged reads"], [["requests", "queue", "faults", "spills", "refused", "lost"].map((k) => count(state.tier[k]))]);
}
function show(word, good) {
  if ($("state").textContent !== word) $("state").textContent = word;
  $("state").className = "state " + (good ? "good" : "bad");
}
function draw() {
  const state = states[states.length - 1], point = history[history.length - 1];
  if (!point) return;
  $("about").textContent = `${state.version}, design ${state.design}, ${state.layout}, ${state.workers.length} workers, up ${uptime(state.uptime_seconds)}`;
  figures(state, point);
  for (const name of LANES) lane(name, state, states[states.length - 2], point);
  latencyChart(); sizesChart(state); ratesChart(); memory(state); tables(state, point);
}
function uptime(s) {
  const part = (n, unit) => n ? n + " " + unit + " " : "";
  return (part(Math.floor(s / 86400), "d") + part(Math.floor(s / 3600) % 24, "h") + part(Math.floor(s / 60) % 60, "min") + (s < 3600 ? s % 60 + " s" : "")).trim();
}

// What drives it: the server, or a recording.
async function ask() {
  try {
    const answer = await fetch("/api/state", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.status);
    const state = await answer.json();
    state.at = Date.now();
    take(state);
    if (!paused) draw();
    show(paused ? "paused" : state.ready ? "live" : "starting or stopping", state.ready);
  } catch (error) {
    show("no answer from the server", false);
  }
}
function replay() {
  recorded.forEach(take);
  draw();
  show("recorded " + new Date(recorded[0].at).toISOString().slice(0, 16).replace("T", " ") + " UTC", true);
  $("save").hidden = true;
  const length = recorded[recorded.length - 1].at - recorded[0].at + 1000, up = length / 1000;
  let next = 0, lap = 1;
  setInterval(() => {
    if (paused) return;
    if (next === 0) states.length = history.length = 0;
    take(recorded[next]);
    draw();
    if (++next === recorded.length) { next = 0; lap++; }
  }, 1000);
}
async function save() {
  const page = await (await fetch("/", { cache: "no-store" })).text();
  const kept = JSON.stringify(states.slice(-61)).replace(/</g, "\\u003c");
  const mark = 'id="recording">[]<';
  const file = new Blob([page.replace(mark, () => mark.slice(0, -3) + kept + "<")], { type: "text/html" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = "laneway-dashboard.html";
  link.click();
  URL.revokeObjectURL(link.href);
}
function move(to) {
  cursor = Math.min(history.length - 1, Math.max(0, to));
  latencyChart();
}
$("latency").addEventListener("keydown", (event) => {
  const from = cursor == null ? history.length - 1 : cursor;
  const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: history.length - 1 }[event.key];
  if (to != null && history.length) { move(to); event.preventDefault(); }
});
$("latency").addEventListener("pointermove", (event) => {
  const b = box("latency"), x = event.offsetX;
  if (history.length) move(Math.round(history.length - 1 - (b.right - x) / (b.right - b.left) * (span() - 1)));
});
for (const name of ["pointerleave", "blur"]) $("latency").addEventListener(name, () => { cursor = null; if (history.length) latencyChart(); });
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  $("pause").textContent = paused ? "Go on" : "Pause";
  if (!paused) draw();
});
$("save").addEventListener("click", () => save().catch(() => show("no answer from the server", false)));
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, now = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = (now || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});
addEventListener("resize", () => { if (history.length) draw(); });
$("latency-key").innerHTML = LANES.flatMap((l) => QUANTILES.map(([q]) =>
  `<span><svg viewBox="0 0 26 10" aria-hidden="true"><path d="M0 5h26" stroke="var(--${l})" ${STROKES[q]}/></svg>${l} ${q}</span>`)).join("");
const asked = new URLSearchParams(location.search).get("theme");
if (asked === "light" || asked === "dark") document.documentElement.dataset.theme = asked;
if (recorded.length > 1) replay(); else { ask(); setInterval(ask, 1000); }
