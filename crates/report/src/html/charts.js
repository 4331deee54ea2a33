// The charts of a case, of a sweep over load and of a search. Charts without data are omitted.
const percentiles = ["p50", "p90", "p95", "p99"];
const cases = JSON.parse(document.getElementById("data").textContent);
const seriesOf = (index) => JSON.parse(document.getElementById("data-" + index).textContent);
// Titles of metrics; other metrics are shown under their names.
const titles = { ttft: "TTFT", itl: "ITL", tpot: "TPOT", e2e: "E2E latency", output_tps: "Output tokens per second", request_throughput: "Requests per second", goodput_rate: "Goodput", output_tps_per_user: "Output tokens per second per user" };
const title = (name) => titles[name] || name;
const pixel = () => devicePixelRatio;

function drawCase(container) {
  const index = Number(container.dataset.caseIndex), series = seriesOf(index);
  toggles(container);
  if (index !== cases.times) drawTimes(container, series, index);
  for (const key of Object.keys(series.cdfs)) cdf(container, series.cdfs[key]);
  for (const key of Object.keys(series.spectra)) percentilePlot(container, series.spectra[key]);
  if (series.heat) heat(container, series.heat);
  if (series.by_token) itlByPosition(container, series.by_token);
  if (series.prefill) ttftByPromptLength(container, series.prefill);
  if (container.children.length === 1) discard(container);
}

// Everything over the time of a case, on one shared axis: load, throughput, latency, errors, server metrics and single requests.
function drawTimes(parent, series, index) {
  if (!series.time && !series.waterfall) return;
  const time = series.time || { end: Math.max(...series.waterfall[5]), measured: [0, Infinity], limits: [] };
  const box = element("div", parent, null, "times wide");
  const [from, until] = time.measured;
  const bands = [{ from: -Infinity, to: from, color: "--shade" }, { from: until, to: Infinity, color: "--shade" }];
  const legend = [["--shade", "warm-up and drain, not measured"]];
  if (time.steady) { bands.push({ from: time.steady[0], to: time.steady[1], color: "--steady", strip: true }); legend.push(["--steady", "steady state"]); }
  const all = { bands, sync: "time-" + index, wide: true, xName: "time", sayX: seconds, xRange: () => [0, time.end || 1], height: 110, bare: true };
  const charts = [];
  if (time.in_flight) charts.push({ title: "Requests in flight", yLabel: "requests", x: time.in_flight[0], lines: [{ label: "in flight", values: time.in_flight[1], color: "--c0", steps: true }] });
  if (time.output_tps) charts.push({ title: "Output tokens per second", yLabel: "tok/s", x: time.output_tps[0], lines: [{ label: "tok/s", values: time.output_tps[1], color: "--c2" }] });
  if (time.ttft) charts.push(ttftOverTime(time));
  if (time.failures) charts.push({ height: 90, title: "Failed requests", yLabel: "requests", remark: "by end time", x: time.failures[0], lines: [{ label: "failed", values: time.failures[1], color: "--fail", bars: true }] });
  for (const signals of series.telemetry) charts.push(telemetryOverTime(signals));
  if (series.waterfall) charts.push(requestTimeline(series.waterfall));
  const last = { bare: false, xLabel: "time since start of round (s)" };
  charts.forEach((chart, at) => { const ends = at === charts.length - 1; draw(box, { ...all, ...chart, ...(ends ? last : {}), keys: [...(chart.keys || []), ...(ends ? legend : [])] }); });
}

function ttftOverTime(time) {
  const quantiles = time.ttft_quantiles, shown = quantiles ? percentiles : [];
  // uPlot.join merges equal x values, so requests of one instant are moved apart by a nanosecond each.
  const apart = [time.ttft[0].map((at, index) => at + index * 1e-9), time.ttft[1]];
  const [x, columns] = joined(quantiles ? [apart, [quantiles.at, ...shown.map((name) => quantiles[name])]] : [apart]);
  const say = (value) => inUnit(value, "ms");
  const lines = [{ label: "request", values: columns[0], color: "--muted", size: 3, scatter: true, say }, ...shown.map((name, index) => ({ label: name, values: columns[index + 1], color: quantileColors[name], quantile: name, say }))];
  const part = time.ttft[0].length < time.ttft_n ? `the slowest request of each of ${time.ttft[0].length} groups (${time.ttft_n} requests)` : "";
  const bins = quantiles ? `percentiles of ${quantiles.at.length} time bins` : "";
  const { near, keys } = nearLimits(time.limits, 0, Math.max(...time.ttft[1]), 1.5);
  const most = Math.max(...time.ttft[1], ...near.map((limit) => limit.value));
  return { height: 180, title: "TTFT", remark: [part, bins].filter(Boolean).join("; "), x, lines, yLabel: "ms", marks: near.map((limit) => ({ y: limit.value })), keys, yRange: () => [0, most * 1.06] };
}

