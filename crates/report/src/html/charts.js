// The charts of a case, of a sweep over load and of a search. Charts without data are omitted.
const percentiles = ["p50", "p90", "p95", "p99"];
const cases = JSON.parse(document.getElementById("data").textContent);
const seriesOf = (index) => JSON.parse(document.getElementById("data-" + index).textContent);
// Titles of metrics; other metrics are shown under their names.
const titles = { ttft: "TTFT", itl: "ITL", tpot: "TPOT", e2e: "E2E latency", output_tps: "Output tokens per second", request_throughput: "Requests per second", goodput_rate: "Goodput", output_tps_per_user: "Output tokens per second per user" };
const title = (name) => titles[name] || name;
const pixel = () => devicePixelRatio;

function drawCase(container) {
  const series = seriesOf(container.dataset.caseIndex);
  if (!series.time && !Object.keys(series.cdfs).length && !series.waterfall) return;
  toggles(container);
  if (series.time) overTime(container, series.time, "time-" + container.dataset.caseIndex);
  if (series.time) for (const signals of series.telemetry) telemetryOverTime(container, signals, series.time, "time-" + container.dataset.caseIndex);
  for (const key of Object.keys(series.cdfs)) cdf(container, series.cdfs[key]);
  for (const key of Object.keys(series.spectra)) percentilePlot(container, series.spectra[key]);
  if (series.heat) heat(container, series.heat);
  if (series.by_token) itlByPosition(container, series.by_token);
  if (series.prefill) ttftByPromptLength(container, series.prefill);
  if (series.waterfall) requestTimeline(container, series.waterfall);
}

function overTime(container, time, sync) {
  const [from, until] = time.measured;
  const bands = [{ from: -Infinity, to: from, color: "--shade" }, { from: until, to: Infinity, color: "--shade" }];
  const legend = [["--shade", "warm-up and drain, not measured"]];
  if (time.steady) { bands.push({ from: time.steady[0], to: time.steady[1], color: "--steady", strip: true }); legend.push(["--steady", "steady state"]); }
  const last = time.ttft ? "ttft" : time.failures ? "failures" : time.output_tps ? "output_tps" : "in_flight";
  const under = (name) => (name === last ? { keys: legend, xLabel: "time since start of round (s)" } : {});
  const all = { bands, sync, wide: true, xName: "time", sayX: seconds, xRange: () => [0, time.end || 1], height: 190 };
  if (time.in_flight) draw(container, { ...all, ...under("in_flight"), title: "Requests in flight", yLabel: "requests", x: time.in_flight[0], lines: [{ label: "in flight", values: time.in_flight[1], color: "--c0", steps: true }] });
  if (time.output_tps) draw(container, { ...all, ...under("output_tps"), title: "Output tokens per second", yLabel: "tok/s", x: time.output_tps[0], lines: [{ label: "tok/s", values: time.output_tps[1], color: "--c2" }] });
  if (time.failures) draw(container, { ...all, ...under("failures"), height: 140, title: "Failed requests", yLabel: "requests", remark: "by end time", x: time.failures[0], lines: [{ label: "failed", values: time.failures[1], color: "--fail", bars: true }] });
  if (time.ttft) {
    const quantiles = time.ttft_quantiles;
    // uPlot.join merges equal x values, so requests of one instant are moved apart by a nanosecond each.
    const apart = [time.ttft[0].map((at, index) => at + index * 1e-9), time.ttft[1]];
    const [x, columns] = joined([apart, [quantiles.at, ...percentiles.map((name) => quantiles[name])]]);
    const say = (value) => inUnit(value, "ms");
    const lines = [{ label: "request", values: columns[0], color: "--muted", size: 3, scatter: true, say }, ...percentiles.map((name, index) => ({ label: name, values: columns[index + 1], color: quantileColors[name], quantile: name, say }))];
    const part = time.ttft[0].length < time.ttft_n ? `the slowest request of each of ${time.ttft[0].length} groups (${time.ttft_n} requests); ` : "";
    draw(container, { ...all, ...under("ttft"), height: 240, title: "TTFT over time", remark: part + "percentiles per time bin (48 bins)", x, lines, yLabel: "ms" });
  }
}

