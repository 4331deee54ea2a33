//! The data of a report: all computed values, ready for rendering.

use crate::check::{Ruling, Verdict};
use crate::early_stop::{Aborted, Saturated};
use crate::expect::AnswerCheck;
use crate::label::{Labels, STAGE};
use crate::local::LocalRound;
use crate::manifest::Manifest;
use crate::metric::Metric;
use crate::outcome::{AnomalyKind, FailureKind};
use crate::plan::AuditLimits;
use crate::sample::{Counts, SummaryStatistics};
use crate::search::SearchReport;
use crate::signal::Signal;
use crate::target::{ServerEnd, Startup};
use crate::telemetry::{OtherStat, SignalStat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What makes a measurement invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The course of the run, not the speed of the load generator.
    OffPlan,
    /// Unique prompts that the server's cache answered.
    PrefixCache,
    /// Repeated prompts that a cache answered.
    AnswerCache,
    /// Engines or workers that no request reached.
    IdleServer,
    /// This process had no file or port for its connections.
    NoFiles,
    /// The load generator.
    LoadGenerator,
}

impl Cause {
    /// How a reason with this cause begins.
    pub fn prefix(self) -> &'static str {
        match self {
            Cause::OffPlan => "the run did not happen as planned: ",
            Cause::PrefixCache => "the server answered from its prefix cache: ",
            Cause::AnswerCache => "the server answered repeated prompts from a cache: ",
            Cause::IdleServer => "a part of the server was idle: ",
            Cause::NoFiles | Cause::LoadGenerator => "",
        }
    }

    /// A reason with this cause.
    pub fn reason(self, what: impl fmt::Display) -> InvalidReason {
        InvalidReason {
            cause: self,
            text: format!("{}{what}", self.prefix()),
        }
    }
}

/// Why a verdict, a case or a shard is invalid. In a file it is its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct InvalidReason {
    /// The cause.
    pub cause: Cause,
    text: String,
}

impl InvalidReason {
    /// The reason as a text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The texts of reasons, separated by semicolons.
    pub fn joined(reasons: &[InvalidReason]) -> String {
        let texts: Vec<&str> = reasons.iter().map(InvalidReason::text).collect();
        texts.join("; ")
    }

    /// The reason without the prefix of its cause.
    pub fn what(&self) -> &str {
        self.text
            .strip_prefix(self.cause.prefix())
            .unwrap_or(&self.text)
    }
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<InvalidReason> for String {
    fn from(reason: InvalidReason) -> String {
        reason.text
    }
}

/// One objective as measured, and at both ends of the uncertainty from stalls and delays of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectiveAudit {
    /// The objective.
    pub expr: String,
    /// Verdict on the measured values.
    pub measured: Ruling,
    /// Verdict if the server was as slow as the measurement allows; None if nothing was late.
    pub slow: Option<Ruling>,
    /// Verdict if the server was as fast as the measurement allows; None if nothing was late.
    pub fast: Option<Ruling>,
    /// Observed values for the three verdicts.
    pub observed: [Option<f64>; 3],
    /// Why the verdict is INVALID; empty if it is valid.
    pub reasons: Vec<InvalidReason>,
}

