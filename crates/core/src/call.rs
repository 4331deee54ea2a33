//! One request, rendered ahead of its time.

use crate::outcome::{Counted, Outcome, Phase};
use crate::request::Leave;
use crate::units::Nanos;

/// A request that waits for its instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Its number in the case, warm-up included.
    pub seq: u64,
    /// Its turn in the session, from 0.
    pub turn: u32,
    /// Turns of the session.
    pub turns: u32,
    /// Its entry of the case's mix, from 0.
    pub entry: usize,
    /// Its number, or its session's, among those of its entry; without a mix that is `seq`.
    pub number: u64,
    /// The part of the dataset that it belongs to, where the data tells parts apart.
    pub group: Option<String>,
    /// Headers of its own, over those of the target.
    pub headers: Vec<(String, String)>,
    /// Open loop: when it must leave, and the phase it belongs to. None in a closed loop, where both are known only
    /// when a slot becomes free.
    pub due: Option<(Nanos, Phase)>,
    /// The model it names.
    pub model: String,
    /// The serialised body.
    pub body: Vec<u8>,
    /// Whether the body asks for a stream.
    pub streamed: bool,
    /// The `max_tokens` it asks for.
    pub max_tokens: Option<u64>,
    /// Documents in it that are to be ranked.
    pub items: Option<u64>,
    /// Prompt tokens as counted here.
    pub prompt_tokens: Option<u64>,
    /// That count was made with a stand-in tokenizer.
    pub approximate: bool,
    /// When its user leaves; None: not before the end.
    pub leave: Option<Leave>,
}

impl Call {
    /// The outcome of this call of which nothing has happened yet.
    pub fn outcome(&self, phase: Phase) -> Outcome {
        Outcome {
            seq: self.seq,
            turn: self.turn,
            turns: self.turns,
            group: self.group.clone(),
            phase,
            model: self.model.clone(),
            streamed: self.streamed,
            timeline: Default::default(),
            status: None,
            reads: 0,
            bytes_out: self.body.len() as u64,
            bytes_in: 0,
            reconnects: 0,
            attempts: 0,
            usage: Default::default(),
            counted: Counted { prompt: self.prompt_tokens, output: None, approximate: self.approximate },
            server: Default::default(),
            items: self.items,
            max_tokens: self.max_tokens,
            response_id: None,
            request_id: None,
            end: Ok(Default::default()),
        }
    }
}