// Telemetry over time. Lines are drawn across missing samples.
function telemetryOverTime(container, signals, time, sync) {
  const [from, until] = time.measured;
  const bands = [{ from: -Infinity, to: from, color: "--shade" }, { from: until, to: Infinity, color: "--shade" }];
  const [x, columns] = joined(signals.lines.map((own) => own.points));
  const lines = signals.lines.map((own, index) => ({ label: own.label, values: columns[index], color: "--c" + index, gapless: true, say: (value) => inUnit(value, signals.unit) }));
  draw(container, { bands, sync, wide: true, xName: "time", sayX: seconds, xRange: () => [0, time.end || 1], height: 150, title: signals.title, yLabel: signals.unit === "%" ? "share" : signals.unit, tickY: signals.unit === "%" ? (value) => inUnit(value, "%") : figure, x, lines, xLabel: "time since start of round (s)" });
}

// Joins tables with different x values into columns over one ascending x.
function joined(tables) {
  const [x, ...columns] = uPlot.join(tables);
  return [x, columns];
}

// Splits off the limits that are far outside the data, so that they do not compress the chart; the legend has all limits.
function nearLimits(limits, least, most, factor) {
  const isNear = (limit) => limit.value >= least / factor && limit.value <= most * factor;
  return { near: limits.filter(isNear), keys: limits.map((limit) => ["--fail", limit.label + (isNear(limit) ? "" : " (outside the chart)"), true]) };
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

// A color of the Viridis palette for 0..1, dark to light.
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
      ctx.fillStyle = viridis(Math.log1p(count) / Math.log1p(most));
      ctx.fillRect(a, high, Math.max(1, b - a + 0.5), Math.max(1, low - high + 0.5));
    });
  });
  const place = (edges, value) => edges.findIndex((edge, index) => edge <= value && value < edges[index + 1]);
  const hover = (u) => {
    const i = place(times, u.posToVal(u.cursor.left, "x")), j = place(levels, u.posToVal(u.cursor.top, "y"));
    return i < 0 || j < 0 ? "" : `${seconds(times[i])} to ${seconds(times[i + 1])}, ${inUnit(levels[j], "ms")} to ${inUnit(levels[j + 1], "ms")}: ${counts[i][j]} requests`;
  };
  const xRange = () => [times[0], times[times.length - 1]];
  const keys = [0, 0.33, 0.66, 0.999].map((part) => [viridis(part), figure(Math.round(Math.expm1(part * Math.log1p(most))) || 1) + " requests"]);
  draw(container, { title: "End-to-end latency over time", remark: "requests per cell", wide: true, x: times, xRange, xLabel: "time since start of round (s)", lines: [blank(times)], yLog: true, yRange: () => [levels[0], levels[levels.length - 1]], yLabel: "ms", draw: paint, hover, keys, idle: "Point at a cell" });
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