/// The self-audit of one case over its rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Audit {
    /// Whether every value of the case is that of the server. If not, some verdicts may still be valid.
    pub valid: bool,
    /// Send delay, milliseconds.
    pub schedule_lag_ms_p50: Option<f64>,
    /// Send delay, milliseconds.
    pub schedule_lag_ms_p99: Option<f64>,
    /// Send delay, milliseconds.
    pub schedule_lag_ms_max: Option<f64>,
    /// Achieved ÷ offered rate; None for a closed loop.
    pub achieved_over_offered: Option<f64>,
    /// p99 of the event-loop stalls in the worst round, milliseconds.
    pub stall_ms_p99: Option<f64>,
    /// Maximum event-loop stall, milliseconds.
    pub stall_ms_max: Option<f64>,
    /// Stalls of 1 ms or more, over all worker threads and rounds; None in older runs.
    pub stalls: Option<u64>,
    /// Share of time in which a worker thread was stalled, in the worst worker and round.
    pub stalled: Option<f64>,
    /// Mean lateness at a random instant in the worst worker and round, milliseconds.
    pub frozen_ms: Option<f64>,
    /// Share of time that users of a closed loop waited for the load generator; None for an open loop.
    pub idle: Option<f64>,
    /// Share of the prompt tokens from the server's prefix cache; None if the server does not report it.
    pub cached: Option<f64>,
    /// The same for prompts that are unique in the plan, without the prefix that all prompts share.
    pub cached_unique: Option<f64>,
    /// The likely cause of send delays.
    pub cause: Option<String>,
    /// The objectives, in the order of the verdicts; empty if they cannot be audited individually.
    pub objectives: Vec<ObjectiveAudit>,
    /// CPU share of the busiest worker thread, of one core.
    pub cpu_share_max: Option<f64>,
    /// Peak resident memory of the load generator, bytes.
    pub memory_peak: Option<u64>,
    /// Token events per second.
    pub events_per_s: Option<f64>,
    /// Bytes received per second.
    pub bytes_in_per_s: Option<f64>,
    /// Bytes sent per second.
    pub bytes_out_per_s: Option<f64>,
    /// Arrivals dropped at `max_in_flight`.
    pub dropped: u64,
    /// Arrivals held at `max_in_flight`.
    #[serde(default)]
    pub held: u64,
    /// Why some values are not those of the server; empty if all are.
    pub reasons: Vec<InvalidReason>,
}

/// What one shard of a distributed run contributed to a case, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShardRecord {
    /// Number of the shard, from 0.
    pub index: u32,
    /// Name of its host.
    pub host: String,
    /// Its measured requests, dropped ones included.
    pub requests: u64,
    /// Those that succeeded.
    pub ok: u64,
    /// Those that were dropped at its share of `max_in_flight`.
    pub dropped: u64,
    /// p99 of its send delays, milliseconds.
    pub send_delay_ms_p99: Option<f64>,
    /// p99 of its event-loop stalls in the worst round, milliseconds.
    pub stall_ms_p99: Option<f64>,
    /// CPU share of its busiest worker thread, of one core.
    pub cpu_share: Option<f64>,
    /// Its clock minus that of shard 0, as far as known, milliseconds.
    pub offset_ms: f64,
    /// Bound on the error of `offset_ms`, milliseconds.
    pub bound_ms: f64,
    /// Source of the offset: `boot id`, `kernel` or `exchange`.
    pub offset_source: String,
    /// Whether it sent nothing in a round, because it read time zero too late.
    pub late: bool,
    /// Median TTFT of its successful requests, milliseconds.
    pub ttft_ms_p50: Option<f64>,
    /// p99 of that, milliseconds.
    pub ttft_ms_p99: Option<f64>,
    /// Why the values of the case are not those of the server; empty if this shard is not the reason.
    pub reasons: Vec<InvalidReason>,
}

impl ShardRecord {
    /// `shard 5 (host-b)`
    pub fn name(&self) -> String {
        match self.host.as_str() {
            "" => format!("shard {}", self.index),
            host => format!("shard {} ({host})", self.index),
        }
    }

    /// How far its requests may be from their scheduled times by the clock of shard 0, milliseconds. The start is
    /// corrected by an offset that exceeds its bound.
    pub fn skew_ms(&self) -> f64 {
        let uncorrected = if self.offset_ms.abs() <= self.bound_ms {
            self.offset_ms.abs()
        } else {
            0.0
        };
        uncorrected + self.bound_ms
    }
}

/// Values over the time of one round: `(seconds since its start, value)`.
pub type Series = Vec<(f64, f64)>;

