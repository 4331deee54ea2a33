//! Whether a case can measure what a limit is about.

use crate::check::FINISH;
use crate::fault::{Mistake, Review};
use crate::sections::slo::limit::{Limit, word_span};
use crate::suggest::{list, meant_or, nearest};
use llmscen_core::api::Api;
use llmscen_core::check::{Subject, parse_turns};
use llmscen_core::dataset::Source;
use llmscen_core::expect::Expect;
use llmscen_core::metric::{Metric, Requires, Scope};
use llmscen_core::plan::Case;
use llmscen_core::requested_length::RequestedLength;
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{Hardware, TelemetrySpec};
use llmscen_requests::render;
use std::collections::BTreeSet;

/// Reports metrics, tags and signals that a case cannot have.
pub(super) fn check_measurable(
    limit: &Limit<'_>,
    case: &Case,
    rounds: u32,
    spec: &TelemetrySpec,
    review: &mut Review,
) {
    check_subject(limit, &limit.check.subject, case, rounds, spec, review);
    let same_case = limit.check.relative.as_ref().and_then(|relative| {
        let reference = relative.case.as_ref()?;
        reference
            .subject
            .as_ref()
            .filter(|_| reference.is_same_case())
    });
    if let Some(subject) = same_case {
        check_subject(limit, subject, case, rounds, spec, review);
    }
}

fn check_subject(
    limit: &Limit<'_>,
    subject: &Subject,
    case: &Case,
    rounds: u32,
    spec: &TelemetrySpec,
    review: &mut Review,
) {
    let metrics: Vec<Metric> = match subject {
        Subject::Metric { metric, .. } => vec![*metric],
        Subject::Goodput(limits) => limits.iter().map(|limit| limit.metric).collect(),
        Subject::Finish { .. } => {
            check_finish(limit, case, review);
            Vec::new()
        }
        Subject::Signal { signal, role, .. } => {
            let why = why_unsampled(*signal, case, spec);
            report_unsampled(limit, signal.name(), why, case, review);
            if let Some(role) = role.as_ref().filter(|_| why.is_none()) {
                check_role(limit, role, case.target.roles(), review);
            }
            return;
        }
        Subject::PageMetric(series) => {
            let why = case.target.metrics.is_empty().then_some(NO_PAGE);
            report_unsampled(limit, &series.name, why, case, review);
            let role = series.labels.iter().find(|(label, _)| label == "role");
            // Without roles in the scenario, it is a label of the page.
            if let Some((_, role)) = role.filter(|_| {
                case.target
                    .metrics
                    .iter()
                    .any(|source| source.role.is_some())
            }) {
                let sources = case.target.metrics.iter();
                let roles = sources.filter_map(|source| source.role.as_deref());
                check_role(limit, role, roles.collect(), review);
            }
            return;
        }
    };
    let tags = subject.tags();
    tags.iter()
        .for_each(|(tag, value)| check_tag(limit, case, tag, value, rounds, review));
    let lines = case.classes_for_group(subject.tag("group"));
    for metric in metrics {
        if !tags.is_empty() {
            check_tags(limit, metric, review);
        }
        if let Some((because, remedy)) = missing_reason(metric, &lines, spec) {
            let at = word_span(limit, metric.name(), review);
            let others = Metric::ALL.iter().filter(|other| {
                other.per() == metric.per() && missing_reason(**other, &lines, spec).is_none()
            });
            let exist = list(others.map(|other| other.name()), "and");
            let mistake = Mistake::new(
                at,
                format!("`{metric}` is not available: {because}"),
                format!("{} has none", case_name(case)),
            );
            review.push(mistake.help(format!(
                "{remedy}, or restrict the limit with `when`. Available: {exist}."
            )));
        }
    }
}

/// Reports a share of finish reasons for replies that have none.
fn check_finish(limit: &Limit<'_>, case: &Case, review: &mut Review) {
    if !case.target.api.generates() {
        let at = word_span(limit, FINISH, review);
        let message = "`finish` is not available: the API generates no text";
        let label = format!("{} has none", case_name(case));
        review.push(
            Mistake::new(at, message, label).help("Remove the limit, or restrict it with `when`."),
        );
    }
}

