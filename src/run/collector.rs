//! Receives outcomes from the workers: counts tokens, checks answers, writes the journal, updates live metrics,
//! checks for early stops.

pub(crate) mod answer_judge;
pub(crate) mod body_recorder;
pub(crate) mod early_stop;
pub(crate) mod futility_stop;
pub(crate) mod live_metrics;
pub(crate) mod tally;

use crate::run::collector::answer_judge::AnswerJudge;
use crate::run::collector::body_recorder::BodyRecorder;
use crate::run::collector::early_stop::EarlyStopMonitor;
use crate::run::collector::futility_stop::FutilityStop;
use crate::run::collector::live_metrics::LiveMetrics;
use crate::run::collector::tally::Tally;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::panics::PressOnPanic;
use crate::run::progress::Progress;
use crate::run::sharding::{GroupViewer, RoundCounts};
use crate::run::stop::{Level, Stop};
use crate::store::journal::Writer;
use crate::store::{Record, StoreError};
use async_channel::Receiver;
use llmscen_analysis::{Builder, TaggedOutcome};
use llmscen_client::counters::{CounterTotals, LiveCounters};
use llmscen_client::http::CompletedCall;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::mix::is_in_group;
use llmscen_core::outcome::Outcome;
use llmscen_datasets::token::Tokenizer;
use llmscen_telemetry::process::lower_thread_priority;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of journal flushes and live metrics. After `kill -9`, at most the outcomes of one interval are missing.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// Pause in which outcomes accumulate: to wake this thread for each one would cost a worker more than all other work
/// of a short request.
const BATCH_PAUSE: Duration = Duration::from_millis(2);

/// The state of the collector during one round; [`Collector::finish`] returns it.
pub struct CollectorState {
    /// Index of the case in the plan.
    pub case: u32,
    /// Id of the case.
    pub id: String,
    /// Round, from 0.
    pub round: u32,
    /// Index of the shard.
    pub shard: u32,
    /// The journal of the run.
    pub journal: Writer,
    /// Stores bodies; None if none are stored.
    pub body_recorder: Option<BodyRecorder>,
    /// The tokenizer of each group; the empty name stands for all groups.
    pub tokenizers: Vec<(String, Arc<Tokenizer>)>,
    /// Checks answers; None if none are checked.
    pub answer_judge: Option<AnswerJudge>,
    /// Counts over the requests.
    pub tally: Tally,
    /// The rows so far, for a probe or a shard; None otherwise.
    pub rows: Option<Builder>,
    /// Live metrics.
    pub live_metrics: LiveMetrics,
    /// Counters of the workers.
    pub gauges: Vec<Arc<LiveCounters>>,
    /// Receives live metrics.
    pub events: mpsc::Sender<Event>,
    /// Pressed after an error of the journal, so that nothing more is sent.
    pub halt: Stop,
    /// Checks for a reason to end the round early; None if there can be none.
    pub early_stop: Option<EarlyStopMonitor>,
    /// Pressed by an early stop: requests in flight may finish within the drain time.
    pub stop: Stop,
    /// Ends a probe whose objectives cannot be met; None if the round must run to its end.
    pub futility_stop: Option<FutilityStop>,
    /// Outcomes since the last flush of the journal.
    pub unwritten: Vec<Outcome>,
    /// Why the journal is incomplete.
    pub fault: Option<StoreError>,
    /// Why the round ended early.
    pub ending: Option<EarlyStop>,
    /// The counts that shards exchange; None for a run of one process.
    pub shared_counts: Option<SharedCounts>,
}

/// The counts of a round that shards exchange while it runs.
pub struct SharedCounts {
    /// Those of this shard, for its next heartbeat.
    pub own: Arc<Mutex<RoundCounts>>,
    /// The newest ones of all shards; None on the shards that show nothing.
    pub view: Option<GroupViewer>,
    /// Sessions of the whole round, if known.
    pub planned: Option<u64>,
}

/// A running collector.
pub struct Collector(JoinHandle<Result<CollectorState, RunError>>);

impl Collector {
    /// Starts to receive outcomes, until every worker has ended.
    pub fn start(
        state: CollectorState,
        results: Receiver<CompletedCall>,
    ) -> Result<Collector, RunError> {
        let thread = std::thread::Builder::new()
            .name("collect".into())
            .spawn(move || {
                lower_thread_priority();
                // Without the collector nothing is recorded, so the workers must stop.
                let _on_panic = PressOnPanic(state.halt.clone());
                run(state, results)
            });
        thread.map(Collector).map_err(RunError::Thread)
    }

    /// Waits until the collector ends. Returns its state.
    pub fn finish(self) -> Result<CollectorState, RunError> {
        self.0.join().map_err(|_| RunError::Panicked("collector"))?
    }
}

