//! State of the full-screen view: events and times in, values to draw out.

use crate::cli::display::{permanent_line, round_title};
use crate::run::event::{Event, Preparing};
use crate::run::progress::Progress;
use crate::run::stop::Level;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::load::Load;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::units::Nanos;
use std::collections::VecDeque;

/// Seconds that the charts cover.
const MAX_SECONDS: usize = 600;
/// Notes that are kept for the screen.
const MAX_NOTES: usize = 50;

/// What the screen shows.
#[derive(Debug, Default)]
pub struct View {
    /// Scenario name.
    pub name: String,
    /// Rounds per case.
    pub rounds: u32,
    /// Whether the plan is a capacity search.
    pub search: bool,
    /// The rounds of all cases, in order; of a search, those known so far.
    pub parts: Vec<Part>,
    /// The running part.
    pub current: Option<usize>,
    /// Preparation of the dataset, while it runs.
    pub preparing: Option<Preparing>,
    /// Progress of the running part, or of the previous one between parts.
    pub now: Progress,
    /// Chart data, one entry per second.
    pub seconds: VecDeque<Second>,
    /// Notes, oldest first.
    pub notes: VecDeque<String>,
    /// Whether the run is stopping.
    pub stopping: Level,
    /// The lines to print after the view is closed.
    pub transcript: Vec<String>,
    title: String,
}

/// One round of one case.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Case id.
    pub case: String,
    /// Round, counted from 0.
    pub round: u32,
    pub state: State,
    /// Planned seconds, if a duration bounds it.
    pub planned_s: Option<f64>,
    /// Planned requests per user, to estimate its duration.
    pub requests_per_user: Option<f64>,
    /// Its latest progress.
    pub progress: Option<Progress>,
}

/// State of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    #[default]
    Waiting,
    Running,
    /// Finished; the verdict comes with the report.
    Ended,
    /// Stopped early, and why.
    StoppedEarly(&'static str),
    /// A probe, and the probability that all objectives are met; `None` if the load generator was the bottleneck.
    Probed(Option<f64>),
}

/// Chart data of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Seconds since the beginning.
    pub at: u64,
    samples: u32,
    /// Sums over the samples.
    tokens_per_s: f64,
    in_flight: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Median TTFT of the latest requests, in milliseconds.
    pub ttft_p50: Option<f64>,
    /// Highest p99 TTFT, in milliseconds.
    pub ttft_p99: Option<f64>,
}

impl Second {
    /// Mean token events per second.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens_per_s / f64::from(self.samples.max(1))
    }

    /// Mean requests in flight.
    pub fn in_flight(&self) -> f64 {
        self.in_flight / f64::from(self.samples.max(1))
    }
}

impl View {
    /// The view before the first event.
    pub fn new(plan: &Plan) -> View {
        let search = !plan.searches.is_empty();
        let part = |round| {
            move |case: &Case| {
                let planned_s = case.load.sending_duration().map(Nanos::secs);
                Part {
                    case: case.id.clone(),
                    round,
                    planned_s,
                    requests_per_user: requests_per_user(&case.load),
                    ..Part::default()
                }
            }
        };
        let parts = (0..plan.rounds).flat_map(|round| plan.cases.iter().map(part(round)));
        let parts = if search { Vec::new() } else { parts.collect() };
        View {
            name: plan.name.clone(),
            rounds: plan.rounds,
            search,
            parts,
            ..View::default()
        }
    }

    /// Applies an event that happened `at` seconds after the beginning.
    pub fn apply(&mut self, event: &Event, at: f64) {
        match event {
            Event::Preparing(step) => {
                self.preparing = Some(step.clone()).filter(|step| step.total != Some(step.done))
            }
            Event::CaseStarted {
                case,
                round,
                part,
                seconds,
                ..
            } => {
                self.start_part(
                    Part {
                        case: case.clone(),
                        round: *round,
                        planned_s: *seconds,
                        ..Part::default()
                    },
                    *part,
                );
                self.title = round_title(event);
            }
            Event::Progress(progress) => self.update_progress(progress, at),
            Event::CaseEnded(last) => {
                self.update_progress(
                    &Progress {
                        in_flight: 0,
                        ttft_ms_latest: None,
                        ..last.clone()
                    },
                    at,
                );
                self.now = last.clone();
                let part = self
                    .current
                    .take()
                    .and_then(|current| self.parts.get_mut(current));
                part.into_iter()
                    .filter(|part| part.state == State::Running)
                    .for_each(|part| part.state = State::Ended);
            }
            Event::Ending(ending) => {
                let word = match ending {
                    EarlyStop::Aborted(_) => "FAIL, aborted",
                    EarlyStop::Saturated(_) => "SATURATED",
                    EarlyStop::TargetLost(_) => "ERROR, target lost",
                    EarlyStop::AllFailed(_) => "ERROR, stopped",
                };
                self.set_state(self.current, State::StoppedEarly(word));
            }
            Event::Probed { holds, .. } => {
                let last = self.parts.iter().rposition(|part| part.progress.is_some());
                self.set_state(last, State::Probed(*holds));
            }
            Event::Stopping(level) => self.stopping = *level,
            Event::Note(_) | Event::Folder(_) | Event::Done => {}
        }
        if let Some(line) = permanent_line(event, &self.title) {
            if !matches!(event, Event::CaseEnded(_)) {
                self.notes
                    .push_back(line.trim_start_matches("note: ").to_owned());
                self.notes
                    .drain(..self.notes.len().saturating_sub(MAX_NOTES));
            }
            self.transcript.push(line);
        }
    }