/// Data of the charts over time, for the first round of the case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timelines {
    /// Requests in flight, as a step function.
    pub in_flight: Series,
    /// Output tokens per second, in equal bins.
    pub output_tps: Series,
    /// TTFT in ms of each ok request, at its scheduled time, in order.
    pub ttft_ms: Series,
    /// Failed requests, at the time they ended; the value is 1.
    pub failures: Series,
    /// Begin and end of measuring, seconds.
    pub measured: (f64, f64),
    /// Begin and end of the steady state, seconds.
    pub steady: Option<(f64, f64)>,
}

/// One kind of failure with an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureExample {
    /// Kind.
    pub kind: FailureKind,
    /// Number of failures.
    pub count: u64,
    /// HTTP status of the first one, if any; in results.json it is part of the message.
    #[serde(skip)]
    pub status: Option<u16>,
    /// Message of the first one.
    pub message: String,
    /// The phase in which it happened.
    pub at: String,
}

/// What the checks of the answers of one case found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AnswersReport {
    /// The shares that have checked answers, in the order of [`Metric::ANSWERS`].
    pub shares: Vec<AnswerShare>,
    /// The first failed check of each answer, most frequent first, each with the reason of its first answer.
    pub failed_checks: Vec<FailedCheckCount>,
    /// The failed answers whose text is stored, in the order of the requests.
    pub failed_answers: Vec<FailedAnswer>,
}

/// How many answers passed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AnswerShare {
    /// The share.
    pub metric: Metric,
    /// Answers that passed.
    pub passed: u64,
    /// Answers that were checked.
    pub checked: u64,
}

/// One kind of failed check with an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedCheckCount {
    /// The check.
    pub check: AnswerCheck,
    /// Answers for which it was the first check that failed.
    pub count: u64,
    /// Reason of the first one.
    pub reason: String,
}

/// A failed answer with its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedAnswer {
    /// Round, from 0.
    pub round: u32,
    /// Request number in the case, warm-up included.
    pub seq: u64,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// The group within the dataset or mix, if there are several.
    pub group: Option<String>,
    /// The first check that failed.
    pub check: AnswerCheck,
    /// Why.
    pub reason: String,
    /// The text of the answer and its tool calls, secrets removed, at most 64 KiB.
    pub text: String,
}

/// Where a token count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The usage reported by the server.
    Usage,
    /// A local tokenizer.
    Tokenizer,
    /// The number of content events: a lower bound, printed with `~`.
    Events,
}

/// What the replies of a case consist of, over the measured ones that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplyAccount {
    /// Number of replies.
    pub replies: u64,
    /// By the source of their count of output tokens.
    pub sources: BTreeMap<TokenSource, u64>,
    /// Reasoning tokens that the server billed and did not send.
    pub hidden_tokens: u64,
    /// Replies with such tokens.
    pub replies_with_hidden: u64,
    /// Replies of reasoning without any answer.
    pub reasoning_alone: u64,
    /// Replies of several tokens that arrived in one read.
    pub one_read: u64,
    /// Replies whose text has fewer tokens than token events arrived.
    pub more_events_than_tokens: u64,
    /// What was not as the API describes it.
    pub anomalies: BTreeMap<AnomalyKind, AnomalyCount>,
}

impl ReplyAccount {
    /// Whether the server counted all replies, and all is as the API describes it.
    pub fn is_plain(&self) -> bool {
        self.sources
            .keys()
            .all(|source| *source == TokenSource::Usage)
            && self.anomalies.is_empty()
            && self.replies_with_hidden + self.reasoning_alone + self.one_read == 0
    }
}

/// Replies with one kind of anomaly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnomalyCount {
    /// Number of replies.
    pub replies: u64,
    /// The largest value that the server reported; 0 for kinds that have none.
    pub largest: u64,
}

/// One group of requests of a case: a traffic class of its mix, a group of its dataset, or a URL of its target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupReport {
    /// Name: a traffic class, a prompt length, a prefix, host and port.
    pub name: String,
    /// Whether it is a traffic class of a mix.
    pub entry: bool,
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Case-level metrics of the group over the windows of the case; undefined ones are absent.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions of the metrics that are shown per group; undefined ones are absent.
    pub distributions: BTreeMap<Metric, SummaryStatistics>,
}