/// Reports a role that is none of these; of built-in signals only pages have roles, not queries.
fn check_role(limit: &Limit<'_>, role: &str, roles: BTreeSet<&str>, review: &mut Review) {
    if roles.contains(role) {
        return;
    }
    let at = word_span(limit, role, review);
    let label = meant_or(nearest(role, roles.iter().copied()), "does not exist");
    let mistake = Mistake::new(
        at,
        format!("`{role}` is not a role of `target.metrics`"),
        label,
    );
    review.push(mistake.help(match roles.len() {
        0 => "Set `role` at the pages of `target.metrics`.".to_owned(),
        _ => format!("Roles are {}.", list(roles, "and")),
    }));
}

/// Whether a metric of a case can be restricted by tags.
fn is_taggable(metric: Metric) -> bool {
    metric.is_rate() || metric.is_request_share() || metric == Metric::OutputTpsPerUser
}

/// Reports a tag on a metric that only the whole case has.
fn check_tags(limit: &Limit<'_>, metric: Metric, review: &mut Review) {
    if metric.per() == Scope::Case && !is_taggable(metric) {
        let at = word_span(limit, metric.name(), review);
        let mistake = Mistake::new(
            at,
            format!("`{metric}` is a metric of the whole case"),
            "has no tags",
        );
        let taggable = list(
            Metric::ALL
                .iter()
                .filter(|metric| is_taggable(**metric))
                .map(|metric| metric.name()),
            "and",
        );
        review.push(mistake.help(format!(
            "Tags can be used with metrics of single requests, and with {taggable}."
        )));
    }
}

/// Why no traffic class of a case has a metric.
fn missing_reason(
    metric: Metric,
    lines: &[Case],
    spec: &TelemetrySpec,
) -> Option<(&'static str, &'static str)> {
    let reasons: Option<Vec<_>> = lines
        .iter()
        .map(|line| case_lacks(metric, line, spec))
        .collect();
    reasons?.first().copied()
}

pub(super) fn case_name(case: &Case) -> String {
    if case.labels.0.is_empty() {
        "this scenario".to_owned()
    } else {
        format!("case {}", case.id)
    }
}

/// Metrics of generated text, streamed or not.
const GENERATED: [Metric; 14] = [
    Metric::CostPerMillionOutputTokens,
    Metric::OutputTokens,
    Metric::BilledTokens,
    Metric::HiddenTokens,
    Metric::ReplacementShare,
    Metric::BilledTps,
    Metric::ReasoningTokens,
    Metric::Ntpot,
    Metric::OutputTpsPerRequest,
    Metric::TotalTpsPerRequest,
    Metric::OutputTps,
    Metric::OutputTpsPerUser,
    Metric::OutputTpsPerGpu,
    Metric::OutputTpsWithDrain,
];

