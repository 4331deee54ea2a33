//! Takes outcomes off the workers: counts tokens, writes the journal, feeds the live figures.

pub(crate) mod body_recorder;
pub(crate) mod early_stop;
pub(crate) mod futility_stop;
pub(crate) mod live_metrics;
pub(crate) mod tally;

use crate::run::collector::body_recorder::BodyRecorder;
use crate::run::collector::early_stop::EarlyStop;
use crate::run::collector::futility_stop::FutilityStop;
use crate::run::collector::live_metrics::LiveMetrics;
use crate::run::collector::tally::Tally;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::panics::Alarm;
use crate::run::execution::stop::{Level, Stop};
use crate::run::worker::handle::total_counters;
use crate::store::journal::Writer;
use crate::store::{Record, StoreError};
use async_channel::Receiver;
use llmscen_analysis::{Builder, Tagged};
use llmscen_client::counters::Gauges;
use llmscen_client::http::Finished;
use llmscen_core::early_stop::Ending;
use llmscen_core::mix::within;
use llmscen_core::outcome::Outcome;
use llmscen_datasets::token::Tokenizer;
use llmscen_telemetry::process::stand_behind;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two writes of the journal to the system, and between two live figures. After `kill -9`, at most what came in
/// this span is missing.
const BEAT: Duration = Duration::from_millis(250);
/// Rest before what has gathered meanwhile is taken at once: to wake this thread for each outcome would cost a worker more than
/// all the rest of a short request.
const GATHER: Duration = Duration::from_millis(2);

/// The state of the collector during one round; [`Collector::finish`] hands it back.
pub struct CollectorState {
    /// Index of the case in the plan.
    pub case: u32,
    /// Its id.
    pub id: String,
    /// Round, from 0.
    pub round: u32,
    /// The run's journal; it comes back when the round is over.
    pub journal: Writer,
    /// Keeps bodies; None where none are kept.
    pub body_recorder: Option<BodyRecorder>,
    /// What counts the generated text of each group; the empty one is every group.
    pub tokenizers: Vec<(String, Arc<Tokenizer>)>,
    /// What the requests come to.
    pub tally: Tally,
    /// The rows so far; None where no consumer reads them before the end of the run.
    pub rows: Option<Builder>,
    /// Live figures.
    pub live_metrics: LiveMetrics,
    /// The workers' totals.
    pub gauges: Vec<Arc<Gauges>>,
    /// Who shows them.
    pub events: mpsc::Sender<Event>,
    /// Pressed where the journal cannot be written: nothing more is sent then.
    pub halt: Stop,
    /// Looks for a reason to end the round early; None where there can be none.
    pub early_stop: Option<EarlyStop>,
    /// The round's switch, pressed where the watcher finds one: requests in flight get their grace.
    pub stop: Stop,
    /// Says when the round is hopeless; None where it is to be played to its end.
    pub futility_stop: Option<FutilityStop>,
    /// Outcomes since the last flush of the journal.
    pub unwritten: Vec<Outcome>,
    /// Why the journal is not whole.
    pub fault: Option<StoreError>,
    /// Why the round ended early by its own decision.
    pub ending: Option<Ending>,
}

/// A running collector.
pub struct Collector(JoinHandle<Result<CollectorState, RunError>>);

impl Collector {
    /// Starts collecting what arrives on `results`, until every worker has dropped its end.
    pub fn start(state: CollectorState, results: Receiver<Finished>) -> Result<Collector, RunError> {
        let thread = std::thread::Builder::new().name("collect".into()).spawn(move || {
            stand_behind();
            // Workers must stop where no thread takes what they measure.
            let _alarm = Alarm(state.halt.clone());
            work(state, results)
        });
        thread.map(Collector).map_err(RunError::Thread)
    }

    /// What was collected.
    pub fn finish(self) -> Result<CollectorState, RunError> {
        self.0.join().map_err(|_| RunError::Panicked("collector"))?
    }
}

fn work(mut state: CollectorState, results: Receiver<Finished>) -> Result<CollectorState, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(RunError::Thread)?;
    runtime.block_on(state.collect(results));
    Ok(state)
}

impl CollectorState {
    async fn collect(&mut self, results: Receiver<Finished>) {
        let mut beat = tokio::time::interval(BEAT);
        loop {
            tokio::select! {
                biased;
                _ = beat.tick() => {
                    self.flush();
                    let progress = self.progress();
                    let _ = self.events.send(Event::Progress(progress));
                }
                finished = results.recv() => {
                    let Ok(finished) = finished else { break };
                    self.take(finished);
                    // No more than there are by now: the beat must not wait for a worker that never rests.
                    for finished in (0..results.len()).map_while(|_| results.try_recv().ok()) {
                        self.take(finished);
                    }
                    tokio::time::sleep(GATHER).await;
                }
            }
        }
        self.flush();
        self.live_metrics.average();
        let last = self.progress();
        // Nobody may be listening; that is theirs to decide.
        let _ = self.events.send(Event::CaseEnded(last));
    }