/// Prompt lengths of one case, as requested and as counted by the server. Over ok requests with both counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptLengths {
    /// Number of requests.
    pub n: u64,
    /// Mean tokens by the local tokenizer, including its chat template.
    pub requested_mean: f64,
    /// Mean tokens in the server's usage.
    pub reported_mean: f64,
    /// The local tokenizer is the built-in approximate one.
    pub approximate: bool,
}

impl PromptLengths {
    /// Relative difference of the server's count to the requested length; positive: the server counted more.
    pub fn difference(&self) -> f64 {
        self.reported_mean / self.requested_mean.max(1.0) - 1.0
    }
}

/// Output lengths of one case, as requested and as received. Over ok requests that ask for a length and have a count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputLengths {
    /// Number of requests.
    pub n: u64,
    /// Mean of the tokens that the requests ask for.
    pub requested_mean: f64,
    /// Mean of the tokens of the replies.
    pub received_mean: f64,
    /// Whether requests ask for a minimum only.
    pub is_minimum: bool,
    /// Replies that are shorter than requested.
    pub shorter: u64,
}

impl OutputLengths {
    /// Share of shorter replies above which reports have a note and a finding.
    const MAX_SHORTER: f64 = 0.05;

    /// Whether the server seems to ignore the requested length.
    pub fn are_ignored(&self) -> bool {
        self.shorter as f64 > Self::MAX_SHORTER * self.n as f64
    }
}

/// How many replies ended for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishReasonCount {
    /// The reason as the server sent it; empty where it sent none.
    pub reason: String,
    /// Replies.
    pub count: u64,
}

/// A dataset that was exhausted before the load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetEnd {
    /// Measured requests until then, over all rounds; a conversation counts once.
    pub after: u64,
    /// The number of requests set by `load.requests` for these rounds; None if not set.
    pub planned: Option<u64>,
}

impl fmt::Display for DatasetEnd {
    /// `the dataset ended after 209 of 100000 requests`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self
            .planned
            .map(|planned| format!(" of {planned}"))
            .unwrap_or_default();
        write!(f, "the dataset ended after {}{of} requests", self.after)
    }
}

/// One prompt length of a `speed_benchmark`, as model cards state it.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedRow {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Output tokens per second of request time, prefill included; mean over the requests.
    pub tokens_per_second: Option<f64>,
    /// Peak memory over the batches of this length, bytes; None if unknown.
    pub memory: Option<u64>,
    /// `memory` is that of the device, not of this process.
    pub device_memory: bool,
}

/// The initial part of an open loop that was not measured, over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    /// Number of requests.
    pub requests: u64,
    /// Length of their schedule, seconds.
    pub seconds: f64,
}

/// A worker of the target over the measured windows, as far as its metrics page exports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerReport {
    /// Its role.
    pub role: Option<String>,
    /// Host and port of its page.
    pub worker: String,
    /// Prompt tokens from the start of the windows on.
    pub prompt_tokens: Option<f64>,
    /// Generated tokens from the start of the windows on.
    pub generated_tokens: Option<f64>,
    /// Mean number of requests that it processes.
    pub running_mean: Option<f64>,
    /// Maximum number of requests that wait.
    pub waiting_max: Option<f64>,
    /// Maximum share of its KV cache in use.
    pub kv_cache_max: Option<f64>,
}