// Telemetry over time. Lines are drawn across missing samples.
function telemetryOverTime(signals) {
  const [x, columns] = joined(signals.lines.map((own) => own.points));
  const lines = signals.lines.map((own, index) => ({ label: own.label, values: columns[index], color: "--c" + index, gapless: true, say: (value) => inUnit(value, signals.unit) }));
  return { height: 90, title: signals.title, yLabel: signals.unit === "%" ? "share" : signals.unit, tickY: signals.unit === "%" ? (value) => inUnit(value, "%") : figure, x, lines };
}

// Joins tables with different x values into columns over one ascending x.
function joined(tables) {
  const [x, ...columns] = uPlot.join(tables);
  return [x, columns];
}

// Splits off the limits that are far outside the data, so that they do not compress the chart; the legend has all limits.
function nearLimits(limits, least, most, factor) {
  const isNear = (limit) => limit.value >= least / factor && limit.value <= most * factor;
  return { near: limits.filter(isNear), keys: limits.map((limit) => ["--limit", limit.label + (isNear(limit) ? "" : " (outside the chart)"), true]) };
}

function cdf(container, curve) {
  const [values, shares] = curve.points;
  const say = (share) => figure(share * 100) + "%";
  const { near, keys } = nearLimits(curve.limits, values[0], values[values.length - 1], 3);
  const marks = near.flatMap((limit) => [{ x: limit.value }, { y: limit.share }]);
  const least = Math.min(values[0], ...near.map((limit) => limit.value)), most = Math.max(values[values.length - 1], ...near.map((limit) => limit.value));
  const xRange = () => around(null, least - (most - least) * 0.02, most + (most - least) * 0.02);
  draw(container, { title: `${title(curve.name)}: distribution`, remark: "cumulative share", x: values, xName: curve.name, xLabel: curve.unit, sayX: (value) => inUnit(value, curve.unit), xRange, lines: [{ label: "share", values: shares, color: "--c0", steps: true, say }], yRange: () => [0, 1], tickY: say, marks, keys });
}

// A percentile plot: on its horizontal axis, each step has a tenth of the requests of the step before.
function percentilePlot(container, curve) {
  const [shares, values] = curve.points;
  const nines = shares.map((share) => -Math.log10(Math.max(1 - share, 1e-9)));
  const name = (at) => Number(((1 - 10 ** -at) * 100).toPrecision(Math.max(3, Math.ceil(at) + 2))) + "%";
  const remark = curve.high ? "share of requests above" : "log-scaled percentile axis";
  draw(container, { title: `${title(curve.name)}: percentile plot`, remark, x: nines, xName: "percentile", sayX: name, tickX: (at) => (Number.isInteger(at) ? name(at) : ""), lines: [{ label: curve.name, values, color: "--c0", say: (value) => inUnit(value, curve.unit) }], yLabel: curve.unit, yLog: values.every((value) => value > 0) });
}

// A color of the Viridis palette for 0..1, dark to light; many requests are dark, as in the pictures.
function viridis(position) {
  const steps = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const at = Math.min(position, 0.9999) * 4, from = Math.floor(at);
  return `rgb(${steps[from].map((value, index) => Math.round(value + (steps[from + 1][index] - value) * (at - from)))})`;
}

