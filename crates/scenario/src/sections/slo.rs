//! `slo`: the objectives of the run; `presets`: named objectives.

pub(crate) mod default_limit;
mod limit;
mod measurable;
mod relative;

use crate::check::{self, FINISH};
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, Leaf, field};
use crate::sections::condition::Condition;
use crate::sections::reference;
use crate::sections::slo::limit::Limit;
use crate::sections::slo::measurable::check_measurable;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::expect;
use crate::values::text::{CONFIDENCE, confidence};
use llmscen_core::check::relative::ReferenceKind;
use llmscen_core::check::{Abort, Check, NoData, RequestSet, Subject};
use llmscen_core::label::{STAGE, Scalar};
use llmscen_core::metric::Scope;
use llmscen_core::plan::Case;
pub(crate) use relative::RelativeContext;
use std::collections::BTreeSet;

const OF: Kind = Kind::Choice(
    &[
        ("ok", "Successful requests"),
        (
            "scheduled",
            "All requests; a failed one counts as infinitely slow",
        ),
    ],
    &[],
);

const NO_DATA: Kind = Kind::Choice(
    &[
        ("fail", "The objective fails"),
        ("inconclusive", "The objective is inconclusive"),
        ("pass", "The objective is met; the report has a note"),
    ],
    &[],
);

static ABORT: Block = Block {
    doc: "Aborts the case as failed once the limit cannot be met any more, by a sequential test \
    after every request. For quantiles and `max`, `goodput(…)` and shares of requests such as \
    `error_rate`.",
    short: None,
    fields: &[
        field(
            "min_samples",
            Kind::Whole(1, 1_000_000_000),
            "Minimum number of \
        requests before the limit is tested.",
        )
        .default("100")
        .example("200"),
        field(
            "alpha",
            Kind::Number(1e-9, 0.5),
            "Maximum probability that a case is aborted although its limit is met. \
            The rounds of a case share it.",
        )
        .default("0.01")
        .example("0.001"),
    ],
};

static EXPR: Leaf = Leaf {
    expected: "a limit such as `ttft.p95 < 500ms`",
    sweepable: false,
    schema,
    check: check_expr,
};

pub(crate) static SLO: Block = Block {
    doc: "An objective. A plain text is short for `{ expr: … }`.",
    short: Some("expr"),
    fields: &[
        field(
            "expr",
            Kind::Leaf(&EXPR),
            "metric[{tag=value}][.stat] op value unit, or \
        goodput(limits) op percent, or finish{reason}.share op percent, or signal.stat op value \
        unit, as in `server.waiting.max < 10`, or a metric of the server's page by its own name: \
        `server[\"vllm:x\"].rate > 0`. The right side may be `1.10 * baseline`, `0.95 * \
        reference`, or another case of the same run: `1.5 * case(variant=base)`, `2 * \
        case(workload=chat).ttft.p50`.",
        )
        .required_unless("preset")
        .example("ttft.p95 < 500ms"),
        field(
            "when",
            Kind::Map(&Kind::Json),
            "Only for cases with these matrix values, and `hardware.gpu` with the \
        name of the GPUs of the target. A value may be a band (`64..256`, `>= 64`) or \
        a pattern (`MI3*`). `load.stage: 2` is the second stage of a staged load, \
        `all` the whole case; by default a limit applies to the case and to each of \
        its stages.",
        )
        .example("{ load.concurrency: 64 }"),
        field(
            "confidence",
            Kind::Leaf(&CONFIDENCE),
            "Confidence level of the verdict; `point` \
        compares the point estimate.",
        )
        .default("0.95")
        .example("0.99"),
        field("of", OF, "The requests that a quantile is computed from.")
            .default("ok")
            .example("scheduled"),
        field("no_data", NO_DATA, "Verdict without data.")
            .default("fail")
            .example("inconclusive"),
        field(
            "abort",
            Kind::Block(&ABORT),
            "Abort the case once this limit cannot be met any more.",
        )
        .example("{ min_samples: 200 }"),
        field(
            "preset",
            Kind::Text,
            "Named limits instead of `expr`: `mlperf/…`, \
        `reading/silent`, `reading/listening`, `reading/visual`, or one of `presets`. The other \
        keys apply to each of them.",
        )
        .example("mlperf/llama2-70b-interactive"),
        field(
            "words_per_minute",
            Kind::Number(1.0, 10_000.0),
            "With a reading speed: words per \
        minute, instead of the preset's 250, 450 or 700.",
        )
        .example("300"),
        field(
            "tokens_per_word",
            Kind::Number(0.1, 100.0),
            "With a reading speed: tokens per \
        word, 1.5 by default.",
        )
        .example("1.3"),
    ],
};