/// The workers of one role over the measured windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RoleReport {
    /// The role; None: the workers without one.
    pub role: Option<String>,
    /// Number of workers.
    pub workers: u64,
    /// Their GPUs.
    pub gpus: Option<u32>,
    /// Prompt tokens per second.
    pub prompt_tps: Option<f64>,
    /// Generated tokens per second.
    pub output_tps: Option<f64>,
    /// Prompt tokens per second and GPU.
    pub input_tps_per_gpu: Option<f64>,
    /// Generated tokens per second and GPU.
    pub output_tps_per_gpu: Option<f64>,
    /// Maximum ÷ mean of the prompt tokens of the workers.
    pub prompt_imbalance: Option<f64>,
    /// Maximum ÷ mean of the generated tokens of the workers.
    pub output_imbalance: Option<f64>,
    /// Joules per successful request of the case.
    pub energy_per_request: Option<f64>,
    /// Joules per prompt token.
    pub energy_per_prompt_token: Option<f64>,
    /// Joules per generated token.
    pub energy_per_output_token: Option<f64>,
}

/// The telemetry of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// The available signals.
    pub signals: BTreeMap<Signal, SignalStat>,
    /// Samples of the first round as `(seconds since its start, value)`. Histograms have none.
    pub series: BTreeMap<Signal, Series>,
    /// Metrics without a common name, by name with labels.
    pub others: BTreeMap<String, OtherStat>,
    /// The workers, by role; empty for a single metrics page.
    pub workers: Vec<WorkerReport>,
    /// The roles of the workers.
    pub roles: Vec<RoleReport>,
    /// Why expected telemetry is missing.
    pub notes: Vec<String>,
}

/// The results of one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseReport {
    /// Case id.
    pub id: String,
    /// Swept values.
    pub labels: Labels,
    /// The load as text: `concurrency 16`, `8/s poisson`, `burst`.
    pub load: String,
    /// The load as a number for chart axes: users, or arrivals per second; None for a burst.
    pub load_value: Option<f64>,
    /// The quantity of `load_value`: `concurrency` or `rate`.
    pub load_axis: &'static str,
    /// Number of rounds.
    pub rounds: u32,
    /// Whether there are several rounds, each on a separate start of the managed server.
    pub restarted: bool,
    /// Counts.
    pub counts: Counts,
    /// Case-level metrics; undefined ones are absent.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions; undefined ones are absent.
    pub distributions: BTreeMap<Metric, SummaryStatistics>,
    /// `(value, cumulative share)` points of the CDF charts, at most a few hundred each.
    pub cdfs: BTreeMap<Metric, Series>,
    /// Its groups: traffic classes of its mix, and groups of its dataset.
    pub groups: Vec<GroupReport>,
    /// The URLs of its target, if there are several.
    pub endpoints: Vec<GroupReport>,
    /// The values of the kept response headers, each named `header: value`.
    pub headers: Vec<GroupReport>,
    /// Variation between and within its rounds, per metric.
    pub repeats: Vec<RoundVariance>,
    /// Source of the output token counts; None if no request succeeded.
    pub token_source: Option<TokenSource>,
    /// What its replies consist of.
    pub account: ReplyAccount,
    /// Prompt lengths as requested and as counted by the server; None if one of them is unknown.
    pub prompt_lengths: Option<PromptLengths>,
    /// Output lengths as requested and as received; None if no request asks for a length.
    pub output_lengths: Option<OutputLengths>,
    /// Replies by finish reason, most frequent first; empty if the server sent none.
    pub finish_reasons: Vec<FinishReasonCount>,
    /// Set if the dataset was exhausted before the load ended.
    pub dataset_end: Option<DatasetEnd>,
    /// The initial part that was not measured, if any.
    pub discarded: Option<Discarded>,
    /// Throughputs are over the whole rounds, because sending was not steady for long enough.
    pub throughput_is_whole: bool,
    /// Self-audit.
    pub audit: Audit,
    /// The shards of a distributed run, by number; empty for a run of one process.
    pub shards: Vec<ShardRecord>,
    /// p-value of the test whether the TTFT depends on the shard; None where it is not tested.
    pub shards_p_value: Option<f64>,
    /// The failed objective that aborted it, if any.
    pub aborted: Option<Aborted>,
    /// Set if sending was stopped because the server fell behind: the first such round.
    pub saturated: Option<Saturated>,
    /// Verdicts.
    pub verdicts: Vec<Verdict>,
    /// Whether its objectives are evaluated on its stages, or on the case that it is a stage of.
    pub judged_elsewhere: bool,
    /// One example per kind of failure, most frequent first.
    pub failures: Vec<FailureExample>,
    /// What the checks of its answers found; None if none were checked.
    pub answers: Option<AnswersReport>,
    /// Data of the charts over time.
    pub timelines: Timelines,
    /// Telemetry.
    pub telemetry: Telemetry,
    /// Every startup of the managed server for this case.
    pub startups: Vec<Startup>,
    /// Unexpected exits of the managed server, with the round.
    pub server_ends: Vec<(u32, ServerEnd)>,
    /// Records of the local model, by round.
    pub local: Vec<LocalRound>,
    /// Results of a `speed_benchmark`, by prompt length; empty for other datasets.
    pub speed: Vec<SpeedRow>,
    /// Data of further charts.
    pub chart_data: ChartData,
    /// Notes on missing or uncertain values.
    pub notes: Vec<String>,
}

