//! Renders requests ahead of their send times, in order, on a separate thread.

pub(crate) mod client_cancel;
pub(crate) mod conversation;
pub mod prepared_case;
pub(crate) mod row_usage;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tool_results;
pub mod traffic_class;
pub(crate) mod turn_renderer;

use crate::run::error::RunError;
use crate::run::event::Preparing;
use crate::run::requests::client_cancel::draw_client_cancel;
use crate::run::requests::conversation::prepare_first_turn;
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::requests::traffic_class::{
    ClassSource, CooldownNumber, RequestPosition, build_call,
};
use crate::run::requests::turn_renderer::{TurnRange, render_begin};
use crate::run::stop::{Level, Stop};
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
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
/// Pause after a full queue has free capacity again. To wake this thread for each request would cost a worker more
/// than a short request does.
const REFILL_PAUSE: Duration = Duration::from_millis(1);
/// Pause while the bodies in a queue have too many bytes.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Time to wait for dataset rows before the round starts with the requests rendered so far.
const MAX_DATA_WAIT: Duration = Duration::from_secs(1);
/// Time after which a round of sessions starts with a queue that is not full, once it has what the load needs first.
const MAX_FILL_TIME: Duration = Duration::from_millis(500);
/// How many times faster than they are due the requests of an open loop must be rendered, so that the round starts
/// before the queue is full.
const RENDER_AHEAD: f64 = 4.0;
/// Time before the progress of a start is shown, and between two displays of it.
const FIRST_PROGRESS: Duration = Duration::from_secs(2);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Generates the requests of a shard in a round, in order. It plans those of the other shards too, but does not
/// render them.
pub struct RequestGenerator {
    classes: Vec<ClassSource>,
    /// Assigns requests to the entries of the mix.
    deal: MixAssigner,
    /// Send times of an open loop; None for a closed loop.
    schedule: Option<Schedule>,
    /// Maximum number of requests without cool-down, if known.
    limit: Option<u64>,
    /// Maximum number of requests of the cool-down of a closed loop, if they are known by number.
    cooldown_limit: u64,
    /// For each entry, the number of its first request of the cool-down.
    cooldown_from: Vec<Option<u64>>,
    /// Requests that a closed loop sends at its start; None for an open loop.
    users: Option<u64>,
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
        let cools_down = case.load.cools_down(prepared.conversations);
        let schedule = Schedule::for_case(case, seed, prepared.arrivals.as_ref()).map(|schedule| {
            match cools_down {
                true => schedule.with_cooldown(),
                false => schedule,
            }
        });
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
            cooldown_limit: case.load.requests.filter(|_| cools_down).unwrap_or(0),
            cooldown_from: vec![None; prepared.classes.len()],
            users: case.load.shape.is_closed_loop().then(|| {
                let users = case.load.shape.users().unwrap_or(1);
                u64::from(split.users(users))
            }),
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
            let (due, planned, cools_down) = match (&mut self.schedule, self.limit) {
                (Some(schedule), _) => schedule.next().map(|due| {
                    let cools_down = due.phase == Phase::Cooldown;
                    (Some((due.at, due.phase)), due.entry, cools_down)
                })?,
                (None, Some(limit)) if self.seq >= limit + self.cooldown_limit => return None,
                (None, limit) => (None, None, limit.is_some_and(|limit| self.seq >= limit)),
            };
            let (entry, mut number) = self.deal.next(planned);
            if cools_down {
                let from = self.cooldown_from.get_mut(entry)?.get_or_insert(number);
                number = CooldownNumber {
                    from: *from,
                    place: number - *from,
                }
                .encode();
            }
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

    /// Whether a round of sessions can start with a queue that is not full: each user has a first request, or the
    /// first requests of an open loop are rendered much faster than they are due. `rendered`: number of requests,
    /// which took `time`; the latest is due at `due`. Other rounds have a full queue at their start, because they
    /// take requests from it faster.
    fn can_start(&self, rendered: u64, due: Option<Nanos>, time: Duration) -> bool {
        let has_first = match self.users {
            Some(users) => rendered >= users,
            None => due.is_some_and(|due| due.secs() >= RENDER_AHEAD * time.as_secs_f64()),
        };
        self.conversations && has_first && time >= MAX_FILL_TIME
    }

