//! Renders requests ahead of their send times, in order, on a separate thread.

pub(crate) mod client_cancel;
pub(crate) mod conversation;
pub(crate) mod row_usage;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tool_results;
pub mod traffic_class;
pub(crate) mod turn_renderer;

use crate::run::error::RunError;
use crate::run::execution::stop::{Level, Stop};
use crate::run::prepare::PreparedCase;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::prepare_first_turn;
use crate::run::requests::traffic_class::{ClassSource, RequestPosition, build_call};
use crate::run::requests::turn_renderer::{TurnRange, render_begin};
use async_channel::{Receiver, Sender, TrySendError, bounded};
use llmscen_core::dataset::OnExhausted;
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Case;
use llmscen_core::request::PreparedRequest;
use llmscen_core::schedule::Schedule;
use llmscen_core::schedule::mix::MixAssigner;
use llmscen_core::schedule::shard::{Shard, Split};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_telemetry::process::lower_thread_priority;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum size of the queued request bodies.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Minimum and maximum number of queued requests, whatever their size.
const QUEUED_REQUESTS: RangeInclusive<usize> = 16..=4096;
/// Maximum for a burst, which is due all at once.
const QUEUED_BURST_REQUESTS: usize = 65_536;
/// How often the switch is checked while requests are rendered.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after a full queue has free capacity again. To wake this thread for each request would cost a worker more than a short request
/// does.
const REFILL_PAUSE: Duration = Duration::from_millis(1);
/// Time to wait for dataset rows before the round starts with the requests rendered so far.
const MAX_DATA_WAIT: Duration = Duration::from_secs(1);

/// Generates the requests of a shard in a round, in order. It plans those of the other shards too, but does not render them.
pub struct RequestGenerator {
    classes: Vec<ClassSource>,
    /// Assigns requests to the entries of the mix.
    deal: MixAssigner,
    /// Send times of an open loop; None for a closed loop.
    schedule: Option<Schedule>,
    /// Maximum number of requests, if known.
    limit: Option<u64>,
    /// Whether all requests are due at time zero.
    burst: bool,
    /// Whether arrivals at `max_in_flight` wait.
    holds: bool,
    /// Whether sessions may have several turns.
    conversations: bool,
    /// Which requests are the shard's own.
    split: Split,
    /// Number of the next request of the plan.
    seq: u64,
    next: Option<PlannedRequest>,
    /// Number of own sessions before the end of the dataset, if that came before the end of the load.
    data_ended: Option<u64>,
}

/// A request before it is rendered.
#[derive(Clone, Copy)]
struct PlannedRequest {
    position: RequestPosition,
    due: Option<(Nanos, Phase)>,
}

impl RequestGenerator {
    /// The generator of a shard in one round of a case; `prompts`: those of each class.
    pub fn new(
        case: &Case,
        prepared: &PreparedCase,
        prompts: &[Arc<dyn Prompts>],
        seed: Seed,
        shard: Shard,
    ) -> RequestGenerator {
        let schedule = Schedule::for_case(case, seed, prepared.arrivals.as_ref());
        // The number of requests of a warm-up by time is unknown: the quota ends such a case, not the request queue.
        let counted = matches!(case.load.warmup, Warmup::Requests(_));
        let limit = if schedule.is_some() || !counted || case.load.requests.is_none() {
            None
        } else {
            case.load.planned()
        };
        let split = Split::new(shard, &case.load.shape);
        RequestGenerator {
            classes: ClassSource::new_all(&prepared.classes, prompts, seed),
            deal: MixAssigner::new(&case.mix, seed),
            schedule,
            limit,
            burst: case.load.shape == Shape::Burst,
            holds: case.load.holds(),
            conversations: prepared.conversations,
            split,
            seq: 0,
            next: None,
            data_ended: None,
        }
    }

    /// The next own request; None at the end of the load.
    fn plan_next(&mut self) -> Option<PlannedRequest> {
        while self.next.is_none() {
            let (due, planned) = match &mut self.schedule {
                Some(schedule) => schedule
                    .next()
                    .map(|due| (Some((due.at, due.phase)), due.entry))?,
                None if self.limit.is_some_and(|limit| self.seq >= limit) => return None,
                None => (None, None),
            };
            let (entry, number) = self.deal.next(planned);
            let position = RequestPosition {
                seq: self.seq,
                entry,
                number,
                ..RequestPosition::default()
            };
            self.seq += 1;
            let is_own = self.split.owns(position.seq);
            self.next =
                (is_own || self.has_ended(&position)).then_some(PlannedRequest { position, due });
        }
        self.next
    }

