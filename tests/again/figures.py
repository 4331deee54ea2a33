"""The figures of docs/reference/metrics.md, computed from the raw stamps of requests.parquet."""

import math
import re

import numpy

SHARES = [0.01, 0.05, 0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99, 0.999]
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4, "h": 3.6e6, "%": 0.01}
HOLDS = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "==": lambda value, limit: value == limit,
    "!=": lambda value, limit: value != limit,
}
COLUMNS = {
    "ttft_per_prompt_token": "ttft_ms_per_prompt_token",
    "window": "window_s",
    "throughput_window": "throughput_window_s",
    "startup": "startup_s",
    "energy_per_token": "energy_per_token_j",
    "audio_duration": "audio_duration_s",
}
TIMES = ["ttft", "ttft_service", "ttft_first_turn", "ttft_later_turns", "time_to_first_answer", "reasoning_time", "ttfc", "itl", "tpot", "ntpot"]
TIMES += ["e2e", "e2e_service", "schedule_lag", "held_time", "session_duration", "ttfa", "underrun_time"]
COLUMNS.update({name: name + "_ms" for name in TIMES})


def ratio(above, below):
    return above / below if above is not None and below else None


def per_second(tokens, milliseconds):
    per_ms = ratio(tokens, milliseconds)
    return per_ms and per_ms * 1e3


def span(start, end):
    return (end - start) / 1e6 if start is not None and end is not None else None


def gaps(events, choices):
    """Between successive events of one choice, in the order of the later ones."""
    latest, found = {}, []
    for at, choice in zip(events, choices):
        if choice in latest:
            found.append(span(latest[choice], at))
        latest[choice] = at
    return found


def account(row, events):
    """"Tokens" of docs/reference/metrics.md: the hidden and the visible output tokens, and the source of the latter."""
    billed, reasoning, counted = row["usage_output"], row["usage_reasoning"], row["counted_output"]
    received = row["reasoning_received"] or not row["characters"] and (row["reasoning_events"] or 0) > 0
    hidden = None if reasoning is None or billed is None else 0 if received else min(reasoning, max(billed - len(events), 0))
    visible = None if billed is None else billed - (hidden or 0)
    if visible is not None and (visible > 0 or not (events or counted)):
        return hidden, "usage", visible
    if counted is not None and counted >= len(events):
        return hidden, "tokenizer", counted
    return (hidden, "events", len(events)) if events else (hidden, None, None)


def weights_of(row, events, output):
    """The running counts of the server, where they can be those of the tokens that arrived."""
    weights = (row["token_weights"] if row["streamed"] else None) or []
    return weights if output is not None and sum(weights[1:]) <= output else []


def event_tokens(row, events):
    """The output tokens of each event: together they are those that arrived."""
    output = row["output_tokens"]
    weights = list(weights_of(row, events, output))
    if not weights:
        return [output / len(events)] * len(events) if events else []
    if row["token_weights_counted"]:
        return [tokens * output / max(sum(weights), 1) for tokens in weights]
    difference = output - sum(weights)
    weights[0 if difference < 0 else -1] += difference
    return weights