fn run(
    mut state: CollectorState,
    results: Receiver<CompletedCall>,
) -> Result<CollectorState, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(RunError::Thread)?;
    runtime.block_on(state.collect(results));
    Ok(state)
}

impl CollectorState {
    async fn collect(&mut self, results: Receiver<CompletedCall>) {
        let mut flush = tokio::time::interval(FLUSH_INTERVAL);
        loop {
            tokio::select! {
                biased;
                _ = flush.tick() => {
                    self.flush();
                    self.share_counts();
                    let progress = self.progress();
                    let _ = self.events.send(Event::Progress(progress));
                }
                finished = results.recv() => {
                    let Ok(finished) = finished else { break };
                    self.record(finished);
                    // No more than are there now: a fast worker must not delay the flush.
                    for finished in (0..results.len()).map_while(|_| results.try_recv().ok()) {
                        self.record(finished);
                    }
                    tokio::time::sleep(BATCH_PAUSE).await;
                }
            }
        }
        self.flush();
        self.share_counts();
        self.live_metrics.average_token_rate();
        let last = self.progress();
        // The receiver may have ended.
        let _ = self.events.send(Event::CaseEnded(last));
    }

    fn flush(&mut self) {
        self.store(|state| state.journal.flush());
        if self.fault.is_none() {
            self.unwritten.clear();
        }
        self.store(|state| {
            state
                .body_recorder
                .as_mut()
                .map_or(Ok(()), BodyRecorder::flush)
        });
    }

    /// Writes to the journal or the bodies. The first error halts the round; outcomes in flight are still received,
    /// but not stored.
    fn store(&mut self, write: impl FnOnce(&mut CollectorState) -> Result<(), StoreError>) {
        if self.fault.is_none() {
            self.fault = write(self).inspect_err(|_| self.halt.press()).err();
        }
    }

    fn record(&mut self, finished: CompletedCall) {
        let CompletedCall {
            mut outcome,
            text,
            event_texts,
            message,
            captured: copy,
            session_token: _,
            truths,
        } = finished;
        let group = outcome.group.as_deref().unwrap_or_default();
        let tokenizer = self
            .tokenizers
            .iter()
            .find(|(name, _)| name.is_empty() || is_in_group(group, name));
        if let (Some((_, tokenizer)), Some(text)) = (tokenizer, text) {
            count_output(&mut outcome, tokenizer, &text, &event_texts);
        }
        if let (Some(judge), Some(truths)) = (&mut self.answer_judge, truths) {
            let message = message.unwrap_or_default();
            outcome.answer = judge.check(&outcome, &message, &truths).map(Box::new);
        }
        self.live_metrics.record(&outcome);
        if let Some(copies) = copy {
            self.store(|state| {
                state
                    .body_recorder
                    .as_mut()
                    .map_or(Ok(()), |body_recorder| {
                        body_recorder.record(&outcome, &copies)
                    })
            });
        }
        self.check_early_stop(&outcome);
        self.tally.count(&outcome);
        if let Some(rows) = &mut self.rows {
            rows.push(&TaggedOutcome {
                case: &self.id,
                round: self.round,
                shard: self.shard,
                outcome: &outcome,
            });
            if self
                .futility_stop
                .as_mut()
                .is_some_and(|futility_stop| futility_stop.check(&outcome, rows))
            {
                self.halt.press();
            }
        }
        let record = Record::Outcome {
            case: self.case,
            round: self.round,
            outcome,
        };
        self.store(|state| state.journal.append(&record));
        if let Record::Outcome { outcome, .. } = record {
            self.unwritten.push(outcome);
        }
    }

    fn check_early_stop(&mut self, outcome: &Outcome) {
        let gauges = &self.gauges;
        let ending = self
            .early_stop
            .as_mut()
            .and_then(|early_stop| early_stop.see(outcome, || total_counters(gauges).in_flight));
        // A round that has ended by plan or by signal has no other reason.
        // Shard 0 decides on the counts of all shards.
        let decides = self.shared_counts.is_none();
        let Some(ending) = ending.filter(|_| {
            decides && self.stop.level() == Level::Run && self.halt.level() == Level::Run
        }) else {
            return;
        };
        self.stop.press();
        let _ = self.events.send(Event::Ending(ending.clone()));
        self.ending = Some(ending);
    }

    fn progress(&mut self) -> Progress {
        let totals = total_counters(&self.gauges);
        let mut progress = self.live_metrics.progress(totals.in_flight, totals.events);
        if let Some(shared) = &self.shared_counts
            && let Some(view) = &shared.view
        {
            let sum = RoundCounts::sum(view().values());
            progress.total = shared.planned;
            progress.done = sum.done;
            progress.errors = sum.errors;
            progress.in_flight = sum.in_flight;
            progress.rate = sum.done as f64 / progress.elapsed_s.max(1e-3);
            progress.tokens_per_s = sum.events as f64 / progress.elapsed_s.max(1e-3);
        }
        progress
    }

