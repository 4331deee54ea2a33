//! A row of a batch: its tokens, and whether it goes on.

use crate::generation_params::{Ask, Ended, Told};
use crate::sample;
use llmscen_core::units::Nanos;
use llmscen_datasets::token::{Growing, Tokenizer};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// What becomes of an ask.
#[derive(Debug)]
pub struct Row<'a> {
    /// What is asked.
    pub ask: &'a Ask,
    rng: ChaCha8Rng,
    /// Tokens of the prompt and generated ones, where a penalty wants to know.
    seen: BTreeSet<u32>,
    tokens: Vec<u32>,
    stamps: Vec<Nanos>,
    /// Room for the logits of all its steps, written to beforehand: no step waits for memory.
    logits: Option<Vec<f32>>,
    growing: Growing,
    /// The text in front of what stopped it.
    cut: Option<String>,
    ended: Option<Ended>,
}

impl<'a> Row<'a> {
    /// A row that has nothing yet, of a model of this limit and vocabulary.
    pub fn new(ask: &'a Ask, limit: usize, vocabulary: usize) -> Row<'a> {
        let room = limit.saturating_sub(ask.prompt.len());
        let steps = usize::try_from(ask.max_tokens).map_or(room, |most| most.min(room));
        let penalised = ask.sampling.repetition_penalty != 1.0;
        Row {
            ask,
            rng: ChaCha8Rng::seed_from_u64(ask.sampling.seed),
            seen: ask.prompt.iter().filter(|_| penalised).copied().collect(),
            tokens: Vec::new(),
            stamps: Vec::new(),
            logits: ask.logits.then(|| vec![f32::NAN; steps * vocabulary]),
            growing: Growing::default(),
            cut: None,
            ended: None,
        }
    }

    /// Whether more tokens are wanted.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// It is wanted no more.
    pub fn give_up(&mut self) {
        self.ended = Some(Ended::GivenUp);
    }

    /// Its last token, of the prompt where it has no other.
    pub fn last(&self) -> u32 {
        self.tokens.last().or(self.ask.prompt.last()).copied().unwrap_or(0)
    }

    /// Chooses its next token, where it goes on. Writes over the logits.
    pub fn choose(&mut self, logits: &mut [f32]) {
        if !self.goes_on() {
            return;
        }
        let from = self.tokens.len() * logits.len();
        if let Some(kept) = self.logits.as_mut().and_then(|all| all.get_mut(from..from + logits.len())) {
            kept.copy_from_slice(logits);
        }
        let sampling = &self.ask.sampling;
        let token = sample::choose(logits, sampling, &self.seen, &mut self.rng);
        if sampling.repetition_penalty != 1.0 {
            self.seen.insert(token);
        }
        self.tokens.push(token);
    }

    /// Stamps the token that was chosen, and ends the row where that was its last.
    pub fn settle(&mut self, stamp: Nanos, tokenizer: &Tokenizer, eos: &[u32], limit: usize) {
        if !self.goes_on() {
            return;
        }
        self.stamps.push(stamp);
        let token = self.last();
        if !self.ask.ignore_eos && eos.contains(&token) {
            self.ended = Some(Ended::Stop);
            self.cut = Some(tokenizer.decode(self.tokens.split_last().map_or(&[], |(_, before)| before)).unwrap_or_default());
        } else if !self.ask.stop.is_empty() && self.stops(tokenizer, token) {
            self.ended = Some(Ended::Stop);
        } else if self.tokens.len() as u64 >= self.ask.max_tokens || self.ask.prompt.len() + self.tokens.len() >= limit {
            self.ended = Some(Ended::Length);
        }
    }

    /// Whether the text holds a stop now; it may have begun in what was there before.
    fn stops(&mut self, tokenizer: &Tokenizer, token: u32) -> bool {
        let brought = self.growing.push(tokenizer, token);
        let text = self.growing.text();
        let longest = self.ask.stop.iter().map(String::len).max().unwrap_or(0);
        let from = text.floor_char_boundary((text.len() - brought).saturating_sub(longest));
        let stops = self.ask.stop.iter().filter(|stop| !stop.is_empty());
        let first = stops.filter_map(|stop| text.get(from..)?.find(stop.as_str())).min();
        self.cut = first.and_then(|at| text.get(..from + at)).map(str::to_owned);
        self.cut.is_some()
    }

    /// What became of it.
    pub fn told(self, tokenizer: &Tokenizer, vocabulary: usize) -> Told {
        let text = self.cut.or_else(|| tokenizer.decode(&self.tokens)).unwrap_or_default();
        let ended = self.ended.unwrap_or(Ended::GivenUp);
        let mut logits = self.logits;
        logits.iter_mut().for_each(|all| all.truncate(self.tokens.len() * vocabulary));
        Told { tokens: self.tokens, text, stamps: self.stamps, ended, logits }
    }
}
