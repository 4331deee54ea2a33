//! What a report says: every number in place, nothing left to compute but its form.

use crate::check::{Ruling, Verdict};
use crate::early_stop::{Aborted, Saturated};
use crate::local::LocalPart;
use crate::manifest::Manifest;
use crate::metric::Metric;
use crate::outcome::FailureKind;
use crate::plan::{AuditLimits, Labels, STAGE};
use crate::sample::{Counts, Distribution};
use crate::search::SearchReport;
use crate::target::{ServerEnd, Startup};
use crate::telemetry::Telemetry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a reason begins that lies in the run's course and not in the tool's speed.
pub const OFF_PLAN: &str = "the run did not happen as planned: ";

/// How a reason begins where prompts that are unique in the run came from the server's cache.
pub const CACHED: &str = "the server answered from its prefix cache: ";

/// One objective as measured, and at both ends of what the load generator's stalls and delays leave open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveAudit {
    /// The objective.
    pub expr: String,
    /// Verdict on the values as measured.
    pub measured: Ruling,
    /// With the server as slow as the measurement allows; None where nothing of it was late.
    pub slow: Option<Ruling>,
    /// With the server as fast as the measurement allows; None in the same case.
    pub fast: Option<Ruling>,
    /// The observed values of the three.
    pub observed: [Option<f64>; 3],
    /// Why its verdict is INVALID; empty where it stands.
    pub reasons: Vec<String>,
}

/// The self-audit of one case over its rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Whether every value of the case is the server's; where not, some verdicts may stand.
    pub valid: bool,
    /// Schedule lag, milliseconds.
    pub schedule_lag_ms_p50: Option<f64>,
    /// Schedule lag, milliseconds.
    pub schedule_lag_ms_p99: Option<f64>,
    /// Schedule lag, milliseconds.
    pub schedule_lag_ms_max: Option<f64>,
    /// Achieved over offered rate; None for a closed loop.
    pub achieved_over_offered: Option<f64>,
    /// Ticker lateness at p99, worst round.
    pub stall_ms_p99: Option<f64>,
    /// Ticker lateness at most.
    pub stall_ms_max: Option<f64>,
    /// Stalls of 1 ms or more, over all worker threads and rounds; None of an earlier run.
    pub stalls: Option<u64>,
    /// Share of the time in which a worker thread was stalled: the worst worker and round.
    pub stalled: Option<f64>,
    /// Mean lateness at a random instant, milliseconds: of the same.
    pub frozen_ms: Option<f64>,
    /// Share of their time that the users of a closed loop waited for the load generator; None for an open loop.
    pub idle: Option<f64>,
    /// Share of the prompt tokens that came from the server's cache; None where the server does not report it.
    pub cached: Option<f64>,
    /// The same of prompts that the plan calls unique, without what all prompts begin with.
    pub cached_unique: Option<f64>,
    /// What shows why the load generator was late.
    pub cause: Option<String>,
    /// The objectives, in the order of the verdicts; empty where nothing can be said of a single one.
    pub objectives: Vec<ObjectiveAudit>,
    /// Busiest worker's share of a core.
    pub cpu_share_max: Option<f64>,
    /// Resident memory of the tool at its highest, bytes.
    pub memory_peak: Option<u64>,
    /// Token events per second.
    pub events_per_s: Option<f64>,
    /// Bytes received per second.
    pub bytes_in_per_s: Option<f64>,
    /// Bytes sent per second.
    pub bytes_out_per_s: Option<f64>,
    /// Arrivals that found no room.
    pub dropped: u64,
    /// Why not every value is the server's; empty where they all are.
    pub reasons: Vec<String>,
}

/// Values over the time of one round: `(seconds since its start, value)`.
pub type Series = Vec<(f64, f64)>;

