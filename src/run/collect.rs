//! Takes outcomes off the lanes: counts tokens, writes the journal, feeds the live figures.

use crate::engine::gauges::Gauges;
use crate::engine::http::Finished;
use crate::model::outcome::Outcome;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::lanes::reading;
use crate::run::meter::Meter;
use crate::store::Record;
use crate::store::journal::Writer;
use crate::token::Tokenizer;
use async_channel::Receiver;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two writes of the journal to the system, and between two live figures. After `kill -9`, at most what came in
/// this span is missing.
const BEAT: Duration = Duration::from_millis(250);

/// What the collector works with.
pub struct Desk {
    /// Index of the case in the plan.
    pub case: u32,
    /// Round, from 0.
    pub round: u32,
    /// The run's journal; it comes back when the round is over.
    pub journal: Writer,
    /// Counts the generated text.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Live figures.
    pub meter: Meter,
    /// The lanes' totals.
    pub gauges: Vec<Arc<Gauges>>,
    /// Who shows them.
    pub events: mpsc::Sender<Event>,
}

/// A running collector.
pub struct Collector(JoinHandle<Result<(Vec<Outcome>, Writer), RunError>>);

impl Collector {
    /// Starts collecting what arrives on `results`, until every lane has dropped its end.
    pub fn start(desk: Desk, results: Receiver<Finished>) -> Result<Collector, RunError> {
        let thread = std::thread::Builder::new().name("collect".into()).spawn(move || work(desk, results));
        thread.map(Collector).map_err(RunError::Thread)
    }

    /// Every outcome of the round, by number, and the journal.
    pub fn finish(self) -> Result<(Vec<Outcome>, Writer), RunError> {
        self.0.join().map_err(|_| RunError::Panicked("collector"))?
    }
}

fn work(mut desk: Desk, results: Receiver<Finished>) -> Result<(Vec<Outcome>, Writer), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(RunError::Thread)?;
    let mut outcomes = runtime.block_on(desk.collect(results))?;
    outcomes.sort_by_key(|outcome| outcome.seq);
    Ok((outcomes, desk.journal))
}

impl Desk {
    async fn collect(&mut self, results: Receiver<Finished>) -> Result<Vec<Outcome>, RunError> {
        let mut outcomes = Vec::new();
        let mut beat = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                biased;
                _ = beat.tick() => {
                    self.journal.flush()?;
                    let progress = self.progress();
                    let _ = self.events.send(Event::Progress(progress));
                }
                finished = results.recv() => match finished {
                    Ok(finished) => outcomes.push(self.take(finished)?),
                    Err(_) => break,
                },
            }
        }
        self.journal.flush()?;
        self.meter.average();
        let last = self.progress();
        // Nobody may be listening; that is theirs to decide.
        let _ = self.events.send(Event::CaseEnded(last));
        Ok(outcomes)
    }

    fn take(&mut self, finished: Finished) -> Result<Outcome, RunError> {
        let Finished { mut outcome, text } = finished;
        if let (Some(tokenizer), Some(text)) = (&self.tokenizer, text) {
            outcome.counted.output = tokenizer.count(&text);
        }
        self.meter.record(&outcome);
        self.journal.append(&Record::Outcome { case: self.case, round: self.round, outcome: outcome.clone() })?;
        Ok(outcome)
    }

    fn progress(&mut self) -> crate::run::event::Progress {
        let totals = reading(&self.gauges);
        self.meter.progress(totals.in_flight, totals.events)
    }
}
