//! `trace`: requests that were logged elsewhere, at the instants they arrived.
//!
//! The text of the log is stored once, with an instant and a span per row; a prompt is made when its turn comes. A log of
//! lengths has no words of its own, so that a second pass over it has other words of the same lengths and repeats no prompt.

mod layout;
mod log;
#[cfg(test)]
mod tests;
mod words;

pub use log::{Log, read as log};

use super::error::PromptError;
use super::message::{last_user, tokens_of};
use super::{Prompts, Setting};
use crate::token::Tokenizer;
use layout::{Ask, Entry};
use llmscen_core::dataset::{OnExhausted, TraceSpec};
use llmscen_core::prompt::{Prompt, Session};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use log::Rows;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use words::Words;

struct Trace {
    rows: Rows,
    arrivals: Arc<[Nanos]>,
    spec: TraceSpec,
    /// Makes text of the logged lengths; None where the log has the requests themselves.
    words: Option<Words>,
    tokenizer: Option<Arc<Tokenizer>>,
    seed: Seed,
    first: u64,
    cycle: bool,
}

/// Reads the log, leaves out what does not fit, and makes the first prompt.
pub fn open(spec: &TraceSpec, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<impl Prompts + use<>, PromptError> {
    let path = Path::new(setting.spec.path.as_deref().ok_or(PromptError::NoPath { kind: "trace" })?);
    let mut rows = Rows::read(path, spec, setting.spec.strict, notes)?;
    if spec.match_output_length && !rows.outputs() {
        notes.push("the log does not say how long outputs were: `match_output_length` changes nothing".into());
    }
    let words = match rows.lengths() {
        true => Some(make_words(&rows, setting, notes)?),
        false => None,
    };
    if setting.spec.min_tokens.or(setting.spec.max_tokens).is_some() {
        let tokens = |entry: &Entry<'_>| match &entry.ask {
            Ask::Lengths { input, .. } => Some(*input),
            Ask::Whole { body, .. } => setting.tokenizer.as_ref().and_then(|own| tokens_of(&logged_prompt(body), own, None)),
        };
        rows.keep(|entry| setting.admits(tokens(entry)), notes)?;
    }
    let trace = Trace {
        arrivals: rows.arrivals(),
        rows,
        spec: spec.clone(),
        words,
        tokenizer: setting.tokenizer.clone(),
        seed: setting.seed.child("trace"),
        first: setting.first,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
    };
    trace.check()?;
    Ok(trace)
}

/// What makes the text of a log of lengths, with a word on what it cannot do exactly.
fn make_words(rows: &Rows, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<Words, PromptError> {
    if setting.tokenizer.is_none() {
        let note = "the log's lengths are made with the built-in stand-in tokenizer and are approximate";
        notes.push(format!("{note}; `dataset.tokenizer` names the model's own"));
    }
    let words = Words::new(setting.tokenizer(), setting.spec.system.as_deref())?;
    let alone = words.alone();
    let short =
        |index: &usize| rows.entry(*index).is_some_and(|entry| matches!(entry.ask, Ask::Lengths { input, .. } if input <= alone));
    match if alone == 0 { 0 } else { (0..rows.len()).filter(short).count() } {
        0 => {}
        short => notes.push(format!(
            "{short} of {} prompts of the log are no longer than system message and chat template alone, {alone} tokens: \
             they are sent with a word more",
            rows.len()
        )),
    }
    Ok(words)
}

impl Trace {
    /// That text of the first length can be made at all.
    fn check(&self) -> Result<(), PromptError> {
        match (&self.words, self.rows.entry(0).map(|entry| entry.ask)) {
            (Some(words), Some(Ask::Lengths { input, .. })) => {
                Ok(words.plain(input.max(words.alone() + 1), self.seed).map(drop)?)
            }
            _ => Ok(()),
        }
    }

    fn prompt(&self, index: u64) -> Option<Prompt> {
        let rows = self.rows.len() as u64;
        let entry = self.rows.entry((index % rows) as usize)?;
        let mapped = |model: Option<&str>| self.spec.model_mapping.get(model?).cloned();
        match entry.ask {
            Ask::Lengths { input, output, blocks } => {
                let (words, seed) = (self.words.as_ref()?, self.seed.child("row").child(index));
                let (text, tokens) = words.text_of(input, &blocks, (self.seed.child("pass").child(index / rows), seed))?;
                let (max_tokens, sampling) = (Some(output), self.exactly(output));
                let (model, approximate) = (mapped(entry.model.as_deref()), words.tokenizer.approximate());
                Some(Prompt { text, tokens: Some(tokens), approximate, max_tokens, sampling, model, ..Prompt::default() })
            }
            Ask::Whole { body, headers, output } => {
                let mut prompt = Prompt { headers, ..logged_prompt(body) };
                prompt.model = mapped(prompt.body.as_ref()?.get("model").and_then(Value::as_str));
                let body = prompt.body.as_mut()?;
                if let Some(model) = &prompt.model {
                    body.insert("model".to_owned(), json!(model));
                }
                if let Some(output) = output.filter(|_| self.spec.match_output_length) {
                    (prompt.max_tokens, prompt.sampling) = (Some(output), self.exactly(output));
                }
                prompt.tokens = self.tokenizer.as_ref().and_then(|tokenizer| tokens_of(&prompt, tokenizer, None));
                prompt.approximate = self.tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.approximate());
                Some(prompt)
            }
        }
    }

    /// What makes a server generate exactly the logged output, beside `max_tokens`.
    fn exactly(&self, output: u64) -> Map<String, Value> {
        let fields = [("min_tokens".to_owned(), json!(output)), ("ignore_eos".to_owned(), json!(true))];
        if self.spec.match_output_length { fields.into_iter().collect() } else { Map::new() }
    }
}

/// A logged body as a prompt, its last question as the text.
fn logged_prompt(body: &serde_json::value::RawValue) -> Prompt {
    let body: Map<String, Value> = serde_json::from_str(body.get()).unwrap_or_default();
    let messages = body.get("messages").and_then(Value::as_array).map(|messages| last_user(messages));
    let text = messages.or_else(|| Some(body.get("prompt")?.as_str()?.to_owned())).unwrap_or_default();
    Prompt { text, body: Some(body), ..Prompt::default() }
}

impl Prompts for Trace {
    fn session(&self, seq: u64) -> Option<Session> {
        if !self.cycle && seq >= self.rows.len() as u64 {
            return None;
        }
        self.prompt(self.first.wrapping_add(seq)).map(|prompt| Session { turns: vec![prompt] })
    }

    fn len(&self) -> Option<u64> {
        let endless = self.cycle && self.words.is_some();
        (!endless).then_some(self.rows.len() as u64)
    }

    fn dropped(&self) -> u64 {
        self.rows.dropped()
    }

    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        Some(self.arrivals.clone())
    }
}