function heat(container, { times, levels, counts }) {
  const most = Math.max(1, ...counts.map((column) => Math.max(...column)));
  const paint = (u, ctx) => counts.forEach((column, i) => {
    const [a, b] = [times[i], times[i + 1]].map((x) => u.valToPos(x, "x", true));
    column.forEach((count, j) => {
      if (!count) return;
      const [low, high] = [levels[j], levels[j + 1]].map((y) => u.valToPos(y, "y", true));
      ctx.fillStyle = viridis(1 - Math.log1p(count) / Math.log1p(most));
      ctx.fillRect(a, high, Math.max(1, b - a + 0.5), Math.max(1, low - high + 0.5));
    });
  });
  const place = (edges, value) => edges.findIndex((edge, index) => edge <= value && value < edges[index + 1]);
  const hover = (u) => {
    const i = place(times, u.posToVal(u.cursor.left, "x")), j = place(levels, u.posToVal(u.cursor.top, "y"));
    return i < 0 || j < 0 ? "" : `${seconds(times[i])} to ${seconds(times[i + 1])}, ${inUnit(levels[j], "ms")} to ${inUnit(levels[j + 1], "ms")}: ${counts[i][j]} request${counts[i][j] === 1 ? "" : "s"}`;
  };
  const xRange = () => [times[0], times[times.length - 1]];
  const steps = [...new Set([0, 0.33, 0.66, 1].map((part) => Math.round(Math.expm1(part * Math.log1p(most))) || 1))];
  const keys = steps.map((count) => [viridis(1 - Math.log1p(count) / Math.log1p(most)), count + (count === 1 ? " request" : " requests")]);
  draw(container, { title: "End-to-end latency over time", remark: "requests per cell", wide: true, x: times, xRange, xLabel: "time since start of round (s)", lines: [blank(times)], yLog: true, yRange: () => [levels[0], levels[levels.length - 1]], yLabel: "ms", draw: paint, hover, keys });
}

// A series that draws nothing, for charts painted by their `draw` function.
const blank = (x) => ({ label: "", values: x.map(() => null), color: "--c0" });

function itlByPosition(container, bands) {
  const say = (value) => inUnit(value, "ms");
  const lines = ["p50", "p90", "p99"].map((name) => ({ label: name, values: bands[name], color: quantileColors[name], quantile: name, steps: true, say }));
  const sayX = (from) => { const at = bands.from.indexOf(from); return at < 0 ? figure(from) : `${from} to ${bands.to[at]} (${bands.n[at]} gaps)`; };
  draw(container, { title: "ITL by output position", x: bands.from, xName: "token", sayX, xLabel: "output token index", lines, yLabel: "ms" });
}

function ttftByPromptLength(container, [tokens, ttft]) {
  const order = tokens.map((value, index) => index).sort((a, b) => tokens[a] - tokens[b]);
  const [x, y] = [tokens, ttft].map((column) => order.map((index) => column[index]));
  draw(container, { title: "TTFT (from send) by prompt length", x, xName: "prompt tokens", xLabel: "prompt tokens", lines: [{ label: "TTFT (from send)", values: y, color: "--c0", scatter: true, say: (value) => inUnit(value, "ms") }], yLabel: "ms" });
}

function requestTimeline([seq, turn, scheduled, sent, first, end, failure]) {
  const rows = seq.length;
  const paint = (u, ctx) => {
    const height = Math.max(1, (u.bbox.height / (rows + 1)) * 0.8);
    for (let row = 0; row < rows; row++) {
      const y = u.valToPos(row, "y", true) - height / 2;
      const bar = (a, b, name) => { if (a == null || b == null || b < a) return; const [x0, x1] = [a, b].map((x) => u.valToPos(x, "x", true)); ctx.fillStyle = color(name); ctx.fillRect(x0, y, Math.max(x1 - x0, pixel() / 2), height); };
      const sentAt = sent[row] ?? end[row], firstAt = first[row] ?? end[row];
      bar(scheduled[row], sentAt, "--muted");
      bar(sentAt, firstAt, failure[row] ? "--fail" : "--c1");
      bar(firstAt, end[row], failure[row] ? "--fail" : "--c0");
      if (failure[row]) { ctx.fillStyle = color("--fail"); ctx.font = `${11 * pixel()}px system-ui, sans-serif`; ctx.fillText("✗", u.valToPos(end[row], "x", true) + 2 * pixel(), y + height / 2 + 4 * pixel()); }
    }
  };
  const hover = (u) => {
    const row = Math.round(u.posToVal(u.cursor.top, "y"));
    if (row < 0 || row >= rows) return "";
    const parts = [`request ${seq[row]}${turn[row] ? `, turn ${turn[row]}` : ""}`, `scheduled ${seconds(scheduled[row])}`];
    if (sent[row] != null) parts.push(`queued ${seconds(sent[row] - scheduled[row])}`);
    if (sent[row] != null && first[row] != null) parts.push(`first token after ${seconds(first[row] - sent[row])}`, `then ${seconds(end[row] - first[row])}`);
    else parts.push(`ended ${seconds(end[row])}`);
    if (failure[row]) parts.push(`failed: ${failure[row]}`);
    return parts.join(" · ");
  };
  const keys = [["--muted", "client queue"], ["--c1", "to first token (server queue, prefill)"], ["--c0", "decode"], ...(failure.some(Boolean) ? [["--fail", "✗ failed"]] : [])];
  const x = [Math.min(...scheduled), Math.max(...end)];
  return { title: "Request timeline", remark: `${rows} requests of the first round, by scheduled send time`, x, lines: [blank(x)], yDown: true, yRange: () => [-1, rows], tickY: (value) => (Number.isInteger(value) && value >= 0 && value < rows ? seq[value] : ""), yLabel: "request", height: Math.min(420, 90 + rows * 6), draw: paint, hover, keys };
}

