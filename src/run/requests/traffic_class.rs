//! Traffic classes: all requests of a case, or those of one entry of its mix, and the dataset rows of each.

use crate::run::requests::row_usage::is_endless;
use llmscen_client::API_KEY_HEADERS;
use llmscen_client::aws::body_sha256;
use llmscen_core::dataset::{OnExhausted, Prompt, Session};
use llmscen_core::endpoint::EndpointSelector;
use llmscen_core::expect::Truths;
use llmscen_core::load::Shape;
use llmscen_core::mix::MixEntry;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Case;
use llmscen_core::request::{ClientCancel, PreparedRequest};
use llmscen_core::schedule::{Schedule, mix};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::Tokenizer;
use llmscen_datasets::{PromptError, Prompts};
use llmscen_requests::answers::AnswerChecker;
use llmscen_requests::render::{Rendered, Renderer};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One kind of request: its dataset, renderer and tokenizer.
pub struct TrafficClass {
    /// Entry of the mix; None without a mix.
    pub entry: Option<MixEntry>,
    /// The case with the settings of this entry.
    pub case: Case,
    /// Prompts.
    pub prompts: Arc<dyn Prompts>,
    /// Counts generated tokens, if the scenario names a tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Renders request bodies.
    pub renderer: Arc<Renderer>,
    /// Checks answers, if the scenario has checks.
    pub answers: Option<Arc<AnswerChecker>>,
}

impl TrafficClass {
    /// The group of a request, from the group in its dataset row.
    pub fn group(&self, row_group: Option<String>) -> Option<String> {
        match &self.entry {
            Some(entry) => Some(entry.group(row_group.as_deref())),
            None => row_group,
        }
    }

    /// Tokens of a prompt that a prefix cache may have: of the data, else of the session. None without a tokenizer to
    /// count them.
    pub fn cacheable_tokens(&self, of_data: Option<u64>, of_session: Option<u64>) -> Option<u64> {
        of_data.or(of_session).filter(|_| self.tokenizer.is_some())
    }

    /// Whether the headers of the entry have an API key, which replaces that of the target.
    fn has_own_key(&self) -> bool {
        let mut own = self.entry.iter().flat_map(|entry| &entry.headers);
        own.any(|(name, _)| is_api_key(name))
    }

    /// The headers of a request, from those in its dataset row, which override those of the entry, except a recorded
    /// API key.
    fn headers(&self, mut of_row: Vec<(String, String)>, own_key: bool) -> Vec<(String, String)> {
        if own_key {
            of_row.retain(|(name, _)| !is_api_key(name));
        }
        let own = self.entry.iter().flat_map(|entry| &entry.headers);
        let mut headers: Vec<(String, String)> = own
            .filter(|(name, _)| !of_row.iter().any(|(row, _)| row.eq_ignore_ascii_case(name)))
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect();
        headers.extend(of_row);
        headers
    }

    /// The seed of its requests in a round; that of an entry does not depend on the other entries.
    pub fn seed(&self, round: Seed) -> Seed {
        self.entry
            .as_ref()
            .map_or(round, |entry| mix::entry_seed(round, &entry.name))
    }
}

/// One traffic class in one round.
pub(crate) struct ClassSource {
    pub class: Arc<TrafficClass>,
    /// The prompts, by the number of the request within the class.
    pub prompts: Arc<dyn Prompts>,
    /// Seed of the class in this round.
    pub seed: Seed,
    /// Selects the URL of each request.
    pub endpoints: EndpointSelector,
}

impl ClassSource {
    /// The sources of a round from its classes, the prompts of each, and the seed of the round.
    pub fn new_all(
        classes: &[Arc<TrafficClass>],
        prompts: &[Arc<dyn Prompts>],
        round: Seed,
    ) -> Vec<ClassSource> {
        let source = |(class, prompts): (&Arc<TrafficClass>, &Arc<dyn Prompts>)| ClassSource {
            class: class.clone(),
            prompts: prompts.clone(),
            seed: class.seed(round),
            endpoints: EndpointSelector::new(class.case.target.location.endpoints(), round),
        };
        classes.iter().zip(prompts).map(source).collect()
    }
}

fn is_api_key(name: &str) -> bool {
    API_KEY_HEADERS
        .iter()
        .any(|key| name.eq_ignore_ascii_case(key.as_str()))
}

/// The number of a request of the cool-down within its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CooldownNumber {
    /// The number that the first one would have among the measured requests.
    pub from: u64,
    /// Its place in the cool-down, from 0.
    pub place: u64,
}

impl CooldownNumber {
    const FLAG: u64 = 1 << 63;
    const PLACE_BITS: u32 = 31;

    /// As [`RequestPosition::number`], apart from those of all other requests.
    pub(crate) fn encode(self) -> u64 {
        CooldownNumber::FLAG | self.from << CooldownNumber::PLACE_BITS | self.place
    }