impl CaseReport {
    /// Whether it is a stage of the preceding case, whose counts include its requests.
    pub fn is_stage(&self) -> bool {
        self.labels.get(STAGE).is_some()
    }

    /// Whether one of its verdicts is INVALID, or, without objectives, the self-audit failed.
    pub fn is_invalid(&self) -> bool {
        let by_verdict = || {
            self.verdicts
                .iter()
                .any(|verdict| verdict.ruling == Ruling::Invalid)
        };
        if self.verdicts.is_empty() {
            !self.audit.valid && !self.judged_elsewhere
        } else {
            by_verdict()
        }
    }

    /// Set if the dataset was exhausted before the planned number of requests.
    pub fn dataset_shortfall(&self) -> Option<DatasetEnd> {
        self.dataset_end.filter(|end| end.planned.is_some())
    }
}

/// The verdict of the run; severity follows the exit codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// Every objective passed, or there were none.
    #[default]
    Pass,
    /// An objective failed.
    Fail,
    /// Too few samples for some objective.
    Inconclusive,
    /// The self-audit rejected some measurement.
    Invalid,
    /// The run failed.
    Error,
}

/// The report of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The scenario's description.
    pub description: Option<String>,
    /// The run.
    pub manifest: Manifest,
    /// Verdict.
    pub verdict: RunVerdict,
    /// Exit code of the run.
    pub exit_code: u8,
    /// The cases, in plan order; for a search, those that it probed.
    pub cases: Vec<CaseReport>,
    /// Results of the capacity searches.
    pub searches: Vec<SearchReport>,
    /// Hints about failed requests, one per cause.
    pub hints: Vec<String>,
    /// Thresholds of the self-audits.
    pub audit: AuditLimits,
}

/// A trend over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Change from first to last, relative to the mean: 0.1 is an increase by 10 %.
    pub share: f64,
    /// Two-sided p-value of the Mann-Kendall test.
    pub p_value: f64,
    /// Number of rounds, or of time bins over all rounds, that were compared.
    pub n: u64,
}

/// Variation of one metric between and within the rounds of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundVariance {
    /// The metric: the mean of a per-request metric, or a case-level metric.
    pub metric: Metric,
    /// The value of each round, in order and in the metric's unit; None for a round without it.
    pub rounds: Vec<Option<f64>>,
    /// Standard deviation between the rounds: for a per-request metric, the part that the variation within rounds
    /// does not explain; otherwise that of `rounds`. None for fewer than two rounds.
    pub between_sd: Option<f64>,
    /// Standard deviation within the rounds; None for a case-level metric.
    pub within_sd: Option<f64>,
    /// Trend from round to round; None for fewer than three rounds.
    pub over_rounds: Option<Change>,
    /// Trend within the rounds, over all rounds; None for too few requests, a case-level metric, or a load that
    /// changes.
    pub over_time: Option<Change>,
    /// Number of requests.
    pub n: u64,
    /// Effective sample size, since consecutive requests are correlated; None for a case-level metric.
    pub effective_n: Option<f64>,
}

