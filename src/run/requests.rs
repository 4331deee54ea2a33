//! Renders calls ahead of their time, in order, on a thread of its own.

pub(crate) mod client_cancel;
pub(crate) mod conversation;
pub(crate) mod row_usage;
pub mod traffic_class;
pub(crate) mod turn_renderer;

use crate::run::error::RunError;
use crate::run::execution::stop::{Level, Stop};
use crate::run::prepare::PreparedCase;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::opening;
use crate::run::requests::traffic_class::TrafficClass;
use crate::run::requests::turn_renderer::turn_count;
use async_channel::{Receiver, Sender, TrySendError, bounded};
use llmscen_core::call::Call;
use llmscen_core::dataset::OnExhausted;
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Case;
use llmscen_core::prompt::Prompt;
use llmscen_core::request::Leave;
use llmscen_core::schedule::due::Schedule;
use llmscen_core::schedule::mix::Deal;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_scenario::render::Rendered;
use llmscen_telemetry::process::stand_behind;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of rendered bodies that wait at the most.
const AHEAD_BYTES: usize = 64 << 20;
/// Calls that wait at the least and at the most, whatever their size.
const AHEAD_CALLS: RangeInclusive<usize> = 16..=4096;
/// A burst is due all at once, so all of it waits, up to this.
const BURST_CALLS: usize = 65_536;
/// While calls are made ready, the switch is looked at this often.
const LOOK: Duration = Duration::from_millis(50);
/// Rest once the queue is full and a call was taken: to wake this thread for each one would cost a worker more than a short
/// request does.
const GATHER: Duration = Duration::from_millis(1);
/// Waits for data, all together, before the round begins with what is ready.
const PATIENCE: Duration = Duration::from_secs(1);

/// Generates the requests of a round, in order.
pub struct RequestGenerator {
    classes: Vec<ClassSource>,
    /// Whose each request is.
    deal: Deal,
    /// The plan of an open loop; None: a closed one.
    schedule: Option<Schedule>,
    /// Calls at the most, where that is known.
    most: Option<u64>,
    /// Everything is due at time zero.
    burst: bool,
    /// Sessions may have several turns: replies are kept for it.
    conversations: bool,
    /// The next call's number.
    seq: u64,
    next: Option<PlannedRequest>,
    /// Sessions before the end of the data, once it has been reached before that of the plan.
    data_ended: Option<u64>,
}

/// What the calls of one class are made of.
struct ClassSource {
    class: Arc<TrafficClass>,
    /// The prompts, by the number among the class's requests.
    prompts: Arc<dyn Prompts>,
    /// Seed of the class's round.
    seed: Seed,
}

/// A call that is still to be made.
#[derive(Clone, Copy)]
struct PlannedRequest {
    place: RequestPosition,
    due: Option<(Nanos, Phase)>,
}

/// A request's place among the case's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPosition {
    /// Its number, or its session's.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// Turns of the session.
    pub turns: u32,
    /// Its entry of the mix, from 0.
    pub entry: usize,
    /// Its number, or its session's, among those of its entry.
    pub number: u64,
}

/// A rendered prompt as a call.
pub fn call(
    prompt: Prompt,
    place: RequestPosition,
    rendered: Rendered,
    due: Option<(Nanos, Phase)>,
    leave: Option<Leave>,
) -> Call {
    Call {
        seq: place.seq,
        turn: place.turn,
        turns: place.turns,
        entry: place.entry,
        number: place.number,
        group: prompt.group,
        headers: prompt.headers,
        due,
        model: rendered.model,
        body: rendered.bytes,
        streamed: rendered.streamed,
        max_tokens: rendered.max_tokens,
        items: rendered.items,
        prompt_tokens: prompt.tokens,
        approximate: prompt.approximate,
        leave,
    }
}

