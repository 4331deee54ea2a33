// What is drawn: of one case, of the sweep over the load, of a search. Whatever has no data has no chart.
const percentiles = ["p50", "p90", "p95", "p99"];
const cases = JSON.parse(document.getElementById("data").textContent);
const seriesOf = (index) => JSON.parse(document.getElementById("data-" + index).textContent);
// Names for people; a metric without one goes by its own.
const titles = { ttft: "TTFT", itl: "ITL", tpot: "TPOT", e2e: "E2E latency", output_tps: "Output tokens per second", request_throughput: "Requests per second", goodput_rate: "Goodput", output_tps_per_user: "Output tokens per second of one user" };
const title = (name) => titles[name] || name;
const pixel = () => devicePixelRatio;

function drawCase(container) {
  const own = seriesOf(container.dataset.caseIndex);
  if (!own.time && !Object.keys(own.cdfs).length && !own.waterfall) return;
  toggles(container);
  if (own.time) overTime(container, own.time, "time-" + container.dataset.caseIndex);
  if (own.time) for (const picture of own.telemetry) sampled(container, picture, own.time, "time-" + container.dataset.caseIndex);
  for (const key of Object.keys(own.cdfs)) cdf(container, own.cdfs[key]);
  for (const key of Object.keys(own.spectra)) spectrum(container, own.spectra[key]);
  if (own.heat) heat(container, own.heat);
  if (own.by_token) byToken(container, own.by_token);
  if (own.prefill) prefill(container, own.prefill);
  if (own.waterfall) waterfall(container, own.waterfall);
}

function overTime(container, time, sync) {
  const [from, until] = time.measured;
  const bands = [{ from: -Infinity, to: from, colour: "--shade" }, { from: until, to: Infinity, colour: "--shade" }];
  const legend = [["--shade", "not measured: warm-up, drain"]];
  if (time.steady) { bands.push({ from: time.steady[0], to: time.steady[1], colour: "--steady", strip: true }); legend.push(["--steady", "steady state"]); }
  const last = time.ttft ? "ttft" : time.failures ? "failures" : time.output_tps ? "output_tps" : "in_flight";
  const under = (name) => (name === last ? { keys: legend, xLabel: "seconds since the start of the round" } : {});
  const all = { bands, sync, wide: true, xName: "time", sayX: seconds, xRange: () => [0, time.end || 1], height: 190 };
  if (time.in_flight) draw(container, { ...all, ...under("in_flight"), title: "Requests in flight", yLabel: "requests", x: time.in_flight[0], lines: [{ label: "in flight", values: time.in_flight[1], colour: "--c0", steps: true }] });
  if (time.output_tps) draw(container, { ...all, ...under("output_tps"), title: "Output tokens per second", yLabel: "tok/s", x: time.output_tps[0], lines: [{ label: "tok/s", values: time.output_tps[1], colour: "--c2" }] });
  if (time.failures) draw(container, { ...all, ...under("failures"), height: 140, title: "Failed requests", yLabel: "requests", remark: "by the time they ended", x: time.failures[0], lines: [{ label: "failed", values: time.failures[1], colour: "--fail", bars: true }] });
  if (time.ttft) {
    const quantiles = time.ttft_quantiles;
    // Columns are joined by equal places: requests of one instant stay apart by a nanosecond each.
    const apart = [time.ttft[0].map((at, index) => at + index * 1e-9), time.ttft[1]];
    const [x, columns] = joined([apart, [quantiles.at, ...percentiles.map((name) => quantiles[name])]]);
    const say = (value) => inUnit(value, "ms");
    const lines = [{ label: "request", values: columns[0], colour: "--muted", size: 3, scatter: true, say }, ...percentiles.map((name, index) => ({ label: name, values: columns[index + 1], colour: quantileColours[name], quantile: name, say }))];
    const part = time.ttft[0].length < time.ttft_n ? `the highest of ${time.ttft[0].length} groups of ${time.ttft_n} requests; ` : "";
    draw(container, { ...all, ...under("ttft"), height: 240, title: "TTFT over time", remark: part + "percentiles of those due in the same 48th of the round", x, lines, yLabel: "ms" });
  }
}