/// Decodes the limits, with their conditions.
pub(crate) fn decode<'a>(
    root: &'a Node,
    axes: &BTreeSet<String>,
    review: &mut Review,
) -> Vec<Limit<'a>> {
    let items = root.items_at("slo");
    let stage = root.get("load.stages").map(|_| STAGE.to_owned());
    let swept_paths: BTreeSet<String> = axes.iter().cloned().chain(stage).collect();
    items
        .iter()
        .filter_map(|node| decode_limit(node, &swept_paths, review))
        .collect()
}

fn decode_limit<'a>(
    node: &'a Node,
    swept_paths: &BTreeSet<String>,
    review: &mut Review,
) -> Option<Limit<'a>> {
    let expr = node.get("expr")?.string()?;
    let assertion = check::parse(&expr).ok()?;
    let condition = Condition::decode(node, swept_paths, review)?;
    let check = Check {
        expr,
        subject: assertion.subject,
        op: assertion.op,
        limit: assertion.limit,
        relative: assertion.relative,
        confidence: node.read("confidence", confidence)?,
        when: condition.labels.clone(),
        of: if node.get("of")?.text()? == "scheduled" {
            RequestSet::Scheduled
        } else {
            RequestSet::Ok
        },
        no_data: match node.get("no_data")?.text()?.as_ref() {
            "inconclusive" => NoData::Inconclusive,
            "pass" => NoData::Pass,
            _ => NoData::Fail,
        },
        abort: node.read("abort", decode_abort),
        is_default: false,
    };
    if check.relative.is_none() {
        check_abort(node, &check, review);
    }
    check_single_stage(node, &check, review);
    let limit = Limit {
        check,
        condition,
        node,
    };
    relative::check_restrictions(&limit, review);
    Some(limit)
}

fn decode_abort(node: &Node) -> Option<Abort> {
    let min_samples = u64::try_from(node.get("min_samples")?.integer()?).ok()?;
    Some(Abort {
        min_samples,
        alpha: node.get("alpha")?.number()?,
    })
}

/// Reports an `abort` on a limit that cannot fail before the end.
fn check_abort(node: &Node, check: &Check, review: &mut Review) {
    let Some(entry) = node
        .entry_at("abort")
        .filter(|_| check.abort.is_some() && check.allowed().is_none())
    else {
        return;
    };
    let gaps =
        matches!(&check.subject, Subject::Metric { metric, .. } if metric.per() == Scope::Gap);
    let (label, help) = if gaps {
        (
            "the gaps of a request are correlated",
            "Write a limit on `tpot`, or on requests: goodput(itl < 50ms) >= 99%.",
        )
    } else {
        (
            "not a share of requests",
            "It needs a quantile, `max`, `goodput(…)`, or a share of requests such as \
            `error_rate`.",
        )
    };
    let mistake = Mistake::new(entry.key_at, "this limit cannot fail before the end", label);
    review.push(
        mistake
            .also_if(node.get("expr").map(|expr| expr.at), "this one")
            .help(help),
    );
}

/// Reports an `abort` on a limit for a single stage; only limits for whole cases are watched.
fn check_single_stage(node: &Node, check: &Check, review: &mut Review) {
    let one = check
        .when
        .get(STAGE)
        .is_some_and(|stage| *stage != Scalar::Text("all".into()));
    let Some(entry) = node
        .entry_at("abort")
        .filter(|_| check.abort.is_some() && one)
    else {
        return;
    };
    let mistake = Mistake::new(
        entry.key_at,
        "`abort` cannot be used for a single stage",
        "aborts whole cases",
    );
    let mistake = mistake.also_if(node.get("when").map(|when| when.at), "one stage");
    review.push(mistake.help("Remove `abort`, or write `load.stage: all` for the whole case."));
}

