//! Traffic classes: all requests of a case, or those of one entry of its mix.

use llmscen_core::dataset::OnExhausted;
use llmscen_core::mix::Entry;
use llmscen_core::plan::Case;
use llmscen_core::prompt::Session;
use llmscen_core::schedule::due::Schedule;
use llmscen_core::schedule::mix;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::Tokenizer;
use llmscen_datasets::{PromptError, Prompts};
use llmscen_scenario::render::Renderer;
use std::sync::Arc;
use std::time::Duration;

/// One kind of request: its dataset, renderer and tokenizer.
pub struct TrafficClass {
    /// Its entry of the mix; None without one.
    pub entry: Option<Entry>,
    /// The case as if there were no other kind.
    pub case: Case,
    /// Its prompts.
    pub prompts: Arc<dyn Prompts>,
    /// Counts generated text, where the scenario names a tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Renders its bodies.
    pub renderer: Arc<Renderer>,
}

impl TrafficClass {
    /// The group of a request whose dataset tells this part apart.
    pub fn group(&self, part: Option<String>) -> Option<String> {
        match &self.entry {
            Some(entry) => Some(entry.group(part.as_deref())),
            None => part,
        }
    }

    /// The seed of its requests in a round: of an entry it does not depend on the others.
    pub fn seed(&self, round: Seed) -> Seed {
        self.entry.as_ref().map_or(round, |entry| mix::own(round, &entry.name))
    }
}

/// Which rows of its data a class takes in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStride {
    /// The first row of the round that anyone may take.
    pub from: u64,
    /// Its own first row.
    pub first: u64,
    /// Rows from one request to the next: where entries share data without an end to be known, each takes every n-th.
    pub step: u64,
}

impl Default for RowStride {
    /// Every row, from the data's first one on.
    fn default() -> RowStride {
        RowStride { from: 0, first: 0, step: 1 }
    }
}

impl RowStride {
    /// The row of a request, by its number among those of the class.
    pub fn row(&self, number: u64) -> u64 {
        self.first.wrapping_add(number.wrapping_mul(self.step))
    }
}

/// Prompts along a stride, so that the cases of a sweep and the entries of a mix do not repeat each other's.
pub struct StridedPrompts {
    /// The whole dataset.
    pub prompts: Arc<dyn Prompts>,
    /// The rows of this part.
    pub stride: RowStride,
    /// Every row once at the most: the part ends there instead of starting again.
    pub once: bool,
}

impl Prompts for StridedPrompts {
    fn session(&self, seq: u64) -> Option<Session> {
        let row = self.stride.row(seq);
        let session = self.prompts.session(row)?;
        // Only now: the end of a long file is known when it has been reached. A log without an end to its words has an end
        // to its arrivals.
        let rows = || self.prompts.len().or_else(|| Some(self.prompts.arrivals()?.len() as u64));
        let over = self.once && rows().is_some_and(|rows| row.wrapping_sub(self.stride.from) >= rows);
        (!over).then_some(session)
    }

    fn len(&self) -> Option<u64> {
        self.prompts.len()
    }

    fn dropped(&self) -> u64 {
        self.prompts.dropped()
    }

    fn ready(&self, seq: u64, most: Duration) -> bool {
        self.prompts.ready(self.stride.row(seq), most)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.prompts.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.prompts.problems()
    }
}

/// The prompts of each class along its stride.
pub fn strided_prompts(classes: &[Arc<TrafficClass>], strides: &[RowStride]) -> Vec<Arc<dyn Prompts>> {
    let own = |(class, stride): (&Arc<TrafficClass>, &RowStride)| -> Arc<dyn Prompts> {
        let once = class.case.dataset.on_exhausted != OnExhausted::Cycle;
        Arc::new(StridedPrompts { prompts: class.prompts.clone(), stride: *stride, once })
    };
    classes.iter().zip(strides).map(own).collect()
}

/// What counts the generated text of each group; the empty one is every group.
pub fn tokenizers(classes: &[Arc<TrafficClass>]) -> Vec<(String, Arc<Tokenizer>)> {
    let name = |class: &TrafficClass| class.entry.as_ref().map(|entry| entry.name.clone()).unwrap_or_default();
    classes.iter().filter_map(|class| Some((name(class), class.tokenizer.clone()?))).collect()
}

/// The classes of a case, once each dataset: entries may share one.
pub fn datasets(classes: &[Arc<TrafficClass>]) -> Vec<&Arc<TrafficClass>> {
    let mut apart: Vec<&Arc<TrafficClass>> = Vec::new();
    for class in classes {
        if !apart.iter().any(|other| Arc::ptr_eq(&other.prompts, &class.prompts)) {
            apart.push(class);
        }
    }
    apart
}

/// Where each request of a round stands: its class, and its number among that class's, by its own number.
pub struct MixAssignment {
    deal: mix::Deal,
    schedule: Option<Schedule>,
    mixed: bool,
    at: Option<(u64, (usize, u64))>,
}

impl MixAssignment {
    /// The places of a round with this seed, which replays these arrivals, if any.
    pub fn new(case: &Case, seed: Seed, arrivals: Option<&Arc<[Nanos]>>) -> MixAssignment {
        let planned = case.rates().is_some();
        let schedule = planned.then(|| Schedule::of(case, seed, arrivals)).flatten();
        MixAssignment { deal: mix::Deal::new(&case.mix, seed), schedule, mixed: !case.mix.is_empty(), at: None }
    }

    /// The place of a request; requests must be asked for in the order of their numbers.
    pub fn place(&mut self, seq: u64) -> (usize, u64) {
        if !self.mixed {
            return (0, seq);
        }
        loop {
            match self.at {
                Some((at, place)) if at >= seq => return place,
                at => {
                    let planned = self.schedule.as_mut().and_then(|own| own.next()?.entry);
                    let next = at.map_or(0, |(at, _)| at + 1);
                    self.at = Some((next, self.deal.next(planned)));
                }
            }
        }
    }
}