def derived(row):
    """"Metrics of a request" of docs/reference/metrics.md: the metrics of one request from its stamps and counts."""
    events = (row["token_events_ns"] if row["streamed"] else None) or []
    ok = row["outcome"] == "ok"
    choices = (row["token_choices"] if row["streamed"] else None) or [0] * len(events)
    spans = [[at for at, own in zip(events, choices) if own == choice] for choice in sorted(set(choices))]
    first, last = (events[0], events[-1]) if events else (None, None)
    timed = ok or row["outcome"] == "abandoned"
    answered = first if timed else None
    end = row["end_ns"] if ok else None
    hidden, source, output = account(row, events)
    weights = weights_of(row, events, output)
    begun = {choices.index(choice) for choice in set(choices)}
    decoded = (output or 0) - (sum(weights[event] for event in begun) if weights else len(spans))
    if weights and not row["token_weights_counted"]:
        decoded = sum(tokens for event, tokens in enumerate(weights) if event not in begun)
    prompt = row["usage_prompt"] if row["usage_prompt"] is not None else row["counted_prompt"]
    ttft, e2e = span(row["intended_ns"], answered), span(row["intended_ns"], end)
    service = span(row["sent_ns"], answered)
    reasoning = row["reasoning_events"] or 0
    reasoned = reasoning > 0 or (row["usage_reasoning"] or 0) > 0
    first_answer = events[reasoning] if ok and reasoned and reasoning < len(events) else None
    time = sum(span(own[0], own[-1]) for own in spans)
    tpot = time / decoded if timed and decoded > 0 and time > 0 else None
    counted = row["counted_output"]
    mismatch = abs(output - counted) / counted if source == "usage" and counted and not row["counted_approximate"] else None
    per_ms = ratio(prompt, service)
    audio = row["audio_duration_ns"] / 1e9 if ok and row["audio_duration_ns"] is not None else None
    heard = lambda value: value if ok else None
    return {
        "token_source": source,
        "ttft_ms": ttft,
        "ttft_service_ms": service,
        "time_to_first_answer_ms": span(row["intended_ns"], first_answer),
        "ttfc_ms": span(row["sent_ns"], row["first_chunk_ns"]),
        "itl_ms": gaps(events, choices) or None if timed else None,
        "tokens_per_event": ratio(output, len(events)),
        "events_per_reply": len(events) or None if ok else None,
        "tpot_ms": tpot,
        "ntpot_ms": ratio(e2e, output),
        "e2e_ms": e2e,
        "e2e_service_ms": span(row["sent_ns"], end),
        "held_time_ms": span(row["intended_ns"], row["held_until_ns"]),
        "schedule_lag_ms": span(row["intended_ns"] if row["held_until_ns"] is None else row["held_until_ns"], row["sent_ns"]),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "billed_tokens": row["usage_output"] if row["usage_output"] is not None else output,
        "reasoning_tokens": row["usage_reasoning"],
        "hidden_tokens": hidden,
        "count_mismatch": mismatch,
        "replacement_share": ratio(row["replacement_characters"], row["characters"] or None),
        "cached_tokens": row["usage_cached"],
        "prefill_tps": per_ms and per_ms * 1e3,
        "decode_tps": ratio(1e3, tpot),
        "output_tps_per_request": per_second(output, e2e),
        "total_tps_per_request": per_second(prompt + output if prompt is not None and output is not None else None, e2e),
        "ttft_ms_per_prompt_token": ratio(ttft, prompt),
        "audio_duration_s": audio,
        "rtf": ratio(e2e and e2e / 1e3, audio),
        "rtfx_per_request": ratio(audio, e2e and e2e / 1e3),
        "ttfa_ms": span(row["intended_ns"], heard(row["first_audio_ns"])),
        "underruns": heard(row["playback_underruns"]),
        "underrun_time_ms": span(0, heard(row["playback_stalled_ns"])),
    }


def steps(rows, window):
    """Requests in flight within a window as (from, to, level)."""
    edges = {}
    for row in rows:
        if row["sent_ns"] is not None and row["sent_ns"] < row["end_ns"]:
            edges[row["sent_ns"]] = edges.get(row["sent_ns"], 0) + 1
            edges[row["end_ns"]] = edges.get(row["end_ns"], 0) - 1
    times = sorted(edges)
    levels = numpy.cumsum([edges[time] for time in times])
    begun = [(0, times[0] if times else 2**63, 0)]
    found = begun + list(zip(times, times[1:] + [2**63], levels))
    clipped = ((max(a, window[0]), min(b, window[1]), int(level)) for a, b, level in found)
    return [step for step in clipped if step[0] < step[1]]


def plateau(levels, users):
    if users is not None:
        return min(users, max((level for _, _, level in levels), default=0))
    half, passed = sum(b - a for a, b, _ in levels) / 2, 0
    for a, b, level in sorted(levels, key=lambda step: step[2]):
        passed += b - a
        if passed >= half:
            return level
    return 0


def ended_itself(part):
    """Whether the tool itself ended a round before its plan was done: what it cut off then says nothing of the server."""
    return bool(part.get("ending") or (part.get("probe") or {}).get("hopeless"))


def cut(part):
    """When sending ended early, if it did."""
    return part.get("sending_until_ns") if part.get("cut_short") or ended_itself(part) else None


