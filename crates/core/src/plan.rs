//! The plan: a compiled scenario as a list of cases, each with the labels of its sweep.

use crate::api_key::ApiKey;
use crate::artifacts::{Bodies, ExportFormat, Store, Trackers};
use crate::check::Check;
use crate::dataset::{DatasetSpec, TraceSpec};
use crate::hooks::Hooks;
use crate::label::{Labels, STAGE, Scalar};
use crate::load::{Load, Shape, Warmup};
use crate::mix::{EntryLoad, MixEntry, is_in_group};
use crate::redact::{DISTINCT, Redactor, Secret};
use crate::request::RequestSpec;
use crate::search::{CapacitySearch, HalvingSpec, groups};
use crate::seed::Seed;
use crate::stage::six_digits;
use crate::target::{ManagedServer, Restart, Target};
use crate::telemetry::TelemetrySpec;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Thresholds of the self-audit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditLimits {
    /// Send delays are ignored if their p99 is at most this.
    pub lag_p99: Nanos,
    /// Minimum share of the offered rate that must be achieved.
    pub achieved: f64,
    /// Maximum share of a core that a worker thread may use.
    pub cpu: f64,
    /// Stalls of a worker thread of at most this length are ignored.
    pub stall_p99: Nanos,
    /// Maximum share of time that users of a closed loop may wait for the load generator.
    pub idle: f64,
    /// Maximum share of time that a worker thread may be stalled.
    pub stalled: f64,
    /// Maximum share of the tokens of unique prompts that may come from the server's prefix cache.
    pub cache: f64,
    /// Maximum skew between the clocks of the shards of a distributed run; None: it is reported only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<Nanos>,
    /// Prompts are repeated on purpose: answers from a cache are what is measured.
    #[serde(default)]
    pub repeats_wanted: bool,
}

impl Default for AuditLimits {
    fn default() -> AuditLimits {
        let accepted = Nanos::from_millis(1);
        AuditLimits {
            lag_p99: accepted,
            achieved: 0.98,
            cpu: 0.90,
            stall_p99: accepted,
            idle: 0.10,
            stalled: 0.05,
            cache: 0.01,
            skew: None,
            repeats_wanted: false,
        }
    }
}

/// A report format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// report.md
    Md,
    /// report.html
    Html,
    /// charts/*.png
    Png,
    /// charts/*.svg
    Svg,
    /// junit.xml
    Junit,
    /// cases.csv
    Csv,
    /// results.json; always written
    Json,
}

/// Which reports are written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportSpec {
    /// Formats; results.json and requests.parquet are always written.
    pub formats: Vec<Format>,
    /// Parent folder of the run folders.
    pub dir: String,
    /// Formats of the per-request records; includes SQLite if bodies are stored.
    pub store: Vec<Store>,
    /// Which bodies are stored.
    pub bodies: Bodies,
    /// Result file formats of other tools to write as well.
    pub compat: Vec<ExportFormat>,
    /// Trackers that the run is uploaded to.
    pub track: Trackers,
}

/// A baseline file or run folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineFile {
    /// Path.
    pub path: String,
    /// The text of the baseline, copied to the run folder; None if the file no longer exists.
    pub text: Option<String>,
}

/// A separate trace file with arrival times.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The file.
    pub path: String,
    /// How it is read.
    pub spec: TraceSpec,
}

/// One point of the sweep: one target, one workload, one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Stable, readable, unique in the plan: `concurrency=16,max_tokens=128`; `base` without a matrix.
    pub id: String,
    /// Swept values.
    pub labels: Labels,
    /// The server under test.
    pub target: Target,
    /// The request; for a mix, that of its first traffic class.
    pub request: RequestSpec,
    /// The prompts; for a mix, those of its first traffic class.
    pub dataset: DatasetSpec,
    /// The traffic classes of a mix; empty: no mix.
    pub mix: Vec<MixEntry>,
    /// The load.
    pub load: Load,
    /// Actions around its rounds.
    pub hooks: Hooks,
    /// The file of `load.trace`; None: a replay uses the arrivals of the dataset.
    pub trace: Option<TraceFile>,
    /// The objectives of this case.
    pub checks: Vec<Check>,
    /// The objectives of its stages, selected by their `when`.
    pub stage_checks: Vec<Check>,
}

/// One stage of a case: reported as a separate case, but not run separately.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSlice {
    /// The stage as a case: id `ID/stage=2`, with its label, load and objectives.
    pub case: Case,
    /// Its requests are those scheduled at or after this …
    pub from: Nanos,
    /// … and before this.
    pub until: Nanos,
}