/// Assigns limits to the cases that match. Reports limits that no case matches or can measure.
pub(crate) fn assign(
    limits: &[Limit<'_>],
    cases: &mut [Case],
    rounds: u32,
    context: &RelativeContext<'_>,
    review: &mut Review,
) {
    let swept_paths: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| case.labels.0.iter().map(|(path, _)| path.clone()))
        .collect();
    let staged = cases
        .iter()
        .any(|case| !case.load.shape.stages().is_empty())
        .then(|| STAGE.to_owned());
    reference::check_axes(
        context.root,
        &swept_paths.into_iter().chain(staged).collect(),
        review,
    );
    // Cases are copied to inspect their traffic classes and stages; thousands of checks must not be copied each time.
    let mut given: Vec<(Vec<Check>, _)> = cases.iter().map(|_| (Vec::new(), Vec::new())).collect();
    for limit in limits {
        let mut about = false;
        for (case, (checks, stage_checks)) in cases.iter_mut().zip(&mut given) {
            let staged = !case.load.shape.stages().is_empty();
            let all = if staged {
                case.labels.with(STAGE, Scalar::Text("all".into()))
            } else {
                case.labels.clone()
            };
            if limit.condition.is_met(&all, &case.target)
                && !relative::is_own_reference(limit, case, context.cases)
            {
                check_measurable(limit, case, rounds, context.telemetry, review);
                // Each round is tested separately and may abort the case.
                let share = |abort: Abort| Abort {
                    alpha: abort.alpha / f64::from(rounds.max(1)),
                    ..abort
                };
                let check = relative::resolve_limit(limit, case, context, review);
                checks.push(Check {
                    abort: check.abort.map(share),
                    ..check
                });
                about = true;
            }
            if staged {
                let checks_of_stages = assign_stages(limit, case, rounds, context, review);
                about |= checks_of_stages.is_some();
                stage_checks.extend(checks_of_stages.into_iter().flatten());
            }
        }
        if !about {
            match limit.node.entry_at("when") {
                Some(when) => limit.condition.report_unmet(when, cases, review),
                None => relative::report_no_other_case(limit, review),
            }
        }
    }
    for (case, (checks, stage_checks)) in cases.iter_mut().zip(given) {
        case.checks.extend(checks);
        case.stage_checks.extend(stage_checks);
    }
    default_limit::add(context.root, cases);
}

/// The checks of the limit for stages of a case; None where it does not apply to any.
fn assign_stages(
    limit: &Limit<'_>,
    case: &Case,
    rounds: u32,
    context: &RelativeContext<'_>,
    review: &mut Review,
) -> Option<Vec<Check>> {
    // The value of another case is that of all its stages.
    if matches!(&limit.check.relative, Some(relative) if relative.to == ReferenceKind::Case) {
        return None;
    }
    let about: Vec<Case> = case.stages().into_iter().map(|stage| stage.case).collect();
    let about: Vec<Case> = about
        .into_iter()
        .filter(|stage| limit.condition.is_met(&stage.labels, &stage.target))
        .collect();
    // A limit for all stages is reported for the whole case.
    if let Some(stage) = about
        .first()
        .filter(|_| limit.check.when.get(STAGE).is_some())
    {
        check_measurable(limit, stage, rounds, context.telemetry, review);
    }
    (!about.is_empty()).then(|| {
        relative::stage_checks(limit, &about, context, review)
            .into_iter()
            .collect()
    })
}

fn check_expr(node: &Node, review: &mut Review) {
    let Some(text) = node.text() else {
        return expect(node, EXPR.expected, "", review);
    };
    if let Err(error) = check::parse(&text) {
        let at = review.sources.part(node, &text, error.range.clone());
        review.push(error.into_mistake(at));
    }
}

fn schema() -> serde_json::Value {
    serde_json::json!({ "type": "string", "pattern": "^\\s*[a-z_]+.*[<>=].*$" })
}

/// Limits on TTFT and TPOT at p99 in milliseconds, from the server and interactive scenarios of MLPerf Inference.
const MLPERF: [(&str, u32, u32); 11] = [
    ("mlperf/llama2-70b-server", 2000, 200),
    ("mlperf/llama2-70b-interactive", 450, 40),
    ("mlperf/llama3.1-405b-server", 6000, 175),
    ("mlperf/llama3.1-405b-interactive", 4500, 80),
    ("mlperf/llama3.1-8b-server", 2000, 100),
    ("mlperf/llama3.1-8b-interactive", 500, 30),
    ("mlperf/mixtral-8x7b-server", 2000, 200),
    ("mlperf/deepseek-r1-server", 2000, 80),
    ("mlperf/deepseek-r1-interactive", 1500, 15),
    ("mlperf/gpt-oss-120b-server", 3000, 80),
    ("mlperf/gpt-oss-120b-interactive", 2000, 15),
];