// The sweep: a latency percentile and the rates over load, and latency over throughput.
const choice = {};
const symbols = { fail: "✗", invalid: "⚠", inconclusive: "?" };
function drawSweep(container) {
  const sweep = cases.sweep;
  if (choice.share == null) { choice.share = sweep.first.share; choice.latency = Math.max(0, sweep.latencies.findIndex((metric) => metric.key === sweep.first.key)); }
  discard(container);
  const box = element("div", container, null, "charts");
  const several = sweep.groups.length > 1;
  const tools = element("div", box, null, "tools");
  const button = (label, pressed, act) => {
    const made = element("button", tools, label);
    made.type = "button"; made.setAttribute("aria-pressed", pressed);
    made.onclick = () => { act(); drawSweep(container); [...container.querySelectorAll(".tools button")].find((other) => other.textContent === label)?.focus(); };
  };
  sweep.latencies.forEach((metric, index) => button(title(metric.name), choice.latency === index, () => { choice.latency = index; }));
  sweep.shares.forEach((name) => button(name, choice.share === name, () => { choice.share = name; }));
  const latency = sweep.latencies[choice.latency], remark = sweep.remark;
  const loads = sweep.groups.flatMap((group) => group.load);
  const xLog = Math.max(...loads) >= 8 * Math.min(...loads.filter((load) => load > 0)) && loads.every((load) => load > 0);
  const [least, most] = [Math.min(...loads), Math.max(...loads)], margin = (most - least) * 0.04 || 1;
  const xEnds = xLog ? [least / 1.12, most * 1.12] : [least - margin, most + margin];
  const common = { xName: "load", xLabel: sweep.axis, xLog, remark, xRange: () => xEnds };
  const colorOf = (index) => "--c" + (index % 6);
  const lines = (column, one) => {
    const [x, columns] = joined(sweep.groups.map((group) => [group.load, column(group)]));
    return { x, lines: columns.map((values, index) => ({ label: several ? sweep.groups[index].label : one, values, color: colorOf(index), points: true })) };
  };
  const keysOf = (verdicts) => {
    const seen = new Set(sweep.groups.flatMap(verdicts));
    const keys = Object.entries(symbols).filter(([name]) => seen.has(name)).map(([name, symbol]) => [symbol, name === "fail" ? "failed" : name]);
    if (sweep.groups.some((group) => group.knee != null)) keys.push(["◯", "throughput stops growing"]);
    if (sweep.groups.some((group) => group.max != null)) keys.push(["▲", "highest load up to which every objective passes"]);
    return keys;
  };
  const mark = (column, verdicts, bounds) => (u, ctx) => sweep.groups.forEach((group, index) => markPoints(u, ctx, group, column(group), colorOf(index), verdicts(group), bounds && bounds(group)));
  const ofCase = (group) => group.verdicts;
  const seenVerdicts = sweep.groups.some((group) => group.verdicts.some(Boolean));
  if (latency) {
    const say = (value) => inUnit(value, latency.unit);
    const limits = (sweep.limits[latency.key] || []).filter((limit) => limit.share === choice.share);
    const values = (group) => group.latencies[latency.key][choice.share], bounds = (group) => group.bounds[latency.key][choice.share];
    const ofObjective = (group) => group.own_verdicts[latency.key][choice.share] || group.verdicts;
    const own = lines(values, choice.share);
    own.lines.forEach((line) => { line.say = say; });
    const seen = sweep.groups.flatMap((group) => [...values(group), ...bounds(group)]).filter((value) => value > 0);
    const { near, keys } = nearLimits(limits, Math.min(...seen), Math.max(...seen), 30);
    const marks = near.map((limit) => ({ y: limit.value })), ends = [...seen, ...near.map((limit) => limit.value)];
    if (sweep.groups.some((group) => bounds(group).some((bound) => bound != null))) keys.push(["┬", "95 % confidence bound of the objective"]);
    const whose = seenVerdicts ? `verdicts of ${limits.length ? "this objective" : "all objectives"}` : "";
    draw(box, { ...common, ...own, remark: [remark, whose].filter(Boolean).join("; "), height: 320, yRange: (u) => decades(u, Math.min(...ends), Math.max(...ends)), title: `${title(latency.name)} ${choice.share} over load`, yLabel: latency.unit, yLog: true, marks, keys: [...keys, ...keysOf(ofObjective)], draw: mark(values, ofObjective, bounds) });
  }
  for (const rate of sweep.rates) { const values = (group) => group.rates[rate.key]; draw(box, { ...common, ...lines(values, rate.name), remark: [remark, seenVerdicts && "verdicts of all objectives"].filter(Boolean).join("; "), height: latency && rate === sweep.rates[0] ? 320 : 250, title: `${title(rate.name)} over load`, yLabel: rate.unit, keys: rate === sweep.rates[0] ? keysOf(ofCase) : null, draw: mark(values, ofCase) }); }
  const [rate] = sweep.rates;
  if (latency && rate) latencyOverThroughput(box, sweep, latency, rate, colorOf);
}

