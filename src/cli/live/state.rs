//! What the full-screen view knows of a run. Pure: events and instants in, figures out.

use crate::cli::progress::{said, title};
use crate::run::event::{Event, Preparing, Progress};
use crate::run::execution::stop::Level;
use llmscen_core::early_stop::Ending;
use llmscen_core::load::Load;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::units::Nanos;
use std::collections::VecDeque;

/// Seconds that the charts can look back.
const MEMORY: usize = 600;
/// Notes that are kept for the screen.
const NOTES: usize = 50;

/// Everything on the screen.
#[derive(Debug, Default)]
pub struct View {
    /// Name of the scenario.
    pub name: String,
    /// Rounds of every case.
    pub rounds: u32,
    /// Whether a search decides what is played.
    pub search: bool,
    /// The parts, in the order in which they are played; of a search, as far as they are known.
    pub parts: Vec<Part>,
    /// The part that runs.
    pub current: Option<usize>,
    /// The dataset that is being made ready.
    pub preparing: Option<Preparing>,
    /// Its figures, and those of the part before between two.
    pub now: Progress,
    /// The last seconds.
    pub seconds: VecDeque<Second>,
    /// Notes, oldest first.
    pub notes: VecDeque<String>,
    /// The switch.
    pub stopping: Level,
    /// Every line that stays said.
    pub transcript: Vec<String>,
    title: String,
    /// When the part that runs began, seconds.
    since: f64,
}

/// One round of one case.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Case id.
    pub case: String,
    /// Its round, from 0.
    pub round: u32,
    /// How it stands.
    pub state: State,
    /// Seconds that it takes by plan, where a duration bounds it.
    pub planned_s: Option<f64>,
    /// Requests of each user by plan, where it has both: what its time goes by.
    pub work: Option<f64>,
    /// Its last figures.
    pub figures: Option<Progress>,
}

/// How a part stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// To come.
    #[default]
    Waiting,
    /// It runs.
    Running,
    /// It has run; the verdict falls with the report.
    Ended,
    /// It ended by its own decision: a limit is lost, or the server fell behind.
    Given(&'static str),
    /// A probe, and the probability that every limit holds; None: it measured the tool.
    Probed(Option<f64>),
}

/// What happened in one second of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Which one, from 0.
    pub at: u64,
    figures: u32,
    tokens: f64,
    in_flight: f64,
    /// Requests that failed in it.
    pub errors: u64,
    /// The median TTFT of the requests that ended last in it, milliseconds.
    pub ttft_p50: Option<f64>,
    /// The worst p99 in it, milliseconds.
    pub ttft_p99: Option<f64>,
}

impl Second {
    /// Token events per second, the mean over its figures.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens / f64::from(self.figures.max(1))
    }

    /// Requests in flight, the mean over its figures.
    pub fn in_flight(&self) -> f64 {
        self.in_flight / f64::from(self.figures.max(1))
    }
}

impl View {
    /// A view of this plan, before anything happens.
    pub fn of(plan: &Plan) -> View {
        let search = !plan.quests.is_empty();
        let part = |round| {
            move |case: &Case| {
                let planned_s = case.load.lasts().map(Nanos::secs);
                Part { case: case.id.clone(), round, planned_s, work: work(&case.load), ..Part::default() }
            }
        };
        let parts = (0..plan.rounds).flat_map(|round| plan.cases.iter().map(part(round)));
        let parts = if search { Vec::new() } else { parts.collect() };
        View { name: plan.name.clone(), rounds: plan.rounds, search, parts, ..View::default() }
    }

    /// Takes in an event that came so many seconds after the beginning.
    pub fn see(&mut self, event: &Event, at: f64) {
        match event {
            Event::Preparing(step) => self.preparing = Some(step.clone()).filter(|step| step.total != Some(step.done)),
            Event::CaseStarted { case, round, part, seconds, .. } => {
                self.start(Part { case: case.clone(), round: *round, planned_s: *seconds, ..Part::default() }, *part, at);
                self.title = title(event);
            }
            Event::Progress(now) => self.figures(now, at),
            Event::CaseEnded(last) => {
                self.figures(&Progress { in_flight: 0, ttft_ms_latest: None, ..last.clone() }, at);
                self.now = last.clone();
                let part = self.current.take().and_then(|current| self.parts.get_mut(current));
                part.into_iter().filter(|part| part.state == State::Running).for_each(|part| part.state = State::Ended);
            }
            Event::Ending(ending) => {
                let word = match ending {
                    Ending::Aborted(_) => "FAIL, aborted",
                    Ending::Saturated(_) => "SATURATED",
                    Ending::TargetLost(_) => "ERROR, target lost",
                    Ending::AllFailed(_) => "ERROR, stopped",
                };
                self.mark(self.current, State::Given(word));
            }
            Event::Probed { holds, .. } => {
                let last = self.parts.iter().rposition(|part| part.figures.is_some());
                self.mark(last, State::Probed(*holds));
            }
            Event::Stopping(level) => self.stopping = *level,
            Event::Note(_) | Event::Folder(_) | Event::Done => {}
        }
        if let Some(line) = said(event, &self.title) {
            if !matches!(event, Event::CaseEnded(_)) {
                self.notes.push_back(line.trim_start_matches("note: ").to_owned());
                self.notes.drain(..self.notes.len().saturating_sub(NOTES));
            }
            self.transcript.push(line);
        }
    }