/// Words per minute; no token may be later than the reader needs it.
const READING: [(&str, f64); 3] = [
    ("reading/silent", 250.0),
    ("reading/listening", 450.0),
    ("reading/visual", 700.0),
];
/// Default number of tokens of an English word.
const TOKENS_PER_WORD: f64 = 1.5;
/// Keys that apply to reading speeds only.
const PACE: [&str; 2] = ["words_per_minute", "tokens_per_word"];

/// Replaces presets in `slo` by their limits, appends the limits of mix entries, and removes `presets`.
pub(crate) fn expand(root: &mut Node, review: &mut Review) {
    let presets = root.remove("presets");
    let presets = presets
        .as_ref()
        .map(|entry| entry.value.entries())
        .unwrap_or_default();
    let of_entries = take_entry_limits(root);
    let slo = root.entry_at("slo").cloned();
    let first = slo.as_ref().or(of_entries.first().map(|(_, entry)| entry));
    let Some((key_at, at)) = first.map(|entry| (entry.key_at, entry.value.at)) else {
        return;
    };
    let written = slo.as_ref().map_or(&[][..], |slo| slo.value.items());
    if slo
        .as_ref()
        .is_some_and(|slo| !matches!(slo.value.data, Data::List(_)))
    {
        return;
    }
    review.section = "slo".to_owned();
    let mut items: Vec<Node> = written
        .iter()
        .flat_map(|item| expand_item(item, presets, review))
        .collect();
    review.section = "mix".to_owned();
    for (name, limits) in &of_entries {
        for item in limits.value.items() {
            let expanded = expand_item(item, presets, review);
            items.extend(
                expanded
                    .into_iter()
                    .filter_map(|limit| with_group(limit, name, review)),
            );
        }
    }
    root.set("slo", key_at, Node::new(at, Data::List(items)));
    review.section.clear();
}

/// Removes the limits of the entries of `mix`, each with the name of its entry.
fn take_entry_limits(root: &mut Node) -> Vec<(String, Entry)> {
    let Some(mix) = root.entry_mut("mix") else {
        return Vec::new();
    };
    let Data::List(items) = &mut mix.value.data else {
        return Vec::new();
    };
    let limits = items.iter_mut().filter_map(|item| {
        let name = item.get("name")?.string()?;
        Some((name, item.remove("slo")?))
    });
    limits.collect()
}

/// A limit of a mix entry, with the tag of its group. Reports one that cannot have the tag.
fn with_group(mut limit: Node, name: &str, review: &mut Review) -> Option<Node> {
    let expr = limit.get("expr")?;
    let at = expr.at;
    let text = expr.string()?;
    // Errors of its syntax were reported.
    let subject = check::parse(&text).ok()?.subject;
    let tag = format!("group={name}");
    let (name, tags) = match &subject {
        Subject::Metric { metric, tags, .. } => (metric.name(), tags),
        Subject::Finish { tags, .. } => (FINISH, tags),
        Subject::Goodput(_) | Subject::Signal { .. } | Subject::PageMetric(_) => {
            return report_without_tags(at, review);
        }
    };
    if tags.iter().any(|(tag, _)| tag == "group") {
        let mistake = Mistake::new(at, "a limit of an entry has its own group", "names a group");
        review.push(mistake.help(format!("Remove the tag: it is `{tag}`.")));
        return None;
    }
    let (head, rest) = text.trim_start().split_at(name.len());
    let text = match rest.trim_start().strip_prefix('{') {
        Some(tags) => format!("{head}{{{tag},{tags}"),
        None => format!("{head}{{{tag}}}{rest}"),
    };
    limit.set("expr", at, Node::new(at, Data::Text(text)));
    Some(limit)
}

/// Reports a limit of a mix entry that is about no requests of its own.
fn report_without_tags(at: Span, review: &mut Review) -> Option<Node> {
    let mistake = Mistake::new(
        at,
        "a limit of an entry needs a metric of its requests",
        "has no tags",
    );
    review.push(mistake.help("Write it into the top-level `slo`, where it is for all entries."));
    None
}