// What was sampled beside the requests; a source that told nothing at an instant leaves its line as it runs.
function sampled(container, picture, time, sync) {
  const [from, until] = time.measured;
  const bands = [{ from: -Infinity, to: from, colour: "--shade" }, { from: until, to: Infinity, colour: "--shade" }];
  const [x, columns] = joined(picture.lines.map((own) => own.points));
  const lines = picture.lines.map((own, index) => ({ label: own.label, values: columns[index], colour: "--c" + index, gapless: true, say: (value) => inUnit(value, picture.unit) }));
  draw(container, { bands, sync, wide: true, xName: "time", sayX: seconds, xRange: () => [0, time.end || 1], height: 150, title: picture.title, yLabel: picture.unit === "%" ? "share" : picture.unit, tickY: picture.unit === "%" ? (value) => inUnit(value, "%") : figure, x, lines, xLabel: "seconds since the start of the round" });
}

// Columns over one ascending x, of tables that each have their own.
function joined(tables) {
  const [x, ...columns] = uPlot.join(tables);
  return [x, columns];
}

// The limits that do not squeeze the data into a corner, and what is said of all of them.
function inSight(limits, least, most, factor) {
  const sees = (limit) => limit.value >= least / factor && limit.value <= most * factor;
  return { near: limits.filter(sees), keys: limits.map((limit) => ["--fail", limit.label + (sees(limit) ? "" : " (outside the picture)"), true]) };
}

function cdf(container, curve) {
  const [values, shares] = curve.points;
  const say = (share) => figure(share * 100) + "%";
  const { near, keys } = inSight(curve.limits, values[0], values[values.length - 1], 3);
  const marks = near.flatMap((limit) => [{ x: limit.value }, { y: limit.share }]);
  const least = Math.min(values[0], ...near.map((limit) => limit.value)), most = Math.max(values[values.length - 1], ...near.map((limit) => limit.value));
  const xRange = () => around(null, least - (most - least) * 0.02, most + (most - least) * 0.02);
  draw(container, { title: `${title(curve.name)}: distribution`, remark: "share of values at or under", x: values, xName: curve.name, xLabel: curve.unit, sayX: (value) => inUnit(value, curve.unit), xRange, lines: [{ label: "share", values: shares, colour: "--c0", steps: true, say }], yRange: () => [0, 1], tickY: say, marks, keys });
}

// Nines across: each step of the axis is a tenth of the requests of the step before.
function spectrum(container, curve) {
  const [shares, values] = curve.points;
  const nines = shares.map((share) => -Math.log10(Math.max(1 - share, 1e-9)));
  const name = (at) => Number(((1 - 10 ** -at) * 100).toPrecision(Math.max(3, Math.ceil(at) + 2))) + "%";
  const remark = curve.high ? "share of the requests above" : "the tail stretched: each step is a tenth of the step before";
  draw(container, { title: `${title(curve.name)}: percentile spectrum`, remark, x: nines, xName: "percentile", sayX: name, tickX: (at) => (Number.isInteger(at) ? name(at) : ""), lines: [{ label: curve.name, values, colour: "--c0", say: (value) => inUnit(value, curve.unit) }], yLabel: curve.unit, yLog: values.every((value) => value > 0) });
}

// A colour of Viridis for 0..1, dark to light.
function viridis(place) {
  const steps = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const at = Math.min(place, 0.9999) * 4, from = Math.floor(at);
  return `rgb(${steps[from].map((value, index) => Math.round(value + (steps[from + 1][index] - value) * (at - from)))})`;
}

function heat(container, own) {
  const { times, levels, counts } = own;
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
  draw(container, { title: "Latency over time", remark: "requests in each cell", wide: true, x: times, xRange, xLabel: "seconds since the start of the round", lines: [blank(times)], yLog: true, yRange: () => [levels[0], levels[levels.length - 1]], yLabel: "ms", draw: paint, hover, keys, idle: "Point at a cell" });
}

// A series that draws nothing: what is seen is painted by hand.
const blank = (x) => ({ label: "", values: x.map(() => null), colour: "--c0" });

function byToken(container, own) {
  const say = (value) => inUnit(value, "ms");
  const lines = ["p50", "p90", "p99"].map((name) => ({ label: name, values: own[name], colour: quantileColours[name], quantile: name, steps: true, say }));
  const sayX = (from) => { const at = own.from.indexOf(from); return at < 0 ? figure(from) : `${from} to ${own.to[at]} (${own.n[at]} gaps)`; };
  draw(container, { title: "ITL over token position", x: own.from, xName: "token", sayX, xLabel: "token of the reply", lines, yLabel: "ms" });
}

function prefill(container, [tokens, ttft]) {
  const order = tokens.map((value, index) => index).sort((a, b) => tokens[a] - tokens[b]);
  const [x, y] = [tokens, ttft].map((column) => order.map((index) => column[index]));
  draw(container, { title: "Service TTFT over prompt length", x, xName: "prompt tokens", xLabel: "prompt tokens", lines: [{ label: "service TTFT", values: y, colour: "--c0", scatter: true, say: (value) => inUnit(value, "ms") }], yLabel: "ms" });
}