class Round:
    """What one round of a case adds to the sums of its case."""

    def __init__(self, rows, part, load, shape):
        self.rows, self.measured = rows, [row for row in rows if row["phase"] == "measured"]
        # The discarded start belongs to the plan, and to no figure.
        self.settling = sum(row["phase"] == "settling" and row["turn"] == 0 for row in rows)
        self.sending, self.arrived = 0, []
        self.session_sending, self.session_ends = 0, []
        self.seconds = self.area = self.most = self.steady_tokens = self.steady_seconds = 0
        self.planned = self.length = self.sent = self.took = 0
        if self.measured:
            first = min(row["intended_ns"] for row in self.measured)
            self.window = (first, max(row["end_ns"] for row in self.measured))
            self.seconds = (self.window[1] - first) / 1e9
            self.in_flight(shape)
            self.rates(first, part, load, shape)
            self.throughput(part or {}, load)

    def by_time(self, part, load):
        """When a load stops sending that ends by time; None where its requests or its data end it."""
        starts = sum(row["turn"] == 0 for row in self.measured) + self.settling
        counted = load.get("requests", load.get("sessions"))
        ends = [span_of(stage["for"]) * 1e6 for stage in load.get("stages", [])]
        ends = [sum(ends)] if ends else []
        if "duration" in load:
            ends.append(min(part.get("measured_from_ns", self.window[0]), self.window[0]) + span_of(load["duration"]) * 1e6)
        if not ends or counted is not None and starts >= counted:
            return None
        return min(ends + [cut(part)] if cut(part) is not None else ends)

    def throughput(self, part, load):
        """When sending ends, and whether the load is over with its last end."""
        first, last = self.window
        static = load.get("static")
        starts = [row for row in self.measured if row["turn"] == 0]
        due, sent = [row["intended_ns"] for row in starts], [row["sent_ns"] for row in starts if row["sent_ns"] is not None]
        timed = self.by_time(part, load)
        self.by_plan = load.get("rate") == "burst" or static is not None and static.get("barrier", "round") != "none"
        if self.by_plan:
            until = last
        elif {"rate", "trace", "replay"} & set(load) or "rate" in load.get("stages", [{}])[0]:
            n = len(due)
            planned = timed if timed is not None else first + round((max(due) - first) / max(n - 1, 1) * n)
            until = max([planned] + sent)
        elif timed is not None and not part.get("dataset_ended"):
            until = timed
        else:
            talks = {}
            for row in self.rows:
                if row["sent_ns"] is not None:
                    talks[row["seq"]] = max(talks.get(row["seq"], 0), row["end_ns"])
            until = min((end for end in talks.values() if end > max(sent)), default=max(sent)) if sent else first
        users = load.get("concurrency", (static or {}).get("batch"))
        self.users, self.until = users if isinstance(users, int) else None, until

    def over(self, window, whole):
        """Counts what arrived in the window of steady sending, or in the whole round."""
        begins, until = window
        self.sending = max(until - begins, 0) / 1e9
        inside = lambda at: begins < at <= until
        self.bin = lambda at: int(((at - begins) * 240 - 1) // (until - begins))
        rows = self.measured if whole else self.rows
        self.whole = whole
        for row in (row for row in rows if row["sent_ns"] is not None):
            arrived = list(arrivals(row))
            self.arrived += [(at, what, amount, row) for at, what, amount in arrived if inside(at)]

    def in_flight(self, shape):
        levels = steps(self.rows, self.window)
        self.area = sum(level * (b - a) for a, b, level in levels) / 1e9
        self.most = max((level for _, _, level in levels), default=0)
        users = int(shape.split()[1].rstrip(";")) if shape.startswith("concurrency") else None
        high = [(a, b) for a, b, level in levels if level >= 0.9 * plateau(levels, users)]
        self.steady_seconds = sum(b - a for a, b in high) / 1e9
        for row in self.rows:
            if row["outcome"] == "ok" and row["streamed"] and row["token_events_ns"]:
                events = row["token_events_ns"]
                inside = zip(events, event_tokens(row, events))
                self.steady_tokens += sum(tokens for event, tokens in inside if any(a < event <= b for a, b in high))

    def rates(self, first, part, load, shape):
        self.sent = sum(row["sent_ns"] is not None for row in self.measured)
        self.took = self.seconds
        if "/s" not in shape:
            return
        due, n = [row["intended_ns"] for row in self.measured], len(self.measured)
        start, length = first, (max(due) - first) / max(n - 1, 1) * n
        if "duration" in load and not (load.get("requests") is not None and n + self.settling >= load["requests"]):
            begun = min(part["measured_from_ns"], first)
            start = first if self.settling else begun
            length = begun + span_of(load["duration"]) * 1e6 - start
            if cut(part) is not None:
                length = min(length, cut(part) - start)
        self.planned, self.length = sum(at <= start + length for at in due), length / 1e9
        left = max((row["sent_ns"] for row in self.measured if row["sent_ns"] is not None), default=start)
        self.took = max(length, left - start) / 1e9


def steady(own, flights):
    """The window of steady sending of a round: from the first success until sending ends; for a closed loop, a multiple of its users' ends."""
    first, last = own.window
    if own.by_plan:
        return first, last
    begins = max(first, min((end for _, end, _, ok, _ in flights if ok), default=first))
    return (begins, own.until) if own.users is None else whole_cycles([end for _, end, *_ in flights], begins, own.until, own.users)


def whole_cycles(ends, begins, until, users):
    """Cuts a window to a multiple of so many ends."""
    ends = sorted(end for end in ends if begins < end <= until)
    if len(ends) < 3 * users:
        return begins, until
    rest = len(ends) % users
    return ends[rest - 1] if rest else begins, ends[-1]


def is_whole(flights, steady, entries):
    """Whether steady windows are too short for three mean durations, or count more than Little's law allows.

    `flights`: per round the (sent, end, ok and measured, ok, group) of what ends; `steady`: the window of each round.
    """
    took = lambda wanted: [(b - a) / 1e9 for own in flights for a, b, counts, _, group in own if counts and wanted(group)]
    every = took(lambda group: True)
    if not every:
        return False
    of_entry = lambda name: took(lambda group: group is not None and (group == name or group.startswith(name + "/")))
    longest = max([numpy.mean(every)] + [numpy.mean(found) for name in entries if (found := of_entry(name))])
    length = sum(max(b - a, 0) for a, b in steady) / 1e9
    if length / len(steady) < 3 * longest:
        return True
    inside = sum(ok and a < end <= b for own, (a, b) in zip(flights, steady) for _, end, _, ok, _ in own)
    return inside / length * numpy.mean(every) > 1.05 * max(most_at_once(own, span) for own, span in zip(flights, steady))


def settle(rounds, entries):
    """Chooses what the throughputs of a case are over: of requests, and of sessions."""
    rounds = [own for own in rounds if own.measured]
    by_plan = any(own.by_plan for own in rounds)
    flights = [[(row["sent_ns"], row["end_ns"], row["outcome"] == "ok" and row["phase"] == "measured", row["outcome"] == "ok", row["group"])
                for row in own.rows if row["sent_ns"] is not None] for own in rounds]
    of_requests = [steady(*one) for one in zip(rounds, flights)]
    whole = not by_plan and is_whole(flights, of_requests, entries)
    talks = [sessions(own) for own in rounds]
    spans = [steady(*one) for one in zip(rounds, talks)]
    of_sessions = not by_plan and is_whole(talks, spans, entries)
    for own, found, of_own_requests, of_own_sessions in zip(rounds, talks, of_requests, spans):
        own.over(own.window if whole else of_own_requests, whole)
        begins, until = own.window if of_sessions else of_own_sessions
        own.session_sending, own.session_whole = max(until - begins, 0) / 1e9, of_sessions
        own.session_bin = lambda at, begins=begins, until=until: int(((at - begins) * 240 - 1) // (until - begins))
        own.session_ends = [end for _, end, counts, ok, _ in found if (counts if of_sessions else ok) and begins < end <= until]


def sessions(own):
    """The (sent, end, ok and measured, ok, group) of each session of a round; ok if every turn is."""
    talks = {}
    for row in own.rows:
        talks.setdefault(row["seq"], []).append(row)
    found = []
    for rows in talks.values():
        sent = [row["sent_ns"] for row in rows if row["sent_ns"] is not None]
        last = max(rows, key=lambda row: row["end_ns"])
        ok = sum(row["outcome"] == "ok" for row in rows) == rows[0]["turns"] and last["session_duration_ns"] is not None
        if sent:
            found.append((min(sent), last["end_ns"], ok and rows[0]["phase"] == "measured", ok, rows[0]["group"]))
    return found


def most_at_once(flights, span):
    """The greatest number in flight within a window."""
    rows = [{"sent_ns": sent, "end_ns": end} for sent, end, *_ in flights]
    return max((level for _, _, level in steps(rows, span)), default=0)


def arrivals(row):
    """What a request brings, and when: tokens with their events, the rest with its end."""
    yield row["end_ns"], "ended", 1
    if row["outcome"] != "ok":
        return
    events = (row["token_events_ns"] if row["streamed"] else None) or []
    output, prompt = row["output_tokens"], row["prompt_tokens"]
    yield row["end_ns"], "requests", 1
    yield row["end_ns"], "items", row["items"] or 0
    yield row["end_ns"], "audio", row["audio_duration_s"] or 0
    if prompt is not None:
        yield (events or [row["end_ns"]])[0], "input", prompt
    if output is None:
        return
    brought = list(zip(events, event_tokens(row, events))) or [(row["end_ns"], output)]
    hidden = row["billed_tokens"] - output
    for at, tokens in brought:
        yield at, "output", tokens
        yield at, "billed", tokens
    yield brought[0][0], "billed", hidden


def span_of(text):
    """A duration of a plan in milliseconds."""
    pieces = re.findall(r"([\d.]+)(ns|us|ms|s|m|h)", str(text))
    return sum(float(number) * UNITS[unit] for number, unit in pieces)


def price_of(target):
    """`target.cost` in units of money per second; None without one."""
    if "cost" not in target:
        return None
    number, unit, *rest = target["cost"].split()
    assert unit.endswith("/h") and rest in ([], ["per", "gpu"]), target["cost"]
    return float(number) * (target["gpus"] if rest else 1) / 3600


def costs(price, rates):
    """The price of an amount at a rate per second, by the name of the amount."""
    return {f"cost_per_{name}": price * amount / rate if price and rate else None for name, (amount, rate) in rates.items()}


def scalars(rounds, target, goodput):
    """"Metrics of a case" of docs/reference/metrics.md: the figures that a case has one of."""
    rows = [row for own in rounds for row in own.measured]
    ok = [row for row in rows if row["outcome"] == "ok"]
    total = lambda name: sum(getattr(own, name) for own in rounds)
    seconds = total("seconds")
    sending = total("sending")
    arrived = lambda what: sum(amount for own in rounds for _, name, amount, _ in own.arrived if name == what)
    ended = [row for own in rounds for _, name, _, row in own.arrived if name == "requests"]
    rate = lambda what, known: ratio(arrived(what), sending) if known else None
    tokens = [row["output_tokens"] for row in ok if row["output_tokens"] is not None]
    items = [row["items"] for row in ok if row["items"] is not None]
    audio = [row for row in ok if row["audio_duration_s"] is not None]
    users = [row["output_tokens"] / row["e2e_ms"] * 1e3 for row in ok if row["output_tokens"] is not None]
    sessions = ratio(sum(len(own.session_ends) for own in rounds), total("session_sending")) if any(row["turns"] > 1 or row["session_duration_ns"] is not None for row in rows) else None
    cached = [row["cached_tokens"] for row in ok if row["cached_tokens"] is not None and row["prompt_tokens"] is not None]
    cacheable = [row for row in ok if row["cacheable_tokens"] is not None and row["counted_prompt"] is not None]
    share = lambda column: ratio(sum(found), len(found)) if (found := [row[column] for row in ok if row[column] is not None]) else None
    gpus, price = target.get("gpus"), price_of(target)
    output = rate("output", tokens)
    streamed = any(row["streamed"] and row["token_events_ns"] for own in rounds for row in own.rows if row["outcome"] == "ok")
    prompts = [row["prompt_tokens"] for row in ok if row["prompt_tokens"] is not None]
    input_tps, billed_tps = rate("input", prompts), rate("billed", tokens)
    both_of = lambda one, other: one + other if None not in (one, other) else None
    total_tps, billed_total_tps = both_of(input_tps, output), both_of(input_tps, billed_tps)
    return {
        "request_throughput": rate("requests", True),
        "output_tps": output,
        "input_tps": input_tps,
        "total_tps": total_tps,
        "billed_tps": billed_tps,
        "billed_total_tps": billed_total_tps,
        "throughput_window_s": sending or None,
        "request_throughput_with_drain": ratio(len(ok), seconds),
        "output_tps_with_drain": ratio(sum(tokens), seconds) if tokens else None,
        "total_tps_with_drain": ratio(sum(tokens) + sum(prompts), seconds) if tokens and prompts else None,
        "output_tps_per_user": float(numpy.mean(users)) if users else None,
        "output_tps_per_gpu": ratio(output, gpus) if gpus else None,
        "input_tps_per_gpu": ratio(input_tps, gpus) if gpus else None,
        "total_tps_per_gpu": ratio(total_tps, gpus) if gpus else None,
        **costs(price, {"million_input_tokens": (1e6, input_tps), "million_output_tokens": (1e6, billed_tps), "million_tokens": (1e6, billed_total_tps), "thousand_requests": (1e3, rate("requests", True)), "thousand_sessions": (1e3, sessions)}),
        "output_tps_steady": ratio(total("steady_tokens"), total("steady_seconds")) if streamed else None,
        "concurrency_mean": ratio(total("area"), seconds),
        "concurrency_max": max((own.most for own in rounds), default=None) if seconds else None,
        "rate_offered": ratio(total("planned"), total("length")),
        "rate_achieved": ratio(total("sent"), total("took")),
        "error_rate": ratio(sum(row["outcome"] != "ok" for row in stayed(rows)), len(stayed(rows))),
        "endpoint_imbalance": imbalance(ok, target),
        "item_throughput": rate("items", items),
        "rtfx": rate("audio", audio),
        "session_throughput": sessions,
        "sessions_per_hour": sessions * 3600 if sessions is not None else None,
        "sessions_per_hour_per_gpu": sessions * 3600 / gpus if gpus and sessions is not None else None,
        "cached_share": ratio(sum(cached), sum(row["prompt_tokens"] for row in ok if row["prompt_tokens"] is not None)) if cached else None,
        "cacheable_share": ratio(sum(row["cacheable_tokens"] for row in cacheable), sum(row["counted_prompt"] for row in cacheable)) if cacheable else None,
        **{name: share(column) for name, column in (("valid_rate", "valid"), ("match_rate", "match"), ("length_exact", "length_exact"))},
        "goodput_rate": ratio(sum(bool(meets(row, goodput)) for row in ended), sending) if goodput else None,
        "window_s": seconds or None,
    }


def imbalance(ok, target):
    """Most output tokens of an endpoint by the mean of all; None for one URL."""
    urls = target.get("url")
    if not isinstance(urls, list) or len(urls) < 2 or any(row["output_tokens"] is None for row in ok):
        return None
    sums = {}
    for row in ok:
        sums[row["endpoint"]] = sums.get(row["endpoint"], 0) + row["output_tokens"]
    return ratio(max(sums.values(), default=0) * len(urls), sum(sums.values()))


def stayed(rows):
    """Without the requests whose users left."""
    return [row for row in rows if row["outcome"] != "abandoned"]


def nearest_rank(ordered, share):
    return ordered[max(math.ceil(round(share * len(ordered), 9)), 1) - 1]


def values(rows, column):
    found = [row[column] for row in rows if row["outcome"] == "ok" and row[column] is not None]
    return [gap for gaps in found for gap in gaps] if column == "itl_ms" else found


def distribution(found):
    if not found:
        return None
    ordered = sorted(found)
    known = {"n": len(found), "mean": float(numpy.mean(ordered)), "min": ordered[0], "max": ordered[-1]}
    known["sd"] = float(numpy.std(ordered, ddof=1)) if len(found) > 1 else None
    known.update({f"p{round(share * 100, 1):g}": nearest_rank(ordered, share) for share in SHARES})
    return known


def limit_of(text):
    number, unit = re.fullmatch(r"\s*([\d.]+)\s*(ns|us|ms|s|m|h|%|tok/s|req/s|tok)?\s*", text).groups()
    return float(number) * UNITS[unit] if unit in UNITS and unit != "%" else float(number) / (100 if unit == "%" else 1)


def request_limits(text):
    parts = [re.fullmatch(r"\s*(\w+)\s*([<>=!]+)(.*)", part).groups() for part in text.split(",")]
    return [(COLUMNS.get(name, name), op, limit_of(limit)) for name, op, limit in parts]


def meets(row, limits):
    """Whether a request is good: ok, with every limit met. None for a stream without a pace that a limit is on, unless it breaks another limit."""
    if row["outcome"] != "ok":
        return False
    is_known = True
    for column, op, limit in limits:
        seen = row[column] if column == "itl_ms" else [row[column]]
        if column in ("itl_ms", "tpot_ms", "decode_tps") and seen in (None, [None]):
            if row["ttft_ms"] is None:
                return False
            is_known = False
        elif any(value is None or not HOLDS[op](value, limit) for value in seen):
            return False
    return True if is_known else None