fn expand_item(item: &Node, presets: &[Entry], review: &mut Review) -> Vec<Node> {
    let Some(preset) = item.entry_at("preset") else {
        if let Some(entry) = PACE.iter().find_map(|key| item.entry_at(key)) {
            report_pace_key(entry, review);
        }
        return vec![item.clone()];
    };
    if let Some(expr) = item.entry_at("expr") {
        let mistake = Mistake::new(
            expr.key_at,
            "a limit is an `expr` or a `preset`",
            "both are here",
        );
        review.push(
            mistake
                .also(preset.key_at, "the other one")
                .help("Write two items."),
        );
        return Vec::new();
    }
    let Some(name) = preset.value.text() else {
        return Vec::new();
    };
    let at = preset.value.at;
    let reading = READING.iter().find(|(reading, _)| *reading == name);
    if reading.is_none()
        && let Some(entry) = PACE.iter().find_map(|key| item.entry_at(key))
    {
        report_pace_key(entry, review);
    }
    if let Some(user) = presets.iter().find(|entry| entry.key == name) {
        return user
            .value
            .items()
            .iter()
            .filter_map(|limit| inherit_limit(limit, item, review))
            .collect();
    }
    let mlperf = MLPERF.iter().find(|(preset, ..)| *preset == name);
    let exprs = match (mlperf, reading) {
        (Some((_, ttft, tpot)), _) => vec![
            format!("ttft.p99 <= {ttft}ms"),
            format!("tpot.p99 <= {tpot}ms"),
        ],
        (None, Some((_, words))) => vec![reading_limit(item, *words)],
        (None, None) => {
            review.push(unknown_preset(at, &name, presets));
            return Vec::new();
        }
    };
    exprs
        .into_iter()
        .map(|expr| replace_preset(item, expr, at))
        .collect()
}

/// TPOT = 60 s / (words per minute × tokens per word), in tenths of a millisecond.
fn reading_limit(item: &Node, words: f64) -> String {
    let value_or = |key: &str, usual: f64| item.get(key).and_then(Node::number).unwrap_or(usual);
    let tpot = 60_000.0 / (value_or(PACE[0], words) * value_or(PACE[1], TOKENS_PER_WORD));
    format!("tpot.p95 <= {}ms", (tpot * 10.0).round() / 10.0)
}

/// The item with a limit in place of the preset.
fn replace_preset(item: &Node, expr: String, at: Span) -> Node {
    let keep = |entry: &&Entry| entry.key != "preset" && !PACE.contains(&entry.key.as_str());
    let expr = Entry {
        key: "expr".to_owned(),
        key_at: at,
        value: Node::new(at, Data::Text(expr)),
    };
    let entries = std::iter::once(expr)
        .chain(item.entries().iter().filter(keep).cloned())
        .collect();
    Node {
        data: Data::Map(entries),
        ..item.clone()
    }
}

/// A limit of a user's preset, overridden by keys of the item.
fn inherit_limit(limit: &Node, item: &Node, review: &mut Review) -> Option<Node> {
    if let Some(inner) = limit.entry_at("preset") {
        let mistake = Mistake::new(
            inner.key_at,
            "a preset inside a preset",
            "presets contain limits only",
        );
        review.push(mistake.help("List both presets in `slo`, one item each."));
        return None;
    }
    let mut made = limit.clone();
    for entry in item
        .entries()
        .iter()
        .filter(|entry| entry.key != "preset" && !PACE.contains(&entry.key.as_str()))
    {
        made.set_key(&entry.key, entry.key_at, entry.value.clone());
    }
    Some(made)
}

fn report_pace_key(entry: &Entry, review: &mut Review) {
    let mistake = Mistake::new(
        entry.key_at,
        format!("`{}` without a reading speed", entry.key),
        "needs `preset: reading/…`",
    );
    review.push(mistake.help(format!(
        "Reading speeds are {}.",
        list(READING.iter().map(|(name, _)| *name), "and")
    )));
}

fn unknown_preset(at: Span, name: &str, presets: &[Entry]) -> Mistake {
    let tools = MLPERF
        .iter()
        .map(|(name, ..)| *name)
        .chain(READING.iter().map(|(name, _)| *name));
    let names: Vec<&str> = presets
        .iter()
        .map(|entry| entry.key.as_str())
        .chain(tools)
        .collect();
    let label = meant_or(nearest(name, names.iter().copied()), "does not exist");
    let help = format!(
        "Presets are {}. Define your own in `presets`.",
        list(names.iter().copied(), "and")
    );
    Mistake::new(at, format!("unknown preset `{name}`"), label).help(help)
}