impl RoundVariance {
    /// Maximum p-value of a reported trend between rounds. Five rounds in order have p = 1/60; four can never
    /// be significant.
    pub const MAX_ROUND_P_VALUE: f64 = 0.02;
    /// Maximum p-value of a reported trend within rounds.
    pub const MAX_TIME_P_VALUE: f64 = 0.01;
    /// Minimum relative size of a reported trend.
    pub const LEAST: f64 = 0.02;
    /// An effective sample size below this share of n is reported, from this number of requests on; with fewer it
    /// would often be chance.
    pub const FEW: (f64, u64) = (0.5, 200);

    /// The trend between rounds, if it is to be reported.
    pub fn reported_round_trend(&self) -> Option<Change> {
        self.over_rounds
            .filter(|change| change.is_reported(RoundVariance::MAX_ROUND_P_VALUE))
    }

    /// The trend within the rounds, if it is to be reported.
    pub fn reported_time_trend(&self) -> Option<Change> {
        self.over_time
            .filter(|change| change.is_reported(RoundVariance::MAX_TIME_P_VALUE))
    }

    /// The effective sample size, if it is to be reported.
    pub fn reported_effective_n(&self) -> Option<f64> {
        self.effective_n.filter(|effective_n| {
            self.n >= RoundVariance::FEW.1 && *effective_n < RoundVariance::FEW.0 * self.n as f64
        })
    }
}

impl Change {
    /// Whether a trend is significant and large enough to be reported.
    pub fn is_reported(&self, max_p_value: f64) -> bool {
        self.p_value <= max_p_value && self.share.abs() >= RoundVariance::LEAST
    }
}

/// Data of the charts of one case, over measured requests. Its size is bounded, independent of the number of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartData {
    /// Percentile plots of TTFT, ITL, TPOT, NTPOT and E2E over ok requests: `(share, quantile)`, shares 0..1 denser
    /// towards 1, quantiles by nearest rank; the last point is the maximum at `1 - 1/n`.
    pub spectra: BTreeMap<Metric, Series>,
    /// E2E latencies of ok requests over their scheduled time, first round.
    pub heat: Option<HeatMap>,
    /// Gaps between tokens by output position, ascending.
    pub by_token: Vec<QuantileBand>,
    /// `(prompt tokens, service TTFT in ms)` of ok requests, an even selection of at most a few thousand.
    pub prefill: Series,
    /// Request timeline, in scheduled order: an even selection of at most a few hundred requests.
    pub waterfall: Vec<TimelineBar>,
}

/// A heat map: a latency histogram per time interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeatMap {
    /// Column edges, seconds since the start of the round, ascending; one more than columns.
    pub times: Vec<f64>,
    /// Row edges in milliseconds, ascending, evenly spaced on a logarithmic scale; one more than rows.
    pub levels: Vec<f64>,
    /// Number of requests per cell: `counts[column][row]`.
    pub counts: Vec<Vec<u32>>,
}

/// Quantiles of the values in one interval of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuantileBand {
    /// First output position; tokens are counted from 1, so the first gap is that before token 2.
    pub from: f64,
    /// Last output position, inclusive.
    pub to: f64,
    /// Number of values.
    pub n: u64,
    /// Median, in the metric's unit.
    pub p50: f64,
    /// 90th percentile, in the metric's unit.
    pub p90: f64,
    /// 99th percentile, in the metric's unit.
    pub p99: f64,
}

/// One request of the timeline; times in seconds since the start of its round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimelineBar {
    /// Request number.
    pub seq: u64,
    /// Turn, from 0.
    pub turn: u32,
    /// Scheduled send time.
    pub intended: f64,
    /// Send time; None: never sent.
    pub sent: Option<f64>,
    /// First token.
    pub first_token: Option<f64>,
    /// End.
    pub end: f64,
    /// Failure kind, if it failed.
    pub failure: Option<FailureKind>,
}