/// What the charts over time draw; the first round of the case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timelines {
    /// Requests in flight, as steps.
    pub in_flight: Series,
    /// Output tokens per second, in equal bins.
    pub output_tps: Series,
    /// TTFT in ms of each ok request, at its intended time, in order.
    pub ttft_ms: Series,
    /// Failed requests, at the time they ended; the value is 1.
    pub failures: Series,
    /// Where measuring began and ended, seconds.
    pub measured: (f64, f64),
    /// From where to where the plateau was, seconds: the first and the last instant of the steady state.
    pub steady: Option<(f64, f64)>,
}

/// One kind of failure with an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureExample {
    /// Kind.
    pub kind: FailureKind,
    /// How often.
    pub count: u64,
    /// HTTP status of the first one, where one came; in results.json its words begin with it.
    #[serde(skip)]
    pub status: Option<u16>,
    /// Words of the first one.
    pub message: String,
    /// Where it happened.
    pub at: String,
}

/// Where a token count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The server's usage.
    Usage,
    /// A local tokenizer.
    Tokenizer,
    /// Content events counted: a lower bound, printed with `~`.
    Events,
}

/// One part of a case: an entry of its mix, or a part of its dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupReport {
    /// Its name: an entry, a prompt length, a prefix.
    pub name: String,
    /// Whether it is an entry of a mix.
    pub entry: bool,
    /// Requests scheduled.
    pub scheduled: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Figures of the part alone, over the windows of the case; absent ones do not exist.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions of the metrics that are shown of a group and exist.
    pub distributions: BTreeMap<Metric, Distribution>,
}

/// Prompt lengths of one case: as its requests were made, and as the server counted them. Over ok requests with both counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptLengths {
    /// Requests.
    pub n: u64,
    /// Mean tokens by this side's tokenizer, chat template included where it has one.
    pub requested_mean: f64,
    /// Mean tokens in the server's usage.
    pub reported_mean: f64,
    /// The built-in approximate tokenizer counted for this side.
    pub approximate: bool,
}

impl PromptLengths {
    /// By which share of the requested length the server counted more; below 0 fewer.
    pub fn difference(&self) -> f64 {
        self.reported_mean / self.requested_mean.max(1.0) - 1.0
    }
}

/// Where a dataset ended a case before its load did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetEnd {
    /// Measured requests by then, over all rounds; a conversation counts once.
    pub after: u64,
    /// The number that `load.requests` sets for these rounds; None where it sets none.
    pub planned: Option<u64>,
}

impl fmt::Display for DatasetEnd {
    /// `the dataset ended after 209 of 100000 requests`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.planned.map(|planned| format!(" of {planned}")).unwrap_or_default();
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
    /// Tokens generated over the whole wait of a request, prefill included: the mean of its requests, tokens per second.
    pub tokens_per_second: Option<f64>,
    /// Memory at its highest over the batches of this length, bytes; None where it is not known.
    pub memory: Option<u64>,
    /// That is the device's, and not this process's.
    pub of_device: bool,
}

/// The start of an open loop that was not measured, over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    /// Requests.
    pub requests: u64,
    /// Seconds of their schedule.
    pub seconds: f64,
}