function waterfall(container, [seq, turn, due, sent, first, end, failure]) {
  const rows = seq.length, last = Math.max(...end);
  const paint = (u, ctx) => {
    const height = Math.max(1, (u.bbox.height / (rows + 1)) * 0.8);
    for (let row = 0; row < rows; row++) {
      const y = u.valToPos(row, "y", true) - height / 2;
      const stretch = (a, b, name) => { if (a == null || b == null || b < a) return; const [x0, x1] = [a, b].map((x) => u.valToPos(x, "x", true)); ctx.fillStyle = colour(name); ctx.fillRect(x0, y, Math.max(x1 - x0, pixel() / 2), height); };
      const begun = sent[row] ?? end[row], spoke = first[row] ?? end[row];
      stretch(due[row], begun, "--muted");
      stretch(begun, spoke, failure[row] ? "--fail" : "--c1");
      stretch(spoke, end[row], failure[row] ? "--fail" : "--c0");
    }
  };
  const hover = (u) => {
    const row = Math.round(u.posToVal(u.cursor.top, "y"));
    if (row < 0 || row >= rows) return "";
    const parts = [`request ${seq[row]}${turn[row] ? `, turn ${turn[row]}` : ""}`, `due ${seconds(due[row])}`];
    if (sent[row] != null) parts.push(`queued ${seconds(sent[row] - due[row])}`);
    if (sent[row] != null && first[row] != null) parts.push(`first token after ${seconds(first[row] - sent[row])}`, `then ${seconds(end[row] - first[row])}`);
    else parts.push(`ended ${seconds(end[row])}`);
    if (failure[row]) parts.push(`failed: ${failure[row]}`);
    return parts.join(" · ");
  };
  const keys = [["--muted", "waiting to be sent"], ["--c1", "to the first token"], ["--c0", "decode"], ...(failure.some(Boolean) ? [["--fail", "failed"]] : [])];
  const x = [Math.min(...due), last];
  draw(container, { title: "Single requests", remark: `${rows} of the first round, in the order in which they were due`, wide: true, x, xRange: () => x, xLabel: "seconds since the start of the round", lines: [blank(x)], yDown: true, yRange: () => [-1, rows], tickY: (value) => (Number.isInteger(value) && value >= 0 && value < rows ? seq[value] : ""), yLabel: "request", height: Math.min(560, 90 + rows * 9), draw: paint, hover, keys, idle: "Point at a request" });
}

// The sweep: a latency and the rates over the load, and one against the other.
const choice = { latency: 0, share: "p95" };
function drawSweep(container) {
  const sweep = cases.sweep;
  discard(container);
  const box = element("div", container, null, "charts");
  const several = sweep.groups.length > 1;
  const tools = element("div", box, null, "tools");
  const button = (words, pressed, act) => { const made = element("button", tools, words); made.type = "button"; made.setAttribute("aria-pressed", pressed); made.onclick = () => { act(); drawSweep(container); }; };
  sweep.latencies.forEach((metric, index) => button(title(metric.name), choice.latency === index, () => { choice.latency = index; }));
  if (several) percentiles.forEach((name) => button(name, choice.share === name, () => { choice.share = name; }));
  else toggles(box);
  const latency = sweep.latencies[choice.latency], remark = sweep.remark;
  const loads = sweep.groups.flatMap((group) => group.load);
  const xLog = Math.max(...loads) >= 8 * Math.min(...loads.filter((load) => load > 0)) && loads.every((load) => load > 0);
  const common = { xName: "load", xLabel: sweep.axis, xLog, remark };
  const colourOf = (index) => "--c" + (index % 6);
  const lines = (column, one) => {
    const [x, columns] = joined(sweep.groups.map((group) => [group.load, column(group)]));
    return { x, lines: columns.map((values, index) => ({ label: several ? sweep.groups[index].label : one, values, colour: colourOf(index), points: true })) };
  };
  if (latency) {
    const say = (value) => inUnit(value, latency.unit), limits = sweep.limits[latency.key] || [];
    const of = (name) => lines((group) => group.latencies[latency.key][name], name);
    const own = several ? of(choice.share) : { x: sweep.groups[0].load, lines: percentiles.map((name) => ({ label: name, values: sweep.groups[0].latencies[latency.key][name], colour: quantileColours[name], quantile: name, points: true })) };
    own.lines.forEach((line) => { line.say = say; });
    const seen = own.lines.flatMap((line) => line.values).filter((value) => value > 0);
    const { near, keys } = inSight(limits, Math.min(...seen), Math.max(...seen), 30);
    const marks = near.map((limit) => ({ y: limit.value })), ends = [...seen, ...near.map((limit) => limit.value)];
    draw(box, { ...common, ...own, yRange: (u) => decades(u, Math.min(...ends), Math.max(...ends)), title: `${title(latency.name)}${several ? " " + choice.share : ""} over load`, yLabel: latency.unit, yLog: true, marks, keys });
  }
  for (const rate of sweep.rates) draw(box, { ...common, ...lines((group) => group.rates[rate.key], rate.name), title: `${title(rate.name)} over load`, yLabel: rate.unit });
  const [rate] = sweep.rates;
  if (latency && rate) against(box, sweep, latency, rate, colourOf);
}