    fn start_part(&mut self, part: Part, index: usize) {
        self.preparing = None;
        self.now = Progress::default();
        let planned = self
            .parts
            .get(index)
            .is_some_and(|planned| planned.case == part.case && planned.round == part.round);
        if !planned {
            self.parts.truncate(index);
            self.parts.push(part);
        }
        self.current = Some(index.min(self.parts.len() - 1));
        self.set_state(self.current, State::Running);
    }

    fn set_state(&mut self, part: Option<usize>, state: State) {
        part.and_then(|part| self.parts.get_mut(part))
            .into_iter()
            .for_each(|part| part.state = state.clone());
    }

    fn update_progress(&mut self, progress: &Progress, at: f64) {
        let second = at as u64;
        if self.seconds.back().is_none_or(|last| last.at < second) {
            // Seconds between rounds have no data.
            let from = self.seconds.back().map_or(second, |last| {
                (last.at + 1).max(second.saturating_sub(MAX_SECONDS as u64))
            });
            self.seconds.extend((from..=second).map(|at| Second {
                at,
                ..Second::default()
            }));
            self.seconds
                .drain(..self.seconds.len().saturating_sub(MAX_SECONDS));
        }
        let errors = progress.errors.saturating_sub(self.now.errors);
        if let Some(current) = self.seconds.back_mut() {
            current.samples += 1;
            current.tokens_per_s += progress.tokens_per_s;
            current.in_flight += progress.in_flight as f64;
            current.errors += errors;
            if let Some((p50, p99)) = progress.ttft_ms_latest {
                current.ttft_p50 = Some(p50);
                current.ttft_p99 = Some(current.ttft_p99.map_or(p99, |highest| highest.max(p99)));
            }
        }
        self.now = progress.clone();
        let part = self.current.and_then(|current| self.parts.get_mut(current));
        part.into_iter()
            .for_each(|part| part.progress = Some(progress.clone()));
    }

    /// Number of finished parts.
    pub fn finished(&self) -> usize {
        self.parts
            .iter()
            .filter(|part| !matches!(part.state, State::Waiting | State::Running))
            .count()
    }

    /// The completed share of the running part, if its duration is known.
    pub fn share_done(&self) -> Option<f64> {
        self.current?;
        let elapsed = self.now.elapsed_s;
        let total = elapsed + self.now.left_s?;
        (total > 0.0).then(|| (elapsed / total).clamp(0.0, 1.0))
    }

    /// Estimated seconds to the end of the run: the rest of the running part, and for waiting parts their planned
    /// duration, or the time per request of the parts so far. `None` if unknown.
    pub fn left_s(&self) -> Option<f64> {
        if self.search || self.stopping > Level::Run {
            return None;
        }
        let left = self.current.map_or(Some(0.0), |_| self.now.left_s);
        let mut spent_s = 0.0;
        let mut requests = 0.0;
        for part in &self.parts {
            let Some(progress) = &part.progress else {
                continue;
            };
            let left_s = if part.state == State::Running {
                progress.left_s
            } else {
                Some(0.0)
            };
            if let Some(left_s) = left_s {
                spent_s += progress.elapsed_s + left_s;
                requests += part.requests_per_user.unwrap_or(1.0);
            }
        }
        let waiting = self
            .parts
            .iter()
            .filter(|part| part.state == State::Waiting);
        let estimate = |part: &Part| {
            let by_requests = || {
                (requests > 0.0).then(|| spent_s / requests * part.requests_per_user.unwrap_or(1.0))
            };
            part.planned_s.or_else(by_requests)
        };
        Some(waiting.map(estimate).sum::<Option<f64>>()? + left?)
    }
}

/// Planned requests per user; of an arrival process, all requests.
fn requests_per_user(load: &Load) -> Option<f64> {
    Some(load.planned()? as f64 / f64::from(load.shape.users().unwrap_or(1).max(1)))
}