fn case_lacks(
    metric: Metric,
    case: &Case,
    spec: &TelemetrySpec,
) -> Option<(&'static str, &'static str)> {
    let generates = case.target.api.generates();
    match metric.needs() {
        _ if !generates
            && (matches!(metric.needs(), Requires::Stream | Requires::Reasoning)
                || GENERATED.contains(&metric)) =>
        {
            Some(("the API generates no text", "Take another metric"))
        }
        Requires::Stream | Requires::Reasoning if !render::streams(&case.request) => {
            Some(("responses are not streamed", "Set `request.stream: true`"))
        }
        Requires::Gpus if case.target.gpus.is_none() => {
            Some(("the number of GPUs is not known", "Set `target.gpus`"))
        }
        Requires::OpenLoop if case.load.shape.is_closed_loop() => {
            Some(("a closed loop has no offered rate", "Set `load.rate`"))
        }
        Requires::ManagedServer if case.target.server.is_none() => {
            Some(("the run does not start a server", "Set `target.server`"))
        }
        Requires::Turns if case.dataset.turns.is_none() => {
            Some(("there are no conversations", "Set `dataset.turns`"))
        }
        Requires::Turns
            if metric == Metric::SessionsPerHourPerGpu && case.target.gpus.is_none() =>
        {
            Some(("the number of GPUs is not known", "Set `target.gpus`"))
        }
        Requires::Tokenizer if case.dataset.tokenizer.is_none() => {
            Some(("prompt tokens are not counted", "Set `dataset.tokenizer`"))
        }
        Requires::OutputTokenizer if case.dataset.tokenizer.is_none() => {
            Some(("output tokens are not counted", "Set `dataset.tokenizer`"))
        }
        Requires::Items if generates || case.target.api == Api::OpenaiSpeech => Some((
            "a request has one input",
            "Use `api: openai-embeddings`, `rerank` or `openai-images`",
        )),
        Requires::AudioOutput if !case.target.api.speaks() => Some((
            "responses are no audio",
            "Use `api: openai-speech` or `api: openai-realtime`",
        )),
        Requires::Audio
            if !case.target.api.speaks() && !matches!(case.dataset.source, Source::Audio(_)) =>
        {
            Some((
                "requests have no audio",
                "Use `dataset.kind: audio` or `api: openai-speech`",
            ))
        }
        Requires::Power if !samples_gpus(case, spec) => {
            Some(("GPUs are not sampled", "Use the default `telemetry`"))
        }
        Requires::KeptHeaders if case.target.keep_headers.is_empty() => Some((
            "no response header is kept",
            "List the header that names the replica in `target.keep_headers`",
        )),
        Requires::Held if !case.load.holds() => Some((
            "no request is held",
            "Set `load.max_in_flight: { of: 32, then: hold }`",
        )),
        Requires::Endpoints if case.target.endpoint_names().is_empty() => Some((
            "the target has one URL",
            "List several URLs in `target.url`",
        )),
        Requires::Cost if case.target.cost_per_second().is_none() => {
            Some(("the price of the target is not known", "Set `target.cost`"))
        }
        Requires::Cost
            if metric == Metric::CostPerThousandSessions && case.dataset.turns.is_none() =>
        {
            Some(("there are no conversations", "Set `dataset.turns`"))
        }
        Requires::AnswerFormat if !expects(case, Expect::checks_format) => Some((
            "no check of the answers' format",
            "Set `request.expect`, for example `json_schema` or `repetition`",
        )),
        Requires::AnswerTruth if !expects(case, Expect::checks_truth) => Some((
            "answers are not compared with a truth",
            "Set `request.expect`, for example `contains: item.answer`",
        )),
        Requires::AnswerLength
            if !expects(case, |expect| expect.exact_length)
                && case.requested_length(None) != Some(RequestedLength::Exact) =>
        {
            Some((
                "requests ask for no exact length",
                "Set `request.ignore_eos: true` and `max_tokens`, or \
                `request.expect.length: exact`",
            ))
        }
        Requires::Hardware => missing_hardware(metric, case.target.hardware.as_ref()),
        _ => None,
    }
}

fn expects(case: &Case, has: impl Fn(&Expect) -> bool) -> bool {
    case.request.expect.as_ref().is_some_and(has)
}

/// The missing hardware parameter of MFU or MBU.
fn missing_hardware(
    metric: Metric,
    hardware: Option<&Hardware>,
) -> Option<(&'static str, &'static str)> {
    match hardware {
        None => Some((
            "the peak hardware throughput is not known",
            "Set `target.hardware`",
        )),
        Some(hardware) if metric == Metric::Mfu && hardware.peak_flops.is_none() => Some((
            "the peak throughput of the GPUs is not known",
            "Set `target.hardware.peak_flops`",
        )),
        Some(hardware) if metric == Metric::Mbu && hardware.peak_bandwidth.is_none() => Some((
            "the peak memory bandwidth of the GPUs is not known",
            "Set `target.hardware.peak_bandwidth`",
        )),
        Some(_) => None,
    }
}

