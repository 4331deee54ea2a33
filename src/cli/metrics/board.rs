//! The figures behind the metrics endpoint: totals of every case over its rounds, as they stand.

use crate::run::collector::live_metrics::LiveTotals;
use crate::run::event::{Event, Progress};
use crate::run::execution::redactor;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The figures, shared between whoever hears of the run and whoever is asked for them.
#[derive(Debug, Default)]
pub struct Board(Mutex<State>);

/// Everything that is exposed.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Runs so far, in order.
    pub runs: Vec<Run>,
    /// Cases that have begun, in order.
    pub cases: Vec<Tally>,
    current: Option<usize>,
    /// Strikes the secrets of all runs.
    pub redactor: Redactor,
}

/// The run of one scenario.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its number in the command, from 1: two scenarios may have one name.
    pub number: String,
    /// The scenario's name.
    pub scenario: String,
    /// Hex digest of its plan.
    pub plan_id: String,
    /// What is known of its cases before they begin: id, load, API, model.
    outlines: Vec<Outline>,
    /// Rounds of all cases that are played; None for a search, which decides as it goes.
    pub parts: Option<u64>,
    /// Those that are over.
    pub parts_done: u64,
}

#[derive(Clone, Debug)]
struct Outline {
    id: String,
    about: [String; 3],
}

/// One case.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The number of its run.
    pub run: String,
    /// Its scenario's name.
    pub scenario: String,
    /// Its id.
    pub case: String,
    /// Its load in words, its API and its model.
    pub about: [String; 3],
    /// Of the rounds that are over.
    past: LiveTotals,
    /// The round that runs; an empty one between rounds.
    pub now: Progress,
    /// Whether a round of it runs.
    pub running: bool,
}

impl Tally {
    /// Over all rounds so far.
    pub fn totals(&self) -> LiveTotals {
        let mut sum = self.past.clone();
        sum.add(&self.now.totals);
        sum
    }

    /// The requests by phase and ending, every phase named even where nothing ended in it yet.
    pub fn outcomes(&self) -> Vec<((&'static str, &'static str), u64)> {
        let mut outcomes = self.totals().outcomes;
        outcomes.entry((Phase::Measured, "ok")).or_default();
        let word = |phase| if phase == Phase::Warmup { "warmup" } else { "measured" };
        outcomes.into_iter().map(|((phase, outcome), count)| ((word(phase), outcome), count)).collect()
    }
}

impl Board {
    /// What stands there now.
    pub fn read(&self) -> State {
        self.lock().clone()
    }

    /// A run of this plan begins.
    pub fn begin(&self, plan: &Plan) {
        let parts = plan.quests.is_empty().then_some(plan.cases.len() as u64 * u64::from(plan.rounds));
        let outlines = plan.cases.iter().map(outline).collect();
        let (scenario, plan_id) = (plan.name.clone(), plan.id.clone());
        let mut state = self.lock();
        state.redactor = std::mem::take(&mut state.redactor).joined(redactor(plan));
        let number = (state.runs.len() + 1).to_string();
        state.runs.push(Run { number, scenario, plan_id, outlines, parts, parts_done: 0 });
    }

    /// Something happened.
    pub fn see(&self, event: &Event) {
        let mut state = self.lock();
        match event {
            Event::CaseStarted { case, .. } => state.start(case),
            Event::Progress(progress) => {
                state.current().into_iter().for_each(|own| own.now = progress.clone());
            }
            Event::CaseEnded(last) => {
                state.current().into_iter().for_each(|own| {
                    own.past.add(&last.totals);
                    (own.now, own.running) = (Progress::default(), false);
                });
                state.current = None;
                state.runs.last_mut().into_iter().for_each(|run| run.parts_done += 1);
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn start(&mut self, case: &str) {
        let Some(run) = self.runs.last() else { return };
        let (number, scenario) = (run.number.clone(), run.scenario.clone());
        let known = self.cases.iter().position(|own| own.run == number && own.case == case);
        let place = known.unwrap_or_else(|| {
            let about = run.outlines.iter().find(|own| own.id == case).map(|own| own.about.clone()).unwrap_or_default();
            let (past, now) = (LiveTotals::default(), Progress::default());
            self.cases.push(Tally { run: number, scenario, case: case.to_owned(), about, past, now, running: false });
            self.cases.len() - 1
        });
        self.current = Some(place);
        self.current().into_iter().for_each(|own| own.running = true);
    }

    fn current(&mut self) -> Option<&mut Tally> {
        self.cases.get_mut(self.current?)
    }
}

fn outline(case: &Case) -> Outline {
    let model = case.target.models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(",");
    Outline { id: case.id.clone(), about: [case.load.shape.to_string(), case.target.api.name().to_owned(), model] }
}