    /// None for the number of another request.
    pub(crate) fn decode(number: u64) -> Option<CooldownNumber> {
        let rest = number & !CooldownNumber::FLAG;
        (rest != number).then_some(CooldownNumber {
            from: rest >> CooldownNumber::PLACE_BITS,
            place: rest & ((1 << CooldownNumber::PLACE_BITS) - 1),
        })
    }
}

/// The position of a request among those of its case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPosition {
    /// Number of the request, or of its session.
    pub seq: u64,
    /// Turn, from 0.
    pub turn: u32,
    /// Turns of the session.
    pub turns: u32,
    /// The first measured turn of the session.
    pub first_turn: u32,
    /// Entry of the mix, from 0.
    pub entry: usize,
    /// Number of the request, or of its session, among those of its entry.
    pub number: u64,
}

/// The request of a prompt of this class, from its rendered body.
pub fn build_call(
    class: &TrafficClass,
    prompt: Prompt,
    position: RequestPosition,
    rendered: Rendered,
    endpoints: &EndpointSelector,
    due: Option<(Nanos, Phase)>,
    leave: Option<ClientCancel>,
) -> PreparedRequest {
    let is_signed = class.case.target.aws().is_some();
    let own_key = class.has_own_key();
    let mut headers = class.headers(prompt.headers, own_key);
    let content_type = rendered.content_type;
    headers.extend(content_type.map(|value| ("content-type".to_owned(), value)));
    PreparedRequest {
        seq: position.seq,
        turn: position.turn,
        turns: position.turns,
        is_session: class.case.dataset.is_session(position.turns),
        first_turn: position.first_turn,
        dependencies: None,
        entry: position.entry,
        number: position.number,
        group: prompt.group,
        headers,
        own_key,
        due,
        model: rendered.model,
        body_sha256: is_signed.then(|| body_sha256(&rendered.bytes)),
        body: rendered.bytes,
        prompt_hash: Some(rendered.prompt_hash),
        streamed: rendered.streamed,
        max_tokens: rendered.max_tokens,
        choices: class.case.request.choices(),
        items: rendered.items,
        audio: rendered.audio,
        prompt_tokens: prompt.tokens,
        cacheable_tokens: prompt.cacheable_tokens,
        approximate: prompt.approximate,
        cancel: leave,
        endpoint: endpoints.select(position.seq, position.turn),
        held_until: None,
        truths: rendered
            .truths
            .map(|truths| Box::new(truths_of_turn(truths, position))),
    }
}

/// The truths of a turn. Those of a row are about the last answer of its conversation.
fn truths_of_turn(truths: Truths, position: RequestPosition) -> Truths {
    let class = position.entry;
    if position.turn + 1 < position.turns {
        Truths {
            class,
            ..Truths::default()
        }
    } else {
        Truths { class, ..truths }
    }
}

/// The dataset rows that a class takes in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStride {
    /// First row of the round for all classes.
    pub from: u64,
    /// First row of this class.
    pub first: u64,
    /// Distance between the rows of two requests: n if n mix entries share a finite dataset.
    pub step: u64,
}

impl Default for RowStride {
    /// Every row, from the first one on.
    fn default() -> RowStride {
        RowStride {
            from: 0,
            first: 0,
            step: 1,
        }
    }
}

impl RowStride {
    /// The row of a request, by its number within the class.
    pub fn row(&self, number: u64) -> u64 {
        self.first.wrapping_add(number.wrapping_mul(self.step))
    }
}

/// Rows of generated data before those of the cool-down.
const COOLDOWN_ROWS: u64 = 1 << 40;

/// The prompts at the rows of a stride, so that the cases of a sweep and the entries of a mix take different prompts.
pub struct StridedPrompts {
    /// All prompts of the dataset.
    pub prompts: Arc<dyn Prompts>,
    /// The rows to take.
    pub stride: RowStride,
    /// Whether the prompts end after the last row instead of starting again.
    pub once: bool,
    /// Whether they are generated without end.
    pub endless: bool,
    /// Whether each row is sent at its own logged time.
    pub logged: bool,
    /// Their number as the cool-down began; None where it was not known.
    pub rows_at_cooldown: OnceLock<Option<u64>>,
}

impl StridedPrompts {
    /// The row of a request, by its number within the class. The cool-down takes other rows than the measured
    /// requests of this round and of the next ones: of data with a known length the last ones, of generated data
    /// those after [`COOLDOWN_ROWS`].
    fn row(&self, number: u64) -> u64 {
        let Some(CooldownNumber { from, place }) = CooldownNumber::decode(number) else {
            return self.stride.row(number);
        };
        let next = self.stride.row(from + place);
        // Once: the turns of a session must all be of one row.
        match *self.rows_at_cooldown.get_or_init(|| self.rows()) {
            _ if self.logged => next,
            Some(rows) => {
                let back = self.stride.row(place).wrapping_sub(self.stride.from);
                rows.saturating_sub(1 + back % rows.max(1))
            }
            None if self.endless => next.wrapping_add(COOLDOWN_ROWS),
            None => next,
        }
    }