// Throughput against latency, by rising load: where the line turns is the knee.
function against(box, sweep, latency, rate, colourOf) {
  const share = sweep.groups.length > 1 ? choice.share : "p95";
  const tracks = sweep.groups.map((group) => ({ x: group.rates[rate.key], y: group.latencies[latency.key][share], load: group.load, label: group.label, cases: group.cases }));
  const all = (key) => tracks.flatMap((track) => track[key]).filter((value) => value != null);
  if (!all("x").length || !all("y").length) return;
  const x = [0, Math.max(...all("x")) * 1.05], y = [0, Math.max(...all("y")) * 1.15];
  const paint = (u, ctx) => tracks.forEach((track, index) => {
    ctx.strokeStyle = ctx.fillStyle = colour(colourOf(index)); ctx.lineWidth = 2 * pixel();
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
  const keys = tracks.length > 1 ? tracks.map((track, index) => [colourOf(index), track.label]) : null;
  draw(box, { title: `${title(rate.name)} against ${title(latency.name)} ${share}`, remark: "labels show the load", x, xRange: () => x, xLabel: rate.unit, lines: [blank(x)], yRange: () => y, yLabel: latency.unit, draw: paint, hover, keys, idle: "Point at a load" });
}

// The probes of a search: each limit's value over the searched load.
function drawSearch(container) {
  const search = cases.searches[container.dataset.search];
  const topics = search.topics.slice(0, 4);
  if (search.goodput) topics.unshift({ label: "goodput", unit: "req/s", seen: search.goodput });
  for (const topic of topics) {
    const places = search.load.map((load, index) => index).filter((index) => topic.seen[index] != null && search.outcome[index] !== "invalid");
    if (!places.length) continue;
    const loads = places.map((index) => search.load[index]), seen = places.map((index) => topic.seen[index]);
    const ends = [...loads, ...(search.interval || [])];
    const x = around(null, Math.min(...ends), Math.max(...ends)), margin = (x[1] - x[0]) * 0.05;
    const most = Math.max(...seen, topic.limit || 0) * 1.08 || 1;
    const paint = (u, ctx) => places.forEach((index, at) => {
      ctx.fillStyle = colour("--" + search.outcome[index]);
      ctx.beginPath(); ctx.arc(u.valToPos(loads[at], "x", true), u.valToPos(seen[at], "y", true), 5 * pixel(), 0, 7); ctx.fill();
    });
    const hover = (u) => { const at = nearest(u, loads, seen); return at < 0 ? "" : `probe ${places[at] + 1} at ${figure(loads[at])}: ${inUnit(seen[at], topic.unit)}`; };
    const bands = search.interval ? [{ from: search.interval[0], to: search.interval[1], colour: "--c0", alpha: 0.15 }] : [];
    const marks = [...(topic.limit == null ? [] : [{ y: topic.limit }]), ...(search.answer == null ? [] : [{ x: search.answer, colour: "--ink" }])];
    const keys = [["--pass", "holds"], ["--fail", "fails"], ["--inconclusive", "open"], ...(topic.limit == null ? [] : [["--fail", "limit", true]]), ...(search.answer == null ? [] : [["--ink", "answer and its interval", true]])];
    const whole = [x[0] - margin, x[1] + margin];
    draw(container, { title: search.label + topic.label, x: whole, xRange: () => whole, xLabel: search.axis, lines: [blank(whole)], yRange: () => [0, most], yLabel: topic.unit, tickY: (value) => (topic.unit === "%" ? figure(value * 100) : figure(value)), draw: paint, hover, bands, marks, keys, idle: "Point at a probe" });
  }
}