    /// Whether a request is known to be after the end of its dataset, which ends the requests of all shards.
    fn has_ended(&self, position: &RequestPosition) -> bool {
        self.classes
            .get(position.entry)
            .is_some_and(|source| source.prompts.has_ended(position.number))
    }

    /// Whether the next request can be rendered at once; waits for its dataset row up to `timeout`.
    fn is_ready(&mut self, timeout: Duration) -> bool {
        let Some(PlannedRequest { position, .. }) = self.plan_next() else {
            return true;
        };
        self.classes
            .get(position.entry)
            .is_none_or(|source| source.prompts.ready(position.number, timeout))
    }

    /// Size in bytes of the longest first body among the entries of a mix: requests of that entry may follow each other.
    fn longest_body(&self, stop: &Stop) -> Result<usize, RunError> {
        let mut longest = 0;
        for ClassSource {
            class,
            prompts,
            seed,
            ..
        } in self.classes.iter().filter(|_| self.classes.len() > 1)
        {
            wait_until(|| prompts.ready(0, STOP_POLL_INTERVAL), stop)?;
            if let Some(first) = prompts
                .session(0)
                .and_then(|session| session.turns.into_iter().next())
            {
                longest = longest.max(
                    class
                        .renderer
                        .body(&prepare_first_turn(first), 0, *seed)?
                        .bytes
                        .len(),
                );
            }
        }
        Ok(longest)
    }

    /// Renders the next request; None at the end of the load or of the dataset.
    fn render_next(&mut self) -> Result<Option<PreparedRequest>, RunError> {
        let Some(PlannedRequest { position, due }) = self.plan_next() else {
            return Ok(None);
        };
        self.next = None;
        let Some(source) = self.classes.get(position.entry) else {
            return Ok(None);
        };
        let ClassSource {
            class,
            prompts,
            seed,
            endpoints,
        } = source;
        let Some(session) = prompts
            .session(position.number)
            .filter(|session| !session.turns.is_empty())
        else {
            if let Some(fault) = prompts.fault() {
                return Err(RunError::Data(fault));
            }
            if class.case.dataset.on_exhausted == OnExhausted::Fail {
                return Err(RunError::Exhausted {
                    rows: position.number,
                });
            }
            self.data_ended = Some(self.split.local_index(position.seq));
            return Ok(None);
        };
        let settings = class.case.dataset.turns.as_ref();
        let range = TurnRange::draw(&session, settings, *seed, position.number);
        let position = RequestPosition {
            turn: range.first_sent(),
            turns: range.turns,
            first_turn: range.first,
            ..position
        };
        if range.turns > 1 && !self.conversations {
            return Err(RunError::Conversation {
                seq: position.number,
                turns: range.turns,
            });
        }
        let dependencies = session.dependencies();
        if dependencies.is_some() && class.case.target.api.keeps_conversation() {
            return Err(RunError::Branches {
                seq: position.number,
                api: class.case.target.api,
            });
        }
        let first = match range.first {
            0 => session.turns.into_iter().next().map(prepare_first_turn),
            _ => render_begin(source, session, position)?,
        };
        let mut prompt = first.unwrap_or_default();
        // No earlier request of the session has a part of it.
        let of_session = class.case.dataset.is_session(range.turns).then_some(0);
        prompt.cacheable_tokens = class.cacheable_tokens(prompt.cacheable_tokens, of_session);
        prompt.group = class.group(prompt.group);
        let rendered = class.renderer.body(&prompt, position.number, *seed)?;
        let leave = draw_client_cancel(
            class.case.request.cancel.as_ref(),
            *seed,
            position,
            &prompt.fields,
        );
        Ok(Some(PreparedRequest {
            dependencies,
            ..build_call(class, prompt, position, rendered, endpoints, due, leave)
        }))
    }
}

/// Renders the first request of a round.
///
/// # Errors
/// It cannot be rendered, or `stop` was pressed: [`RunError::Interrupted`].
pub fn render_first(
    generator: &mut RequestGenerator,
    stop: &Stop,
) -> Result<PreparedRequest, RunError> {
    wait_until(|| generator.is_ready(STOP_POLL_INTERVAL), stop)?;
    generator.render_next()?.ok_or(RunError::NothingToSend)
}