    fn rows(&self) -> Option<u64> {
        // A trace with generated prompts has as many rows as arrivals.
        self.prompts
            .len()
            .or_else(|| Some(self.prompts.arrivals()?.len() as u64))
    }
}

impl Prompts for StridedPrompts {
    fn session(&self, seq: u64) -> Option<Session> {
        let session = self.prompts.session(self.row(seq))?;
        // Checked after the lookup: the length of a long file is known once its end is reached.
        (!self.has_ended(seq)).then_some(session)
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        self.prompts.turn(self.row(seq), turn)
    }

    fn has_ended(&self, seq: u64) -> bool {
        let row = self.row(seq);
        let first = CooldownNumber::decode(seq)
            .map_or(self.stride.from, |cooldown| self.stride.row(cooldown.from));
        self.once
            && self
                .rows()
                .is_some_and(|rows| row < first || row - self.stride.from >= rows)
    }

    fn len(&self) -> Option<u64> {
        self.prompts.len()
    }

    fn dropped(&self) -> u64 {
        self.prompts.dropped()
    }

    fn ready(&self, seq: u64, timeout: Duration) -> bool {
        self.prompts.ready(self.row(seq), timeout)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.prompts.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.prompts.problems()
    }
}

/// The prompts of each class at the rows of its stride.
pub fn strided_prompts(
    classes: &[Arc<TrafficClass>],
    strides: &[RowStride],
) -> Vec<Arc<dyn Prompts>> {
    let strided = |(class, stride): (&Arc<TrafficClass>, &RowStride)| -> Arc<dyn Prompts> {
        let once = class.case.dataset.on_exhausted != OnExhausted::Cycle;
        Arc::new(StridedPrompts {
            prompts: class.prompts.clone(),
            stride: *stride,
            once,
            endless: is_endless(class),
            logged: matches!(class.case.load.shape, Shape::Replay { .. })
                && class.case.trace.is_none(),
            rows_at_cooldown: OnceLock::new(),
        })
    };
    classes.iter().zip(strides).map(strided).collect()
}

/// The tokenizer of each group; the empty name stands for all groups.
pub fn tokenizers(classes: &[Arc<TrafficClass>]) -> Vec<(String, Arc<Tokenizer>)> {
    let name = |class: &TrafficClass| {
        class
            .entry
            .as_ref()
            .map(|entry| entry.name.clone())
            .unwrap_or_default()
    };
    classes
        .iter()
        .filter_map(|class| Some((name(class), class.tokenizer.clone()?)))
        .collect()
}

/// The first class of each dataset: several entries may share one.
pub fn distinct_datasets(classes: &[Arc<TrafficClass>]) -> Vec<&Arc<TrafficClass>> {
    let mut distinct: Vec<&Arc<TrafficClass>> = Vec::new();
    for class in classes {
        if !distinct
            .iter()
            .any(|other| Arc::ptr_eq(&other.prompts, &class.prompts))
        {
            distinct.push(class);
        }
    }
    distinct
}

/// Finds the class of each request of a round, and its number within the class.
pub struct MixAssignment {
    deal: mix::MixAssigner,
    schedule: Option<Schedule>,
    mixed: bool,
    /// The latest request found: its number, and its class and number within it.
    latest: Option<(u64, (usize, u64))>,
}

impl MixAssignment {
    /// The assignment of a round with this seed; `arrivals`: those that it replays.
    pub fn new(case: &Case, seed: Seed, arrivals: Option<&Arc<[Nanos]>>) -> MixAssignment {
        let planned = case.entry_arrivals().is_some();
        let schedule = planned
            .then(|| Schedule::for_case(case, seed, arrivals))
            .flatten()
            .map(Schedule::with_cooldown);
        MixAssignment {
            deal: mix::MixAssigner::new(&case.mix, seed),
            schedule,
            mixed: !case.mix.is_empty(),
            latest: None,
        }
    }

    /// The class of request `seq`, and its number within the class. Must be called in ascending order of `seq`.
    pub fn find(&mut self, seq: u64) -> (usize, u64) {
        if !self.mixed {
            return (0, seq);
        }
        loop {
            match self.latest {
                Some((latest, found)) if latest >= seq => return found,
                latest => {
                    let planned = self
                        .schedule
                        .as_mut()
                        .and_then(|schedule| schedule.next()?.entry);
                    let next = latest.map_or(0, |(latest, _)| latest + 1);
                    self.latest = Some((next, self.deal.next(planned)));
                }
            }
        }
    }
}