// Marks at the points of a group: its verdicts, the load where throughput stops growing, the highest passing load, and bounds.
function markPoints(u, ctx, group, values, name, verdicts, bounds) {
  const size = pixel();
  ctx.textAlign = "center"; ctx.lineWidth = 1.5 * size; ctx.strokeStyle = color(name);
  group.load.forEach((load, at) => {
    if (values[at] == null || load == null) return;
    const x = u.valToPos(load, "x", true), y = u.valToPos(values[at], "y", true);
    if (bounds && bounds[at] != null) {
      const end = u.valToPos(bounds[at], "y", true);
      ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(x, end); ctx.moveTo(x - 4 * size, end); ctx.lineTo(x + 4 * size, end); ctx.stroke();
    }
    const verdict = verdicts[at];
    if (verdict === "invalid") { ctx.fillStyle = color("--bg"); ctx.beginPath(); ctx.arc(x, y, 3.5 * size, 0, 7); ctx.fill(); ctx.stroke(); }
    if (symbols[verdict]) { ctx.font = `bold ${12 * size}px system-ui, sans-serif`; ctx.fillStyle = color("--" + verdict); ctx.fillText(symbols[verdict], x - 9 * size, y - 5 * size); }
    if (at === group.knee) { ctx.strokeStyle = color("--ink"); ctx.beginPath(); ctx.arc(x, y, 8 * size, 0, 7); ctx.stroke(); ctx.strokeStyle = color(name); }
    if (at === group.max) { ctx.font = `${11 * size}px system-ui, sans-serif`; ctx.fillStyle = color("--ink"); ctx.fillText("▲ " + figure(load), x, y + 18 * size); }
  });
}