/// Everything that is said about one case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseReport {
    /// Case id.
    pub id: String,
    /// Swept values.
    pub labels: Labels,
    /// The load in words: `concurrency 16`, `8/s poisson`, `burst`.
    pub load: String,
    /// The load as a number for the horizontal axis: users, or arrivals per second; None for a burst.
    pub load_value: Option<f64>,
    /// `concurrency` or `rate`, the meaning of `load_value`.
    pub load_axis: &'static str,
    /// Rounds that ran.
    pub rounds: u32,
    /// Whether there are several, each on a start of the managed server of its own.
    pub restarted: bool,
    /// Counts.
    pub counts: Counts,
    /// Case-level metrics; absent ones do not exist.
    pub scalars: BTreeMap<Metric, f64>,
    /// Distributions; absent ones do not exist.
    pub distributions: BTreeMap<Metric, Distribution>,
    /// `(value, share)` points of the CDFs that are drawn, at most a few hundred each.
    pub cdfs: BTreeMap<Metric, Series>,
    /// Its parts: the entries of its mix, and the parts of its dataset.
    pub groups: Vec<GroupReport>,
    /// What its rounds say about each other, and neighbouring requests about theirs.
    pub repeats: Vec<Repeat>,
    /// Source of the output token counts; None where no request succeeded.
    pub token_source: Option<TokenSource>,
    /// Prompt lengths as requested and as counted by the server; None where one of the two is not known.
    pub prompt_lengths: Option<PromptLengths>,
    /// Where the dataset ended it before its load did, if so.
    pub dataset_end: Option<DatasetEnd>,
    /// The start that was not measured, if so.
    pub discarded: Option<Discarded>,
    /// Self-audit.
    pub audit: Audit,
    /// The limit by whose loss it was given up, if so.
    pub aborted: Option<Aborted>,
    /// Where the server fell behind and the sending was stopped for it, if so: the first round's of those.
    pub saturated: Option<Saturated>,
    /// Rulings.
    pub verdicts: Vec<Verdict>,
    /// Whether its objectives are those of its stages, or of the case that it is a stage of.
    pub judged_elsewhere: bool,
    /// One example per kind of failure, most frequent first.
    pub failures: Vec<FailureExample>,
    /// Over time.
    pub timelines: Timelines,
    /// What was sampled beside its requests.
    pub telemetry: Telemetry,
    /// How the server came up, each time that it was started for this case.
    pub startups: Vec<Startup>,
    /// How the server ended by itself, with the round.
    pub server_ends: Vec<(u32, ServerEnd)>,
    /// What a model in this process did, round by round.
    pub local: Vec<LocalPart>,
    /// The speeds of a `speed_benchmark`, by prompt length; empty of other data.
    pub speed: Vec<SpeedRow>,
    /// What else is drawn of it.
    pub pictures: Pictures,
    /// Why values are missing or doubtful.
    pub notes: Vec<String>,
}

impl CaseReport {
    /// Whether it is a stage of the case before it, whose requests are counted there too.
    pub fn is_stage(&self) -> bool {
        self.labels.get(STAGE).is_some()
    }

    /// Whether one of its verdicts is INVALID, or its values are where nothing is judged by them.
    pub fn is_invalid(&self) -> bool {
        let by_verdict = || self.verdicts.iter().any(|verdict| verdict.ruling == Ruling::Invalid);
        if self.verdicts.is_empty() { !self.audit.valid && !self.judged_elsewhere } else { by_verdict() }
    }

    /// Where its dataset ended before the requests that the scenario wants.
    pub fn unreached(&self) -> Option<DatasetEnd> {
        self.dataset_end.filter(|end| end.planned.is_some())
    }
}

/// The verdict on the whole run; the order of severity is that of the exit codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// Every limit holds, or there was none.
    #[default]
    Pass,
    /// A limit is broken.
    Fail,
    /// Too few samples for some limit.
    Inconclusive,
    /// Some measurement is not sound.
    Invalid,
    /// The run could not be carried out.
    Error,
}

/// A whole report.
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
    /// The cases, in plan order; of a search, those that it probed.
    pub cases: Vec<CaseReport>,
    /// What the searches found.
    pub searches: Vec<SearchReport>,
    /// What to do about failed requests: a sentence for each cause.
    pub hints: Vec<String>,
    /// What the self-audits accept.
    pub audit: AuditLimits,
}

/// A change with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// From the first to the last of what was compared, as a share of the mean: 0.1 grew by a tenth.
    pub share: f64,
    /// Two-sided probability of an order at least so clear by chance (Mann and Kendall).
    pub p_value: f64,
    /// Rounds, or stretches of all rounds together, that were compared.
    pub n: u64,
}