/// Renders these requests of a round, in ascending order, up to the end of load or dataset: shards compare them. `generator`: that of
/// the whole plan.
///
/// # Errors
/// As of [`render_first`].
pub fn render_numbers(
    generator: &mut RequestGenerator,
    numbers: &[u64],
    stop: &Stop,
) -> Result<Vec<PreparedRequest>, RunError> {
    let mut rendered = Vec::new();
    for &number in numbers {
        while let Some(PlannedRequest { position, .. }) = generator.plan_next()
            && position.seq < number
            && !generator.has_ended(&position)
        {
            generator.next = None;
        }
        wait_until(|| generator.is_ready(STOP_POLL_INTERVAL), stop)?;
        match generator.render_next() {
            Ok(Some(call)) => rendered.push(call),
            Ok(None) | Err(RunError::Exhausted { .. }) => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(rendered)
}

/// The queue from which workers take requests, and the thread that fills it.
pub struct RequestQueue {
    /// One queue per worker. In a closed loop these are clones of one queue, so that a faster worker takes more requests; and if
    /// arrivals are held, so that no worker keeps one back that was due before those of the others.
    pub queues: Vec<Receiver<PreparedRequest>>,
    thread: JoinHandle<Result<Option<u64>, RunError>>,
}

impl RequestQueue {
    /// Starts rendering. Returns when the queue is full, when all requests are rendered, or when `stop` is pressed.
    pub fn start(
        mut generator: RequestGenerator,
        workers: usize,
        stop: &Stop,
    ) -> Result<RequestQueue, RunError> {
        let first = match render_first(&mut generator, stop) {
            // A plan may have fewer requests than shards.
            Err(RunError::NothingToSend)
                if generator.seq > 0 && !generator.split.shard().is_whole() =>
            {
                None
            }
            first => Some(first?),
        };
        let first_body = first.as_ref().map_or(0, |first| first.body.len());
        let fitting = MAX_QUEUED_BYTES / generator.longest_body(stop)?.max(first_body).max(1);
        let most = if generator.burst {
            QUEUED_BURST_REQUESTS
        } else {
            *QUEUED_REQUESTS.end()
        };
        let capacity = fitting.clamp(*QUEUED_REQUESTS.start(), most);
        let queues = if generator.schedule.is_some() && !generator.holds {
            workers
        } else {
            1
        };
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..queues)
            .map(|_| bounded(capacity.div_ceil(queues)))
            .unzip();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("requests".into())
            .spawn(move || {
                lower_thread_priority();
                fill_queues(generator, first, &senders, ready)
            });
        let thread = thread.map_err(RunError::Thread)?;
        // The sender is dropped when enough requests are rendered or the thread has ended; `finish` returns its error.
        while stop.level() == Level::Run
            && is_ready.recv_timeout(STOP_POLL_INTERVAL) == Err(RecvTimeoutError::Timeout)
        {}
        Ok(RequestQueue {
            queues: receivers.iter().cycle().take(workers).cloned().collect(),
            thread,
        })
    }

    /// Ends the queue and discards its requests. Returns the number of own sessions before the end of the dataset, if that came before
    /// the end of the load.
    ///
    /// # Errors
    /// A request could not be rendered.
    pub fn finish(self) -> Result<Option<u64>, RunError> {
        drop(self.queues);
        self.thread
            .join()
            .map_err(|_| RunError::Panicked("requests"))?
    }
}

/// Waits until `ready` returns true or the switch is pressed.
fn wait_until(mut ready: impl FnMut() -> bool, stop: &Stop) -> Result<(), RunError> {
    while !ready() {
        if stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
    }
    Ok(())
}

fn fill_queues(
    mut generator: RequestGenerator,
    first: Option<PreparedRequest>,
    queues: &[Sender<PreparedRequest>],
    ready: mpsc::Sender<()>,
) -> Result<Option<u64>, RunError> {
    let mut ready = Some(ready);
    let mut next = first;
    let mut waited = Duration::ZERO;
    while let Some(call) = next {
        // By the count of own requests: the numbers of a shard may all be multiples of the number of workers.
        let queue = &queues[generator.split.local_index(call.seq) as usize % queues.len()];
        match queue.try_send(call) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Ok(None),
            Err(TrySendError::Full(call)) => {
                ready.take();
                if queue.send_blocking(call).is_err() {
                    return Ok(None);
                }
                std::thread::sleep(REFILL_PAUSE);
            }
        }
        loop {
            let began = Instant::now();
            let has_data = generator.is_ready(STOP_POLL_INTERVAL);
            waited += began.elapsed();
            if waited >= MAX_DATA_WAIT {
                ready.take();
            }
            if has_data {
                break;
            }
            // A slow dataset must not delay the end of a round.
            if queues.iter().all(Sender::is_closed) {
                return Ok(None);
            }
        }
        next = generator.render_next()?;
    }
    Ok(generator.data_ended)
}