impl RequestGenerator {
    /// Generates the requests of one round of a case; `prompts` are those of each class.
    pub fn new(case: &Case, prepared: &PreparedCase, prompts: &[Arc<dyn Prompts>], seed: Seed) -> RequestGenerator {
        let schedule = Schedule::of(case, seed, prepared.arrivals.as_ref());
        // A warm-up span has no count of its own: the quota ends such a case, not the request queue.
        let counted = matches!(case.load.warmup, Warmup::Requests(_));
        let most = if schedule.is_some() || !counted || case.load.requests.is_none() { None } else { case.load.planned() };
        let classes = prepared.classes.iter().zip(prompts);
        RequestGenerator {
            classes: classes
                .map(|(class, own)| ClassSource { class: class.clone(), prompts: own.clone(), seed: class.seed(seed) })
                .collect(),
            deal: Deal::new(&case.mix, seed),
            schedule,
            most,
            burst: case.load.shape == Shape::Burst,
            conversations: prepared.conversations,
            seq: 0,
            next: None,
            data_ended: None,
        }
    }

    /// The next call's place; None at the end of the plan.
    fn slot(&mut self) -> Option<PlannedRequest> {
        if self.next.is_none() {
            let (due, planned) = match &mut self.schedule {
                Some(schedule) => schedule.next().map(|due| (Some((due.at, due.phase)), due.entry))?,
                None if self.most.is_some_and(|most| self.seq >= most) => return None,
                None => (None, None),
            };
            let (entry, number) = self.deal.next(planned);
            let place = RequestPosition { seq: self.seq, entry, number, ..RequestPosition::default() };
            self.next = Some(PlannedRequest { place, due });
            self.seq += 1;
        }
        self.next
    }

    /// Whether the next call can be made at once; waits for that, for so long at the most.
    fn ready(&mut self, most: Duration) -> bool {
        let Some(PlannedRequest { place, .. }) = self.slot() else { return true };
        self.classes.get(place.entry).is_none_or(|own| own.prompts.ready(place.number, most))
    }

    /// Bytes of the longest first body among the entries of a mix: what is kept ahead must fit if they come in a row.
    fn widest(&self, stop: &Stop) -> Result<usize, RunError> {
        let mut widest = 0;
        for ClassSource { class, prompts, seed } in self.classes.iter().filter(|_| self.classes.len() > 1) {
            wait(|| prompts.ready(0, LOOK), stop)?;
            if let Some(first) = prompts.session(0).and_then(|session| session.turns.into_iter().next()) {
                widest = widest.max(class.renderer.body(&opening(first), 0, *seed)?.bytes.len());
            }
        }
        Ok(widest)
    }

    /// The next call; None at the end of the plan or the data.
    fn call(&mut self) -> Result<Option<Call>, RunError> {
        let Some(PlannedRequest { place, due }) = self.slot() else { return Ok(None) };
        self.next = None;
        let Some(ClassSource { class, prompts, seed }) = self.classes.get(place.entry) else { return Ok(None) };
        let Some(session) = prompts.session(place.number).filter(|session| !session.turns.is_empty()) else {
            if let Some(fault) = prompts.fault() {
                return Err(RunError::Data(fault));
            }
            return match class.case.dataset.on_exhausted {
                OnExhausted::Fail => Err(RunError::Exhausted { rows: place.number }),
                OnExhausted::Cycle | OnExhausted::Stop => {
                    self.data_ended = Some(place.seq);
                    Ok(None)
                }
            };
        };
        let turns = turn_count(&session, class.case.dataset.turns.as_ref());
        if turns > 1 && !self.conversations {
            return Err(RunError::Conversation { seq: place.number, turns });
        }
        let mut prompt = session.turns.into_iter().next().map(opening).unwrap_or_default();
        prompt.group = class.group(prompt.group);
        let rendered = class.renderer.body(&prompt, place.number, *seed)?;
        let place = RequestPosition { turns, ..place };
        let leave = draw_client_cancel(class.case.request.cancel.as_ref(), *seed, place, &prompt.fields);
        Ok(Some(call(prompt, place, rendered, due, leave)))
    }
}