    /// Stores the counts for the next heartbeat of this shard.
    fn share_counts(&mut self) {
        let Some(shared) = &self.shared_counts else {
            return;
        };
        let totals = total_counters(&self.gauges);
        let objectives = self.early_stop.as_ref().map(EarlyStopMonitor::counts);
        let counts = RoundCounts {
            objectives: objectives.unwrap_or_default(),
            ..self.live_metrics.round_counts(&totals)
        };
        *shared.own.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// The sum of the workers' counters.
pub fn total_counters(gauges: &[Arc<LiveCounters>]) -> CounterTotals {
    gauges
        .iter()
        .fold(CounterTotals::default(), |sum, worker| worker.add_to(sum))
}

/// Counts the output tokens of a reply, and those of each event unless the server did. With one token per event they
/// are no news.
fn count_output(
    outcome: &mut Outcome,
    tokenizer: &Tokenizer,
    text: &str,
    event_texts: &[Range<u32>],
) {
    let counts_events = outcome.timeline.weights.is_empty() && !tokenizer.approximate();
    if !counts_events || event_texts.is_empty() {
        outcome.counted.output = tokenizer.count(text);
        return;
    }
    let Some((all, weights)) = tokenizer.count_ranges(text, event_texts) else {
        return;
    };
    outcome.counted.output = Some(all);
    if all != outcome.timeline.tokens.len() as u64 {
        outcome.timeline.weights = weights;
        outcome.reply.weights_counted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_client::http::dropped_outcome;
    use llmscen_core::outcome::Phase;
    use llmscen_core::request::PreparedRequest;
    use llmscen_core::units::Nanos;
    use std::io::Read;

    #[test]
    fn the_events_of_a_reply_are_counted_unless_each_is_a_token() {
        let tokenizer = Tokenizer::builtin().into_exact();
        let text = "one two three four";
        let all = tokenizer.count(text).unwrap();
        let counted = |ranges: &[Range<u32>]| {
            let mut outcome = dropped_outcome(
                &PreparedRequest::default(),
                Phase::Measured,
                Nanos::ZERO,
                "",
            );
            outcome.timeline.tokens = vec![Nanos::ZERO; ranges.len()];
            count_output(&mut outcome, &tokenizer, text, ranges);
            assert_eq!(outcome.counted.output, Some(all));
            (outcome.timeline.weights, outcome.reply.weights_counted)
        };
        let (weights, is_counted) = counted(&[0..7, 7..18]);
        assert_eq!(
            (weights.iter().sum::<u32>(), is_counted),
            (all as u32, true)
        );
        assert_eq!(counted(&[]), (vec![], false));
        let mut each = vec![0..18; 1];
        each.resize(all as usize, 18..18);
        assert_eq!(counted(&each), (vec![], false), "as many events as tokens");
    }

    #[test]
    fn a_journal_error_halts_the_round_and_loses_no_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.bin");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        // The reader of the pipe ends after the header of the journal: every later write fails.
        let header = {
            let path = path.clone();
            std::thread::spawn(move || std::fs::File::open(path).unwrap().read_exact(&mut [0; 12]))
        };
        let journal = Writer::create(&path).unwrap();
        header.join().unwrap().unwrap();
        let halt = Stop::default();
        let state = CollectorState {
            case: 0,
            id: "a".into(),
            round: 0,
            shard: 0,
            journal,
            body_recorder: None,
            tokenizers: Vec::new(),
            answer_judge: None,
            tally: Tally::default(),
            rows: None,
            live_metrics: LiveMetrics::new(None, None),
            gauges: Vec::new(),
            events: mpsc::channel().0,
            halt: halt.clone(),
            early_stop: None,
            stop: Stop::default(),
            futility_stop: None,
            unwritten: Vec::new(),
            fault: None,
            ending: None,
            shared_counts: None,
        };
        let (sender, results) = async_channel::bounded(1);
        let collector = Collector::start(state, results).unwrap();
        for seq in 0..2000 {
            let call = PreparedRequest {
                seq,
                ..PreparedRequest::default()
            };
            let outcome = dropped_outcome(&call, Phase::Measured, Nanos::ZERO, &"x".repeat(100));
            sender.send_blocking(CompletedCall::bare(outcome)).unwrap();
        }
        drop(sender);
        let collected = collector.finish().unwrap();
        // Only outcomes in the pipe are lost.
        let first = collected
            .unwritten
            .first()
            .map_or(2000, |outcome| outcome.seq);
        assert_eq!(
            collected
                .unwritten
                .iter()
                .map(|outcome| outcome.seq)
                .collect::<Vec<_>>(),
            (first..2000).collect::<Vec<_>>()
        );
        assert!(collected.unwritten.len() > 1000 && collected.tally.begun().len() == 2000);
        assert!(collected.fault.is_some());
        assert_eq!(halt.level(), Level::Drain);
    }
}