impl Case {
    /// The stages that send requests, in order. Pauses and stages after the end of `duration` are left out.
    pub fn stages(&self) -> Vec<StageSlice> {
        let start = match self.load.warmup {
            Warmup::Span(span) => Some(span),
            Warmup::Requests(0) => Some(Nanos::ZERO),
            Warmup::Requests(_) => None,
        };
        let cut = self.load.sending_end(start).unwrap_or_default();
        let reached = self
            .load
            .shape
            .stages()
            .into_iter()
            .enumerate()
            .take_while(|(_, (from, _))| *from < cut);
        reached
            .filter_map(|(index, (from, until))| {
                Some(StageSlice {
                    case: self.stage(index)?,
                    from,
                    until: until.min(cut),
                })
            })
            .collect()
    }

    fn stage(&self, index: usize) -> Option<Case> {
        let shape = self
            .load
            .shape
            .stage(index)
            .filter(|shape| !shape.is_pause())?;
        let labels = self.labels.with(STAGE, Scalar::Int(index as i64 + 1));
        let applies = |check: &&Check| labels.covers(&check.when);
        let checks = self.stage_checks.iter().filter(applies).cloned().collect();
        let load = Load {
            shape,
            requests: None,
            duration: None,
            warmup: Warmup::Requests(0),
            ..self.load.clone()
        };
        let id = format!("{}/stage={}", self.id, index + 1);
        Some(Case {
            id,
            labels,
            load,
            checks,
            stage_checks: Vec::new(),
            ..self.clone()
        })
    }

    /// Each traffic class as a case without a mix; a case without a mix yields itself.
    pub fn traffic_classes(&self) -> Vec<Case> {
        if self.mix.is_empty() {
            return vec![self.clone()];
        }
        let line = |entry: &MixEntry| Case {
            request: entry.request.clone(),
            dataset: entry.dataset.clone(),
            mix: Vec::new(),
            ..self.clone()
        };
        self.mix.iter().map(line).collect()
    }

    /// The traffic classes that a group may belong to: the one that it names, or all of them.
    pub fn classes_for_group(&self, group: Option<&str>) -> Vec<Case> {
        let index = self
            .entry_for_group(group)
            .and_then(|found| self.mix.iter().position(|entry| entry.name == found.name));
        match index {
            Some(index) => self
                .traffic_classes()
                .into_iter()
                .skip(index)
                .take(1)
                .collect(),
            None => self.traffic_classes(),
        }
    }

    /// The traffic class that a group belongs to.
    pub fn entry_for_group(&self, group: Option<&str>) -> Option<&MixEntry> {
        self.mix
            .iter()
            .find(|entry| group.is_some_and(|group| is_in_group(group, &entry.name)))
    }

    /// The request settings of a group.
    pub fn request_for_group(&self, group: Option<&str>) -> &RequestSpec {
        self.entry_for_group(group)
            .map_or(&self.request, |entry| &entry.request)
    }

    /// The dataset of a group.
    pub fn dataset_for_group(&self, group: Option<&str>) -> &DatasetSpec {
        self.entry_for_group(group)
            .map_or(&self.dataset, |entry| &entry.dataset)
    }

    /// The expected share of the requests of a traffic class, 0..=1.
    pub fn expected_share(&self, entry: &MixEntry) -> f64 {
        entry.load.size() / self.mix.iter().map(|entry| entry.load.size()).sum::<f64>()
    }

    /// Whether any of its datasets may contain conversations.
    pub fn has_conversations(&self) -> bool {
        match self.mix.as_slice() {
            [] => self.dataset.turns.is_some(),
            mix => mix.iter().any(|entry| entry.dataset.turns.is_some()),
        }
    }

    /// The mix as text: `chat 75%, summarize 25%`, or `chat 5/s, summarize 1/s`. None without a mix.
    pub fn describe_mix(&self) -> Option<String> {
        let each = |entry: &MixEntry| match &entry.load {
            EntryLoad::Weight(_) => format!(
                "{} {}%",
                entry.name,
                six_digits((self.expected_share(entry) * 1e4).round() / 1e2)
            ),
            // With a common arrival process, the load has it.
            EntryLoad::Arrivals(Shape::Open { rate, .. })
                if matches!(self.load.shape, Shape::Open { .. }) =>
            {
                format!("{} {}/s", entry.name, six_digits(*rate))
            }
            EntryLoad::Arrivals(shape) => format!("{} {shape}", entry.name),
        };
        (!self.mix.is_empty()).then(|| self.mix.iter().map(each).collect::<Vec<_>>().join(", "))
    }