    fn start(&mut self, part: Part, place: usize, at: f64) {
        self.preparing = None;
        self.since = at;
        self.now = Progress::default();
        let known = self.parts.get(place).is_some_and(|own| (&own.case, own.round) == (&part.case, part.round));
        if !known {
            self.parts.truncate(place);
            self.parts.push(part);
        }
        self.current = Some(place.min(self.parts.len() - 1));
        self.mark(self.current, State::Running);
    }

    fn mark(&mut self, part: Option<usize>, state: State) {
        part.and_then(|part| self.parts.get_mut(part)).into_iter().for_each(|part| part.state = state.clone());
    }

    fn figures(&mut self, now: &Progress, at: f64) {
        let second = at as u64;
        if self.seconds.back().is_none_or(|last| last.at < second) {
            // Seconds of rest between two rounds are seconds in which nothing came.
            let from = self.seconds.back().map_or(second, |last| (last.at + 1).max(second.saturating_sub(MEMORY as u64)));
            self.seconds.extend((from..=second).map(|at| Second { at, ..Second::default() }));
            self.seconds.drain(..self.seconds.len().saturating_sub(MEMORY));
        }
        let errors = now.errors.saturating_sub(self.now.errors);
        if let Some(own) = self.seconds.back_mut() {
            own.figures += 1;
            own.tokens += now.tokens_per_s;
            own.in_flight += now.in_flight as f64;
            own.errors += errors;
            if let Some((p50, p99)) = now.ttft_ms_latest {
                own.ttft_p50 = Some(p50);
                own.ttft_p99 = Some(own.ttft_p99.map_or(p99, |seen| seen.max(p99)));
            }
        }
        self.now = now.clone();
        let part = self.current.and_then(|current| self.parts.get_mut(current));
        part.into_iter().for_each(|part| part.figures = Some(now.clone()));
    }

    /// Parts that are over.
    pub fn ended(&self) -> usize {
        self.parts.iter().filter(|part| !matches!(part.state, State::Waiting | State::Running)).count()
    }

    /// The share of the part that is done, as far as can be told.
    pub fn share(&self) -> Option<f64> {
        self.current?;
        let (gone, left) = (self.now.elapsed_s, self.now.left_s?);
        (gone + left > 0.0).then(|| (gone / (gone + left)).clamp(0.0, 1.0))
    }

    /// Seconds left of the whole run: what is left of this part, and of those to come what their durations say, or else what
    /// the parts so far took for as much work. None where nobody can say.
    pub fn left_s(&self) -> Option<f64> {
        let own = self.current.map_or(Some(0.0), |_| self.now.left_s);
        if self.search || self.stopping > Level::Run {
            return None;
        }
        let begun = self.parts.iter().filter_map(|part| {
            let last = part.figures.as_ref()?;
            let left = if part.state == State::Running { last.left_s? } else { 0.0 };
            Some((last.elapsed_s + left, part.work.unwrap_or(1.0)))
        });
        let (spent, work) = begun.fold((0.0, 0.0), |(spent, work), own| (spent + own.0, work + own.1));
        let waiting = self.parts.iter().filter(|part| part.state == State::Waiting);
        let each = |part: &Part| part.planned_s.or((work > 0.0).then(|| spent / work * part.work.unwrap_or(1.0)));
        Some(waiting.map(each).sum::<Option<f64>>()? + own?)
    }
}

/// Requests of each user; of arrivals, requests.
fn work(load: &Load) -> Option<f64> {
    Some(load.planned()? as f64 / f64::from(load.shape.users().unwrap_or(1).max(1)))
}