    /// Whether all requests before the cool-down have been planned.
    fn has_measured(&self) -> bool {
        self.cooldown_from.iter().any(Option::is_some)
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
            if CooldownNumber::decode(position.number).is_some() {
                return Ok(None);
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
        let later = session.later.as_ref().filter(|_| range.turns > 1);
        let has_whole_prompts = later.is_some_and(|later| !later.continues);
        if (dependencies.is_some() || has_whole_prompts)
            && class.case.target.api.keeps_conversation()
        {
            return Err(RunError::Branches {
                seq: position.number,
                api: class.case.target.api,
            });
        }
        let first = match range.first {
            0 => {
                let is_text = settings.is_some() && class.case.target.api.continues_text();
                let first = session.turns.into_iter().next();
                first.map(|first| prepare_first_turn(first, is_text))
            }
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

/// Renders these requests of a round, in ascending order, up to the end of load or dataset: shards compare them.
/// `generator`: that of the whole plan.
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
    /// One queue per worker. In a closed loop these are clones of one queue, so that a faster worker takes more
    /// requests; and if arrivals are held, so that no worker keeps one back that was due before those of the others.
    pub queues: Vec<Receiver<PreparedRequest>>,
    thread: JoinHandle<Result<Option<u64>, RunError>>,
}

impl RequestQueue {
    /// Starts rendering. Returns when the queue is full, when all requests are rendered, when enough are rendered for
    /// the start, or when `stop` is pressed. `show` shows the progress of a start that takes long.
    pub fn start(
        mut generator: RequestGenerator,
        workers: usize,
        stop: &Stop,
        show: impl Fn(Preparing),
    ) -> Result<RequestQueue, RunError> {
        let began = Instant::now();
        let first = match render_first(&mut generator, stop) {
            // A plan may have fewer requests than shards.
            Err(RunError::NothingToSend)
                if generator.seq > 0 && !generator.split.shard().is_whole() =>
            {
                None
            }
            first => Some(first?),
        };
        let capacity = if generator.burst {
            QUEUED_BURST_REQUESTS
        } else {
            *QUEUED_REQUESTS.end()
        };
        let queues = if generator.schedule.is_some() && !generator.holds {
            workers
        } else {
            1
        };
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..queues)
            .map(|_| bounded(capacity.div_ceil(queues)))
            .unzip();
        let rendered = Arc::new(AtomicU64::new(0));
        let mut step = Preparing {
            what: "preparing",
            unit: match generator.conversations {
                true => "sessions",
                false => "requests",
            },
            done: 0,
            total: generator.users,
        };
        let (ready, is_ready) = mpsc::channel();
        let counter = rendered.clone();
        let thread = std::thread::Builder::new()
            .name("requests".into())
            .spawn(move || {
                lower_thread_priority();
                fill_queues(
                    generator,
                    first,
                    &senders,
                    Start {
                        ready,
                        began,
                        rendered: counter,
                    },
                )
            });
        let thread = thread.map_err(RunError::Thread)?;
        // The sender is dropped when enough requests are rendered or the thread has ended; `finish` returns its error.
        let mut shown = began + FIRST_PROGRESS;
        while stop.level() == Level::Run
            && is_ready.recv_timeout(STOP_POLL_INTERVAL) == Err(RecvTimeoutError::Timeout)
        {
            if Instant::now() >= shown {
                shown += PROGRESS_INTERVAL;
                step.done = rendered.load(Ordering::Relaxed);
                show(step.clone());
            }
        }
        // The display ends with the step.
        if step.done > 0 {
            step.done = rendered.load(Ordering::Relaxed);
            step.total = Some(step.done);
            show(step);
        }
        Ok(RequestQueue {
            queues: receivers.iter().cycle().take(workers).cloned().collect(),
            thread,
        })
    }

    /// Ends the queue and discards its requests. Returns the number of own sessions before the end of the dataset, if
    /// that came before the end of the load.
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

/// The sizes of the bodies in a queue, which bound it where they are long.
#[derive(Clone)]
struct QueuedSizes {
    /// Bytes of each body, the oldest first.
    bodies: VecDeque<usize>,
    bytes: usize,
    /// Maximum of `bytes`, where the queue has `least` requests.
    most: usize,
    least: usize,
}

impl QueuedSizes {
    /// Of one of several queues.
    fn new(queues: usize) -> QueuedSizes {
        QueuedSizes {
            bodies: VecDeque::new(),
            bytes: 0,
            most: MAX_QUEUED_BYTES / queues,
            least: QUEUED_REQUESTS.start().div_ceil(queues),
        }
    }

    /// Whether a body of `bytes` must wait, while the queue has `queued` requests.
    fn is_full(&mut self, queued: usize, bytes: usize) -> bool {
        while self.bodies.len() > queued {
            self.bytes -= self.bodies.pop_front().unwrap_or(0);
        }
        queued >= self.least && self.bytes.saturating_add(bytes) > self.most
    }

    fn add(&mut self, bytes: usize) {
        self.bodies.push_back(bytes);
        self.bytes += bytes;
    }
}

/// When a round can start.
struct Start {
    /// Dropped when it can.
    ready: mpsc::Sender<()>,
    /// When rendering began.
    began: Instant,
    /// Number of rendered requests.
    rendered: Arc<AtomicU64>,
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
    Start {
        ready,
        began,
        rendered,
    }: Start,
) -> Result<Option<u64>, RunError> {
    let mut ready = Some(ready);
    let mut next = first;
    let mut waited = Duration::ZERO;
    let mut sizes = vec![QueuedSizes::new(queues.len().max(1)); queues.len()];
    while let Some(call) = next {
        let due = call.due.map(|(due, _)| due);
        let bytes = call.body.len();
        // By the count of own requests: the numbers of a shard may all be multiples of the number of workers.
        let place = generator.split.local_index(call.seq) as usize % queues.len();
        let (queue, sizes) = (&queues[place], &mut sizes[place]);
        while sizes.is_full(queue.len(), bytes) {
            ready.take();
            if queue.is_closed() {
                return Ok(None);
            }
            std::thread::sleep(FULL_PAUSE);
        }
        sizes.add(bytes);
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
        let count = rendered.fetch_add(1, Ordering::Relaxed) + 1;
        if generator.has_measured() || generator.can_start(count, due, began.elapsed()) {
            ready.take();
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
            // A slow dataset must not delay the end of a round, and the cool-down waits for no row.
            if queues.iter().all(Sender::is_closed) {
                return Ok(None);
            }
            if generator.has_measured() {
                return Ok(generator.data_ended);
            }
        }
        next = generator.render_next()?;
    }
    Ok(generator.data_ended)
}