fn check_tag(
    limit: &Limit<'_>,
    case: &Case,
    tag: &str,
    value: &str,
    rounds: u32,
    review: &mut Review,
) {
    let (known, exist) = match tag {
        "model" => {
            let names: Vec<&str> = case
                .target
                .models
                .iter()
                .map(|model| model.name.as_str())
                .collect();
            (
                names.contains(&value),
                format!("Models are {}.", list(names, "and")),
            )
        }
        "turn" => (
            parse_turns(value).is_some() && case.has_conversations(),
            "With `dataset.turns`, turns are `first`, `later`, a number from 1, or a \
            range such as `3..10` or `20..`."
                .to_owned(),
        ),
        "endpoint" => {
            let names: Vec<&str> = case
                .target
                .endpoint_names()
                .iter()
                .map(|name| &**name)
                .collect();
            let exist = if names.is_empty() {
                "The target has one URL, which has no name. List several in `target.url`."
                    .to_owned()
            } else {
                format!("Endpoints are {}.", list(names.iter().copied(), "and"))
            };
            (names.contains(&value), exist)
        }
        header if header.contains('-') => {
            let kept = &case.target.keep_headers;
            if kept.iter().any(|name| name.eq_ignore_ascii_case(header)) {
                return;
            }
            let at = word_span(limit, header, review);
            let label = meant_or(
                nearest(header, kept.iter().map(String::as_str)),
                "is not kept",
            );
            let mistake = Mistake::new(at, format!("unknown tag `{header}`"), label);
            review.push(
                mistake.help("A response header is a tag if `target.keep_headers` lists it."),
            );
            return;
        }
        "group" if case.mix.is_empty() => match (&case.dataset.source, &case.dataset.group) {
            // Groups in the data are not known yet.
            (_, Some(_)) | (Source::SpeedBenchmark { .. }, _) => return,
            (Source::Prefix { groups, .. }, None) => (
                (value
                    .strip_prefix("prefix-")
                    .and_then(|group| group.parse().ok()))
                .is_some_and(|group: u64| group < *groups && value == format!("prefix-{group}")),
                format!(
                    "Groups are prefix-0 to prefix-{}.",
                    groups.saturating_sub(1)
                ),
            ),
            _ => (
                false,
                "A request has a group with a `mix`, `kind: prefix`, or rows with \
                `dataset.group`."
                    .to_owned(),
            ),
        },
        "group" => {
            let names = case.mix.iter().map(|entry| entry.name.as_str());
            (
                case.entry_for_group(Some(value)).is_some(),
                format!("Entries are {}.", list(names, "and")),
            )
        }
        _ => (
            value.parse::<u32>().is_ok_and(|round| round < rounds),
            format!("Rounds are 0 to {}.", rounds.saturating_sub(1)),
        ),
    };
    if !known {
        let at = word_span(limit, value, review);
        review.push(
            Mistake::new(
                at,
                format!("unknown {tag} `{value}`"),
                format!("{} has none", case_name(case)),
            )
            .help(exist),
        );
    }
}

/// Reports a signal, or a metric of the page, that is not sampled: `why`, and the remedy.
fn report_unsampled(
    limit: &Limit<'_>,
    name: &str,
    why: Option<(&'static str, &'static str)>,
    case: &Case,
    review: &mut Review,
) {
    let Some((because, remedy)) = why else {
        return;
    };
    let at = word_span(limit, name, review);
    let mistake = Mistake::new(
        at,
        format!("`{name}` is not available: {because}"),
        format!("{} has none", case_name(case)),
    );
    review.push(mistake.help(format!("{remedy}, or restrict the limit with `when`.")));
}

const NO_PAGE: (&str, &str) = ("no metrics endpoint is configured", "Set `target.metrics`");

/// Why a signal is not sampled, and the remedy.
fn why_unsampled(
    signal: Signal,
    case: &Case,
    spec: &TelemetrySpec,
) -> Option<(&'static str, &'static str)> {
    let target = &case.target;
    match signal.scope() {
        "server" if target.pages().next().is_none() => Some(NO_PAGE),
        "process" if target.server.is_none() => {
            Some(("the run does not start a server", "Set `target.server`"))
        }
        "gpu" if signal == Signal::GpuMemoryServer && target.server.is_none() => {
            Some(("the run does not start a server", "Set `target.server`"))
        }
        "gpu"
            if signal == Signal::GpuMemoryServer
                && !(spec.gpu && spec.host && spec.dcgm.is_none() && is_sampling(spec)) =>
        {
            Some((
                "it needs NVIDIA's library and sampled processes",
                "Use the default `telemetry`",
            ))
        }
        "gpu" if !samples_gpus(case, spec) => {
            Some(("GPUs are not sampled", "Use the default `telemetry`"))
        }
        "host" | "tool" | "process" if !(spec.host && is_sampling(spec)) => {
            Some(("the host is not sampled", "Use the default `telemetry`"))
        }
        _ => None,
    }
}

fn is_sampling(spec: &TelemetrySpec) -> bool {
    spec.interval.0 > 0
}

/// Whether GPUs are sampled, by a driver or an exporter.
pub(super) fn samples_gpus(case: &Case, spec: &TelemetrySpec) -> bool {
    (spec.gpu || spec.dcgm.is_some()) && is_sampling(spec) || case.target.pages().next().is_some()
}