    fn flush(&mut self) {
        self.keep(|state| state.journal.flush());
        if self.fault.is_none() {
            self.unwritten.clear();
        }
        self.keep(|state| state.body_recorder.as_mut().map_or(Ok(()), BodyRecorder::flush));
    }

    /// Does something with the journal or the bodies, until that fails for the first time: then the round is halted, and what is in
    /// flight is still collected.
    fn keep(&mut self, work: impl FnOnce(&mut CollectorState) -> Result<(), StoreError>) {
        if self.fault.is_none() {
            self.fault = work(self).inspect_err(|_| self.halt.press()).err();
        }
    }

    fn take(&mut self, finished: Finished) {
        let Finished { mut outcome, text, copy, .. } = finished;
        let group = outcome.group.as_deref().unwrap_or_default();
        let own = self.tokenizers.iter().find(|(name, _)| name.is_empty() || within(group, name));
        if let (Some((_, tokenizer)), Some(text)) = (own, text) {
            outcome.counted.output = tokenizer.count(&text);
        }
        self.live_metrics.record(&outcome);
        if let Some(copies) = copy {
            self.keep(|state| state.body_recorder.as_mut().map_or(Ok(()), |body_recorder| body_recorder.take(&outcome, &copies)));
        }
        self.watch(&outcome);
        self.tally.count(&outcome);
        if let Some(rows) = &mut self.rows {
            rows.push(&Tagged { case: &self.id, round: self.round, shard: 0, outcome: &outcome });
            if self.futility_stop.as_mut().is_some_and(|futility_stop| futility_stop.look(&outcome, rows)) {
                self.halt.press();
            }
        }
        let record = Record::Outcome { case: self.case, round: self.round, outcome };
        self.keep(|state| state.journal.append(&record));
        if let Record::Outcome { outcome, .. } = record {
            self.unwritten.push(outcome);
        }
    }

    fn watch(&mut self, outcome: &Outcome) {
        let gauges = &self.gauges;
        let ending = self.early_stop.as_mut().and_then(|early_stop| early_stop.see(outcome, || total_counters(gauges).in_flight));
        // A round that is over by then ended by its plan, or by the person who stopped it.
        let Some(ending) = ending.filter(|_| self.stop.level() == Level::Run && self.halt.level() == Level::Run) else { return };
        self.stop.press();
        let _ = self.events.send(Event::Ending(ending.clone()));
        self.ending = Some(ending);
    }

    fn progress(&mut self) -> crate::run::event::Progress {
        let totals = total_counters(&self.gauges);
        self.live_metrics.progress(totals.in_flight, totals.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped;
    use llmscen_core::call::Call;
    use llmscen_core::outcome::Phase;
    use llmscen_core::units::Nanos;
    use std::io::Read;

    #[test]
    fn a_journal_that_fails_halts_the_round_and_costs_no_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.bin");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Whoever reads the pipe goes away after the journal's header: every later write fails.
        let header = {
            let path = path.clone();
            std::thread::spawn(move || std::fs::File::open(path).unwrap().read_exact(&mut [0; 12]))
        };
        let journal = Writer::create(&path).unwrap();
        header.join().unwrap().unwrap();
        let halt = Stop::default();
        let (live_metrics, events) = (LiveMetrics::new(None, None), mpsc::channel().0);
        let (tokenizers, gauges, early_stop, stop) = (Vec::new(), Vec::new(), None, Stop::default());
        let state = CollectorState {
            case: 0,
            id: "a".into(),
            round: 0,
            journal,
            body_recorder: None,
            tokenizers,
            tally: Tally::default(),
            rows: None,
            live_metrics,
            gauges,
            events,
            halt: halt.clone(),
            early_stop,
            stop,
            futility_stop: None,
            unwritten: Vec::new(),
            fault: None,
            ending: None,
        };
        let (sender, results) = async_channel::bounded(1);
        let collector = Collector::start(state, results).unwrap();
        for seq in 0..2000 {
            let call = Call { seq, ..Call::default() };
            let outcome = dropped(&call, Phase::Measured, Nanos::ZERO, &"x".repeat(100));
            sender.send_blocking(Finished::bare(outcome)).unwrap();
        }
        drop(sender);
        let collected = collector.finish().unwrap();
        // What went into the pipe is lost with it, and none of the others.
        let first = collected.unwritten.first().map_or(2000, |outcome| outcome.seq);
        assert_eq!(collected.unwritten.iter().map(|outcome| outcome.seq).collect::<Vec<_>>(), (first..2000).collect::<Vec<_>>());
        assert!(collected.unwritten.len() > 1000 && collected.tally.begun().len() == 2000);
        assert!(collected.fault.is_some());
        assert_eq!(halt.level(), Level::Drain);
    }
}