// Latency over throughput, by rising load.
function latencyOverThroughput(box, sweep, latency, rate, colorOf) {
  const share = choice.share;
  const tracks = sweep.groups.map((group) => ({ x: group.rates[rate.key], y: group.latencies[latency.key][share], load: group.load, label: group.label, cases: group.cases }));
  const all = (key) => tracks.flatMap((track) => track[key]).filter((value) => value != null);
  if (!all("x").length || !all("y").length) return;
  const x = [0, Math.max(...all("x")) * 1.05], y = [0, Math.max(...all("y")) * 1.15];
  const paint = (u, ctx) => tracks.forEach((track, index) => {
    ctx.strokeStyle = ctx.fillStyle = color(colorOf(index)); ctx.lineWidth = 2 * pixel();
    const points = track.x.map((value, at) => (value == null || track.y[at] == null ? null : [u.valToPos(value, "x", true), u.valToPos(track.y[at], "y", true), track.load[at]])).filter(Boolean);
    ctx.beginPath(); points.forEach(([a, b], at) => (at ? ctx.lineTo(a, b) : ctx.moveTo(a, b))); ctx.stroke();
    ctx.font = `${11 * pixel()}px system-ui, sans-serif`;
    let free = [-1e9, -1e9];
    for (const [a, b, load] of points) {
      ctx.beginPath(); ctx.arc(a, b, 3.5 * pixel(), 0, 7); ctx.fill();
      if (Math.hypot(a - free[0], b - free[1]) > 26 * pixel()) { ctx.textAlign = "right"; ctx.fillText(figure(load), a - 7 * pixel(), b - 5 * pixel()); free = [a, b]; }
    }
  });
  const hover = (u) => {
    for (const track of tracks) {
      const at = nearest(u, track.x, track.y);
      if (at >= 0) return `${cases.cases[track.cases[at]]}: ${inUnit(track.x[at], rate.unit)}, ${title(latency.name)} ${share} ${inUnit(track.y[at], latency.unit)}`;
    }
    return "";
  };
  const keys = tracks.length > 1 ? tracks.map((track, index) => [colorOf(index), track.label]) : null;
  draw(box, { title: `${title(latency.name)} ${share} over ${title(rate.name).toLowerCase()}`, remark: "labels show the load", x, xRange: () => x, xLabel: rate.unit, lines: [blank(x)], yRange: () => y, yLabel: latency.unit, draw: paint, hover, keys });
}

// The probes of a search: the value of each objective over load.
function drawSearch(container) {
  const search = cases.searches[container.dataset.search];
  const topics = search.topics.slice(0, 4);
  if (search.goodput) topics.unshift({ label: "goodput", unit: "req/s", observed: search.goodput });
  for (const topic of topics) {
    const shown = search.load.map((load, index) => index).filter((index) => topic.observed[index] != null && search.outcome[index] !== "invalid");
    if (!shown.length) continue;
    const loads = shown.map((index) => search.load[index]), values = shown.map((index) => topic.observed[index]);
    const ends = [...loads, ...(search.interval || [])];
    const x = around(null, Math.min(...ends), Math.max(...ends)), margin = (x[1] - x[0]) * 0.05;
    const most = Math.max(...values, topic.limit || 0) * 1.08 || 1;
    const paint = (u, ctx) => shown.forEach((index, at) => {
      ctx.fillStyle = color("--" + search.outcome[index]); ctx.font = `bold ${14 * pixel()}px system-ui, sans-serif`; ctx.textAlign = "center";
      ctx.fillText({ pass: "●", ...symbols }[search.outcome[index]] || "●", u.valToPos(loads[at], "x", true), u.valToPos(values[at], "y", true) + 5 * pixel());
    });
    const hover = (u) => { const at = nearest(u, loads, values); return at < 0 ? "" : `probe ${shown[at] + 1} at ${figure(loads[at])}: ${inUnit(values[at], topic.unit)}`; };
    const bands = search.interval ? [{ from: search.interval[0], to: search.interval[1], color: "--c0", alpha: 0.15 }] : [];
    const marks = [...(topic.limit == null ? [] : [{ y: topic.limit }]), ...(search.result == null ? [] : [{ x: search.result, color: "--ink" }])];
    const keys = [["●", "passed"], ["✗", "failed"], ["?", "inconclusive"], ...(topic.limit == null ? [] : [["--limit", "limit", true]]), ...(search.result == null ? [] : [["--ink", "result and its interval", true]])];
    const range = [x[0] - margin, x[1] + margin];
    draw(container, { title: search.label + topic.label, x: range, xRange: () => range, xLabel: search.axis, lines: [blank(range)], yRange: () => [0, most], yLabel: topic.unit, tickY: (value) => (topic.unit === "%" ? figure(value * 100) : figure(value)), draw: paint, hover, bands, marks, keys });
  }
}