    /// Load and mix as text: `concurrency 16; chat 75%, summarize 25%`.
    pub fn describe_load(&self) -> String {
        [Some(self.load.shape.to_string()), self.describe_mix()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Name and arrivals of each traffic class; None if the classes share one load.
    pub fn entry_arrivals(&self) -> Option<Vec<(&str, &Shape)>> {
        let arrivals = |entry: &'_ MixEntry| matches!(entry.load, EntryLoad::Arrivals(_));
        let all = !self.mix.is_empty() && self.mix.iter().all(arrivals);
        let named = self.mix.iter().filter_map(|entry| match &entry.load {
            EntryLoad::Arrivals(shape) => Some((entry.name.as_str(), shape)),
            EntryLoad::Weight(_) => None,
        });
        all.then(|| named.collect())
    }
}

/// A compiled scenario: defaults filled in, cases expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Hex digest of the resolved scenario: equal plans have equal ids.
    pub id: String,
    /// Name of the scenario.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// What the run measures: `commit` → `4f2e91c`. Not part of the id.
    pub labels: BTreeMap<String, String>,
    /// Seed of every random choice.
    pub seed: Seed,
    /// The cases, in the order in which they run.
    pub cases: Vec<Case>,
    /// Capacity searches. If there are any, the cases are their possible probes and run only on demand.
    pub searches: Vec<CapacitySearch>,
    /// Successive halving over each group of searches; None: every search runs in full.
    pub halving: Option<HalvingSpec>,
    /// Number of rounds per case; the rounds of all cases are interleaved.
    pub rounds: u32,
    /// Whether every second round runs the cases in reverse order, so that a drift of the machine cancels in pairs of
    /// cases.
    pub alternate: bool,
    /// Pause between cases.
    pub pause: Nanos,
    /// Thresholds of the self-audit.
    pub audit: AuditLimits,
    /// Telemetry settings.
    pub telemetry: TelemetrySpec,
    /// Report settings.
    pub report: ReportSpec,
    /// The baseline of relative limits.
    pub baseline: Option<BaselineFile>,
    /// The resolved scenario as YAML, secrets as `${NAME}`; running it repeats the run.
    pub resolved: String,
    /// Secrets of the scenario: environment variables, URLs, headers, keys.
    pub secrets: Arc<[Secret]>,
}

/// The cases of a plan that run. Each text is a part of a case id, or conditions on labels:
/// `variant=mtp3,concurrency=8..64`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseFilter {
    /// `--only`: the cases that match one of these; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// `--skip`: not the cases that match one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<String>,
}

impl CaseFilter {
    /// Whether every case is selected.
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && self.skip.is_empty()
    }

    /// The options of the command line: `--only 'variant=mtp3'`.
    pub fn options(&self) -> Vec<String> {
        let option =
            |name: &str, text: &String| format!("{name} '{}'", text.replace('\'', "'\\''"));
        let only = self.only.iter().map(|text| option("--only", text));
        only.chain(self.skip.iter().map(|text| option("--skip", text)))
            .collect()
    }

    fn selects(&self, case: &Case) -> bool {
        let matches = |texts: &[String]| texts.iter().any(|text| is_named(case, text));
        (self.only.is_empty() || matches(&self.only)) && !matches(&self.skip)
    }
}

/// Whether a text names a case: by conditions on its labels, whose paths may be shortened to the last segment, or by
/// a part of its id.
fn is_named(case: &Case, text: &str) -> bool {
    let condition = |part: &str| {
        let (name, wanted) = part.split_once('=')?;
        let (_, value) = case.labels.0.iter().find(|(path, _)| {
            path == name.trim() || path.rsplit('.').next() == Some(name.trim())
        })?;
        Some(value.meets(&Scalar::Text(wanted.trim().to_owned())))
    };
    let conditions: Option<Vec<bool>> = text.split(',').map(condition).collect();
    match conditions {
        Some(conditions) => conditions.into_iter().all(|meets| meets),
        None => case.id.contains(text),
    }
}

/// One round of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRound {
    /// Round, from 0.
    pub round: u32,
    /// Index of the case.
    pub case: usize,
}

impl Plan {
    /// The rounds in the order in which they run. Cases alternate within a round, so that drift of the server affects
    /// all of them alike; a managed server that is not restarted for each round runs all rounds of its cases before
    /// the next one starts.
    pub fn rounds_in_order(&self) -> Vec<PlannedRound> {
        let (kept, restarted): (Vec<_>, Vec<_>) =
            self.cases_by_server().into_iter().partition(|cases| {
                let server = cases
                    .first()
                    .and_then(|case| self.cases[*case].target.server.as_ref());
                server.is_some_and(|server| {
                    matches!(server.restart, Restart::Never | Restart::Variant)
                })
            });
        let all_rounds = |cases: Vec<usize>| {
            (0..self.rounds).flat_map(move |round| {
                let mut cases = cases.clone();
                if self.alternate && round % 2 == 1 {
                    cases.reverse();
                }
                cases
                    .into_iter()
                    .map(move |case| PlannedRound { round, case })
            })
        };
        kept.into_iter()
            .chain([restarted.concat()])
            .flat_map(all_rounds)
            .collect()
    }