function requestTimeline(container, [seq, turn, scheduled, sent, first, end, failure]) {
  const rows = seq.length, last = Math.max(...end);
  const paint = (u, ctx) => {
    const height = Math.max(1, (u.bbox.height / (rows + 1)) * 0.8);
    for (let row = 0; row < rows; row++) {
      const y = u.valToPos(row, "y", true) - height / 2;
      const bar = (a, b, name) => { if (a == null || b == null || b < a) return; const [x0, x1] = [a, b].map((x) => u.valToPos(x, "x", true)); ctx.fillStyle = color(name); ctx.fillRect(x0, y, Math.max(x1 - x0, pixel() / 2), height); };
      const sentAt = sent[row] ?? end[row], firstAt = first[row] ?? end[row];
      bar(scheduled[row], sentAt, "--muted");
      bar(sentAt, firstAt, failure[row] ? "--fail" : "--c1");
      bar(firstAt, end[row], failure[row] ? "--fail" : "--c0");
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
  const keys = [["--muted", "client queue"], ["--c1", "to first token"], ["--c0", "decode"], ...(failure.some(Boolean) ? [["--fail", "failed"]] : [])];
  const x = [Math.min(...scheduled), last];
  draw(container, { title: "Request timeline", remark: `${rows} requests of the first round, by scheduled send time`, wide: true, x, xRange: () => x, xLabel: "time since start of round (s)", lines: [blank(x)], yDown: true, yRange: () => [-1, rows], tickY: (value) => (Number.isInteger(value) && value >= 0 && value < rows ? seq[value] : ""), yLabel: "request", height: Math.min(560, 90 + rows * 9), draw: paint, hover, keys, idle: "Point at a request" });
}

// The sweep: a latency and the rates over load, and latency over throughput.
const choice = { latency: 0, share: "p95" };
function drawSweep(container) {
  const sweep = cases.sweep;
  discard(container);
  const box = element("div", container, null, "charts");
  const several = sweep.groups.length > 1;
  const tools = element("div", box, null, "tools");
  const button = (label, pressed, act) => { const made = element("button", tools, label); made.type = "button"; made.setAttribute("aria-pressed", pressed); made.onclick = () => { act(); drawSweep(container); }; };
  sweep.latencies.forEach((metric, index) => button(title(metric.name), choice.latency === index, () => { choice.latency = index; }));
  if (several) percentiles.forEach((name) => button(name, choice.share === name, () => { choice.share = name; }));
  else toggles(box);
  const latency = sweep.latencies[choice.latency], remark = sweep.remark;
  const loads = sweep.groups.flatMap((group) => group.load);
  const xLog = Math.max(...loads) >= 8 * Math.min(...loads.filter((load) => load > 0)) && loads.every((load) => load > 0);
  const common = { xName: "load", xLabel: sweep.axis, xLog, remark };
  const colorOf = (index) => "--c" + (index % 6);
  const lines = (column, one) => {
    const [x, columns] = joined(sweep.groups.map((group) => [group.load, column(group)]));
    return { x, lines: columns.map((values, index) => ({ label: several ? sweep.groups[index].label : one, values, color: colorOf(index), points: true })) };
  };
  if (latency) {
    const say = (value) => inUnit(value, latency.unit), limits = sweep.limits[latency.key] || [];
    const of = (name) => lines((group) => group.latencies[latency.key][name], name);
    const own = several ? of(choice.share) : { x: sweep.groups[0].load, lines: percentiles.map((name) => ({ label: name, values: sweep.groups[0].latencies[latency.key][name], color: quantileColors[name], quantile: name, points: true })) };
    own.lines.forEach((line) => { line.say = say; });
    const seen = own.lines.flatMap((line) => line.values).filter((value) => value > 0);
    const { near, keys } = nearLimits(limits, Math.min(...seen), Math.max(...seen), 30);
    const marks = near.map((limit) => ({ y: limit.value })), ends = [...seen, ...near.map((limit) => limit.value)];
    draw(box, { ...common, ...own, yRange: (u) => decades(u, Math.min(...ends), Math.max(...ends)), title: `${title(latency.name)}${several ? " " + choice.share : ""} over load`, yLabel: latency.unit, yLog: true, marks, keys });
  }
  for (const rate of sweep.rates) draw(box, { ...common, ...lines((group) => group.rates[rate.key], rate.name), title: `${title(rate.name)} over load`, yLabel: rate.unit });
  const [rate] = sweep.rates;
  if (latency && rate) latencyOverThroughput(box, sweep, latency, rate, colorOf);
}

// Latency over throughput, by rising load.
function latencyOverThroughput(box, sweep, latency, rate, colorOf) {
  const share = sweep.groups.length > 1 ? choice.share : "p95";
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
  draw(box, { title: `${title(latency.name)} ${share} over ${title(rate.name)}`, remark: "labels show the load", x, xRange: () => x, xLabel: rate.unit, lines: [blank(x)], yRange: () => y, yLabel: latency.unit, draw: paint, hover, keys, idle: "Point at a load" });
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
      ctx.fillStyle = color("--" + search.outcome[index]);
      ctx.beginPath(); ctx.arc(u.valToPos(loads[at], "x", true), u.valToPos(values[at], "y", true), 5 * pixel(), 0, 7); ctx.fill();
    });
    const hover = (u) => { const at = nearest(u, loads, values); return at < 0 ? "" : `probe ${shown[at] + 1} at ${figure(loads[at])}: ${inUnit(values[at], topic.unit)}`; };
    const bands = search.interval ? [{ from: search.interval[0], to: search.interval[1], color: "--c0", alpha: 0.15 }] : [];
    const marks = [...(topic.limit == null ? [] : [{ y: topic.limit }]), ...(search.result == null ? [] : [{ x: search.result, color: "--ink" }])];
    const keys = [["--pass", "passed"], ["--fail", "failed"], ["--inconclusive", "inconclusive"], ...(topic.limit == null ? [] : [["--fail", "limit", true]]), ...(search.result == null ? [] : [["--ink", "result and its interval", true]])];
    const range = [x[0] - margin, x[1] + margin];
    draw(container, { title: search.label + topic.label, x: range, xRange: () => range, xLabel: search.axis, lines: [blank(range)], yRange: () => [0, most], yLabel: topic.unit, tickY: (value) => (topic.unit === "%" ? figure(value * 100) : figure(value)), draw: paint, hover, bands, marks, keys, idle: "Point at a probe" });
  }
}