/// One figure over the rounds of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// The figure: the mean of a per-request metric, or a figure that a case has one of.
    pub metric: Metric,
    /// The figure of each round, in their order and the metric's unit; None for a round without it.
    pub rounds: Vec<Option<f64>>,
    /// Standard deviation between the rounds. Of a per-request metric what their own spread does not explain; else of `rounds`
    /// themselves. None for fewer than two rounds.
    pub between_sd: Option<f64>,
    /// Standard deviation within the rounds; None where the figure is not one of requests.
    pub within_sd: Option<f64>,
    /// From round to round; None for fewer than three.
    pub over_rounds: Option<Change>,
    /// From the beginning to the end of a round, over all rounds; None where the requests are too few, where the figure is not one
    /// of requests, or where the load itself changes.
    pub over_time: Option<Change>,
    /// Requests behind it.
    pub n: u64,
    /// Independent requests that these are worth, since neighbours are alike; None where the figure is not one of requests.
    pub effective_n: Option<f64>,
}

impl Repeat {
    /// A change between rounds is reported from this probability on, and one within rounds from half of it on: five rounds in order
    /// have 1/60, and four can never be distinguished from chance.
    pub const SURE: (f64, f64) = (0.02, 0.01);
    /// A change of less than this share is not reported, however sure it is.
    pub const LEAST: f64 = 0.02;
    /// Effective samples under this share of n are reported, from so many requests on: of fewer, chance would too often look so.
    pub const FEW: (f64, u64) = (0.5, 200);

    /// The change from round to round, where it is to be reported.
    pub fn drifts(&self) -> Option<Change> {
        self.over_rounds.filter(|change| change.told(Repeat::SURE.0))
    }

    /// The change within the rounds, where it is to be reported.
    pub fn creeps(&self) -> Option<Change> {
        self.over_time.filter(|change| change.told(Repeat::SURE.1))
    }

    /// What the requests are worth, where that is to be reported.
    pub fn few(&self) -> Option<f64> {
        self.effective_n.filter(|worth| self.n >= Repeat::FEW.1 && *worth < Repeat::FEW.0 * self.n as f64)
    }
}

impl Change {
    fn told(&self, sure: f64) -> bool {
        self.p_value <= sure && self.share.abs() >= Repeat::LEAST
    }
}

/// The pictures of one case, as numbers. All rows are measured ones; none of them grows with the number of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// The percentile spectrum of TTFT, ITL, TPOT, NTPOT and E2E: `(share, quantile)`, shares 0..1 ever denser towards 1,
    /// quantiles by nearest rank, the last point the maximum at `1 - 1/n`. Over ok rows.
    pub spectra: BTreeMap<Metric, Series>,
    /// Where the E2E latencies of ok requests lay over time, by when each was due; the first round.
    pub heat: Option<Heat>,
    /// Gaps between tokens by the place of the token in its reply, ascending.
    pub by_token: Vec<Band>,
    /// `(prompt tokens, service TTFT in ms)` of ok requests, at most a few thousand of them, evenly picked.
    pub prefill: Series,
    /// Single requests in the order in which they were due, at most a few hundred, evenly picked.
    pub waterfall: Vec<Bar>,
}

/// A histogram of a latency in each interval of time: the heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// Edges of the columns, seconds since the start of the round, ascending; one more than columns.
    pub times: Vec<f64>,
    /// Edges of the rows in milliseconds, ascending, equal steps of their logarithm; one more than rows.
    pub levels: Vec<f64>,
    /// Requests in each cell, column by column: `counts[column][row]`.
    pub counts: Vec<Vec<u32>>,
}

/// Quantiles of what lies in one step of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Band {
    /// From this place on; tokens are counted from 1, so the first gap is that before token 2.
    pub from: f64,
    /// To this place, itself included.
    pub to: f64,
    /// Values in it.
    pub n: u64,
    /// Quantiles in the metric's unit.
    pub p50: f64,
    /// Likewise.
    pub p90: f64,
    /// Likewise.
    pub p99: f64,
}

/// One request in time, seconds since the start of its round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its number.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// When it was due.
    pub intended: f64,
    /// When it was sent; None: never.
    pub sent: Option<f64>,
    /// Its first token.
    pub first_token: Option<f64>,
    /// Its end.
    pub end: f64,
    /// How it failed, if so.
    pub failure: Option<FailureKind>,
}