/// The first call of a round.
///
/// # Errors
/// It cannot be made; or the switch came first: [`RunError::Interrupted`].
pub fn first_call(mut generator: RequestGenerator, stop: &Stop) -> Result<Call, RunError> {
    wait(|| generator.ready(LOOK), stop)?;
    generator.call()?.ok_or(RunError::NothingToSend)
}

/// A running request queue: where workers take their calls from.
pub struct RequestQueue {
    /// A queue per worker; clones of one shared queue in a closed loop, so that a faster worker takes more.
    pub queues: Vec<Receiver<Call>>,
    thread: JoinHandle<Result<Option<u64>, RunError>>,
}

impl RequestQueue {
    /// Starts rendering and returns when as much is ready as is kept ahead, or everything there is, or the switch is
    /// pressed.
    pub fn start(mut generator: RequestGenerator, workers: usize, stop: &Stop) -> Result<RequestQueue, RunError> {
        wait(|| generator.ready(LOOK), stop)?;
        let Some(first) = generator.call()? else { return Err(RunError::NothingToSend) };
        let fit = AHEAD_BYTES / generator.widest(stop)?.max(first.body.len()).max(1);
        let most = if generator.burst { BURST_CALLS } else { *AHEAD_CALLS.end() };
        let ahead = fit.clamp(*AHEAD_CALLS.start(), most);
        let queues = if generator.schedule.is_some() { workers } else { 1 };
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..queues).map(|_| bounded(ahead.div_ceil(queues))).unzip();
        let (ready, enough) = mpsc::channel();
        let thread = std::thread::Builder::new().name("requests".into()).spawn(move || {
            stand_behind();
            fill(generator, first, &senders, ready)
        });
        let thread = thread.map_err(RunError::Thread)?;
        // The other end is dropped when enough is ready, or when the thread ended; `finish` tells how.
        while stop.level() == Level::Run && enough.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {}
        Ok(RequestQueue { queues: receivers.iter().cycle().take(workers).cloned().collect(), thread })
    }

    /// Ends the request queue, whatever it still had. The number of sessions before the end of the data, where that came before the end
    /// of the plan.
    ///
    /// # Errors
    /// Not all that was asked for could be rendered.
    pub fn finish(self) -> Result<Option<u64>, RunError> {
        drop(self.queues);
        self.thread.join().map_err(|_| RunError::Panicked("requests"))?
    }
}

/// Waits until something is ready, or the switch is pressed.
fn wait(mut ready: impl FnMut() -> bool, stop: &Stop) -> Result<(), RunError> {
    while !ready() {
        if stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
    }
    Ok(())
}

fn fill(
    mut generator: RequestGenerator,
    first: Call,
    queues: &[Sender<Call>],
    ready: mpsc::Sender<()>,
) -> Result<Option<u64>, RunError> {
    let mut ready = Some(ready);
    let mut next = Some(first);
    let mut waited = Duration::ZERO;
    while let Some(call) = next {
        let queue = &queues[call.seq as usize % queues.len()];
        match queue.try_send(call) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Ok(None),
            Err(TrySendError::Full(call)) => {
                ready.take();
                if queue.send_blocking(call).is_err() {
                    return Ok(None);
                }
                std::thread::sleep(GATHER);
            }
        }
        loop {
            let began = Instant::now();
            let here = generator.ready(LOOK);
            waited += began.elapsed();
            if waited >= PATIENCE {
                ready.take();
            }
            if here {
                break;
            }
            // Rows that are still being read must not keep a round from its end, nor for long from its beginning.
            if queues.iter().all(Sender::is_closed) {
                return Ok(None);
            }
        }
        next = generator.call()?;
    }
    Ok(generator.data_ended)
}