    /// Whether the rounds of two cases alternate: round n of both is before round n + 1 of either.
    pub fn alternates(&self, a: &str, b: &str) -> bool {
        let id = |round: &PlannedRound| self.cases.get(round.case).map(|case| case.id.as_str());
        let is_of = |round: &PlannedRound| [Some(a), Some(b)].contains(&id(round));
        let rounds = self.rounds_in_order().into_iter().filter(is_of);
        let rounds: Vec<u32> = rounds.map(|round| round.round).collect();
        a != b && rounds.is_sorted()
    }

    /// The indexes of the cases, grouped by managed server in the order of its first case; one group of cases without
    /// one.
    fn cases_by_server(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, case) in self.cases.iter().enumerate() {
            let same = |group: &&mut Vec<usize>| {
                group
                    .first()
                    .is_some_and(|first| self.cases[*first].target.server == case.target.server)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        groups
    }

    /// Number of starts of managed servers, if none fails: the least, and the most where candidates of a search tie.
    /// A capacity search counts the starts of one probe per search and rung.
    pub fn server_starts(&self) -> RangeInclusive<usize> {
        let Some(halving) = &self.halving else {
            let starts = self.starts_in_order();
            return starts..=starts;
        };
        let (mut least, mut most) = (0, 0);
        for group in groups(&self.searches) {
            let mut servers: Vec<&ManagedServer> = Vec::new();
            let searches = &self.searches[group];
            let cases = searches.iter().filter_map(|one| self.cases.get(one.first));
            for server in cases.filter_map(|case| case.target.server.as_ref()) {
                if !servers.contains(&server) {
                    servers.push(server);
                }
            }
            let rungs = halving.rungs(searches.len());
            match servers.len() {
                // One server serves all candidates.
                0 | 1 => (least, most) = (least + servers.len(), most + servers.len()),
                count => {
                    let starts = |candidates: usize| candidates.min(count);
                    least += rungs
                        .iter()
                        .map(|rung| starts(rung.candidates))
                        .sum::<usize>();
                    most += rungs.len() * count;
                }
            }
        }
        least..=most
    }

    /// Number of starts if the cases run in the order of the plan.
    fn starts_in_order(&self) -> usize {
        let mut last: Option<PlannedRound> = None;
        let mut starts = 0;
        for next in self.rounds_in_order() {
            let server = self.cases[next.case].target.server.as_ref();
            let reuses = |last: PlannedRound| {
                let restart = server.map(|server| server.restart);
                self.cases[last.case].target.server.as_ref() == server
                    && match restart {
                        Some(Restart::Case) => self.is_search(),
                        Some(Restart::Round) => last.round == next.round,
                        _ => true,
                    }
            };
            starts += usize::from(server.is_some() && !last.is_some_and(reuses));
            last = Some(next);
        }
        starts
    }

    fn is_search(&self) -> bool {
        !self.searches.is_empty()
    }

    /// A redactor for the secrets of this plan, and for the keys that are obtained while it runs.
    pub fn redactor(&self) -> Redactor {
        let redactor = Redactor::from_texts(self.secrets.iter().map(Secret::expose), DISTINCT);
        let obtained = self.obtained_keys().into_iter();
        obtained
            .filter_map(ApiKey::obtained)
            .fold(redactor, Redactor::with_obtained)
    }

    /// The keys of its targets that are obtained during the run, each once.
    pub fn obtained_keys(&self) -> Vec<&ApiKey> {
        let mut found: Vec<&ApiKey> = Vec::new();
        for key in self
            .cases
            .iter()
            .filter_map(|case| case.target.api_key.as_ref())
        {
            let Some(keys) = key.obtained() else {
                continue;
            };
            let mut known = found.iter().filter_map(|known| known.obtained());
            if !known.any(|known| known.is_shared_with(keys)) {
                found.push(key);
            }
        }
        found
    }

    /// Keeps the cases that the filter selects, and the searches that have such a case with all their cases.
    pub fn select_cases(&mut self, filter: &CaseFilter) {
        let chosen = |case: &Case| filter.selects(case);
        if self.searches.is_empty() {
            return self.cases.retain(chosen);
        }
        let mut cases = Vec::new();
        self.searches.retain_mut(|search| {
            let own = self
                .cases
                .get(search.first..search.first + search.grid.len())
                .unwrap_or_default();
            search.first = cases.len();
            let kept = own.iter().any(chosen);
            cases.extend(own.iter().filter(|_| kept).cloned());
            kept
        });
        self.cases = cases;
    }
}
