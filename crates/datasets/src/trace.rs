//! `trace`: logged requests with their arrival times.
//!
//! The text of the log is stored once, with a time and a span per row; prompts are generated on request. A log of
//! lengths has no texts: each pass over it has different random texts of the same lengths, so no prompt is repeated.
//! The text of a later turn is generated when the turn is rendered.
//!
//! Each request is sent by itself at its logged time. With `dataset.turns`, requests of a session are its turns, each
//! sent after the turns that it awaits: with its logged prompt, complete with the logged history, or with what the
//! row adds to a conversation.

mod layout;
mod log;
mod meaning;
mod otel;
mod sessions;
#[cfg(test)]
mod tests;
mod text;
mod weka;

pub use log::{Log, read_log};

use super::error::PromptError;
use super::message::{last_user, tokens_of};
use super::{Prompts, Setting};
use crate::token::{TokenError, Tokenizer};
use layout::{Entry, LoggedRequest};
use llmscen_core::dataset::{LaterTurns, OnExhausted, Prompt, Session, TraceRows, TraceSpec};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use log::{Reading, Rows, Turn};
use meaning::Meaning;
use serde_json::{Map, Value, json};
use sessions::Wait;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use text::TraceText;

struct Trace {
    rows: Rows,
    arrivals: Option<Arc<[Nanos]>>,
    spec: TraceSpec,
    /// The scenario has a think time for turns whose wait the log does not have.
    has_think_time: bool,
    /// Generates text of the logged lengths; None where the log contains request bodies.
    text: Option<TraceText>,
    /// Generates text of later turns that continue the conversation; None where each has a whole prompt.
    later_text: Option<TraceText>,
    /// What the rows of sessions are, and why.
    statement: Option<String>,
    /// Tokens of the leading blocks of each row that rows before it have, where the log has block ids.
    repeated_tokens: Option<Vec<u64>>,
    /// Why a first turn has no text.
    fault: OnceLock<Arc<PromptError>>,
    tokenizer: Option<Arc<Tokenizer>>,
    seed: Seed,
    first: u64,
    cycle: bool,
}

/// Seeds of the text of a request.
struct TextSeeds {
    /// Of the blocks with an id.
    blocks: Seed,
    /// Of the rest.
    row: Seed,
}

/// Reads the log without invalid rows, and checks that the first prompt can be generated.
pub fn open(
    spec: &TraceSpec,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    let path = Path::new(
        setting
            .spec
            .path
            .as_deref()
            .ok_or(PromptError::NoPath { kind: "trace" })?,
    );
    let reading = Reading {
        strict: setting.spec.strict,
        sessions: setting.spec.turns.is_some(),
    };
    let mut rows = Rows::read(path, spec, reading, notes)?;
    if spec.match_output_length && !rows.has_output_lengths() {
        notes.push("the log has no output lengths: `match_output_length` has no effect".into());
    }
    let block_tokens = rows.block_tokens(spec.block_tokens)?;
    let meaning = describe_rows(&rows, spec, block_tokens, reading.sessions)?;
    let continues = reading.sessions && meaning.rows == TraceRows::Delta;
    let turns = setting.spec.turns.as_ref();
    let begins_later = turns.is_some_and(|turns| turns.begin.is_some());
    if continues && begins_later {
        return Err(PromptError::Sessions {
            path: path.to_owned(),
            why: "its rows are deltas, without the replies between them; remove `dataset.turns.begin`",
        });
    }
    let text = if rows.are_lengths() {
        Some(open_text(&rows, block_tokens, continues, setting, notes)?)
    } else {
        None
    };
    let later_text = match continues {
        true => Some(TraceText::after_reply(setting.tokenizer(), block_tokens)?),
        false => None,
    };
    if setting
        .spec
        .min_tokens
        .or(setting.spec.max_tokens)
        .is_some()
    {
        let tokens = |entry: &Entry<'_>| match &entry.request {
            LoggedRequest::Lengths { input, .. } => Some(*input),
            LoggedRequest::Body { body, .. } => setting
                .tokenizer
                .as_ref()
                .and_then(|tokenizer| tokens_of(&logged_prompt(body), tokenizer, None)),
        };
        rows.filter(|entry| setting.admits(tokens(entry)), notes)?;
    }
    let limit = turns.and_then(|turns| turns.max);
    let sent = match continues {
        // The history of later turns has the replies of the server.
        true => 1,
        false => limit.map_or(usize::MAX, |limit| limit as usize),
    };
    let trace = Trace {
        arrivals: rows.arrivals(),
        // Without a tokenizer the tokens are not counted, and the rows before the beginning of a session are not sent.
        repeated_tokens: setting
            .tokenizer
            .as_ref()
            .filter(|_| !begins_later)
            .and_then(|_| rows.repeated_tokens(block_tokens, sent)),
        fault: OnceLock::new(),
        rows,
        spec: spec.clone(),
        has_think_time: turns.is_some_and(|turns| turns.think_time.is_some()),
        text,
        later_text,
        statement: meaning.statement,
        tokenizer: setting.tokenizer.clone(),
        seed: setting.seed.child("trace"),
        first: setting.first,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
    };
    trace.check()?;
    Ok(trace)
}

/// What the rows of sessions are. Without `dataset.turns` the requests are sent as they are, so only deltas need a
/// statement.
fn describe_rows(
    rows: &Rows,
    spec: &TraceSpec,
    block_tokens: u64,
    sessions: bool,
) -> Result<Meaning, PromptError> {
    let whole = Meaning {
        rows: TraceRows::Whole,
        statement: None,
    };
    if !rows.may_be_deltas() {
        return Ok(whole);
    }
    if sessions && (spec.rows.is_some() || rows.detects_deltas()) {
        return rows.meaning(spec.rows, block_tokens);
    }
    let Ok(Meaning {
        rows: TraceRows::Delta,
        statement: Some(statement),
    }) = rows.meaning(None, block_tokens)
    else {
        return Ok(whole);
    };
    let advice = match sessions {
        true => {
            "this layout has whole prompts, so they are sent without a history; set \
            `dataset.trace.rows: delta` to send it"
        }
        false => {
            "they are sent by themselves; set `dataset.turns: {}` to send each with the history of its session"
        }
    };
    Ok(Meaning {
        statement: Some(format!("it seems that {statement}; {advice}")),
        ..whole
    })
}

/// The generator of texts for a log of lengths. Adds notes on lengths that are not exact. `continues`: rows after the
/// first of a session add to the history.
fn open_text(
    rows: &Rows,
    block_tokens: u64,
    continues: bool,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<TraceText, PromptError> {
    if setting.tokenizer.is_none() {
        let note = "prompt lengths of the log are approximate (built-in tokenizer)";
        notes.push(format!(
            "{note}; set `dataset.tokenizer` to the model's tokenizer"
        ));
    }
    let text = TraceText::new(
        setting.tokenizer(),
        setting.spec.system.as_deref(),
        block_tokens,
    )?;
    let base_tokens = text.base_tokens();
    let is_short = |entry: &Entry<'_>| {
        matches!(entry.request, LoggedRequest::Lengths { input,
        .. } if input <= base_tokens)
    };
    let turns = if continues { 1 } else { usize::MAX };
    let short = if base_tokens == 0 {
        0
    } else {
        rows.entries(turns).filter(is_short).count()
    };
    if short > 0 {
        notes.push(format!(
            "{short} of {} prompts of the log have no more tokens than system message and chat \
             template ({base_tokens}): they are sent with 1 token more",
            rows.entries(turns).count()
        ));
    }
    Ok(text)
}

impl Trace {
    /// Checks that a text of the first length can be generated.
    fn check(&self) -> Result<(), PromptError> {
        let first = self.rows.entries(1).next().map(|entry| entry.request);
        match (&self.text, first) {
            (Some(text), Some(LoggedRequest::Lengths { input, .. })) => Ok(text
                .generate(text.planned_tokens(input), self.seed)
                .map(drop)?),
            _ => Ok(()),
        }
    }

    /// The session at this index of endless passes over the log.
    fn logged_session(&self, index: u64) -> Option<Session> {
        let first = self.logged_turn(index, 0);
        let first = first
            .map_err(|error| self.fault.get_or_init(|| Arc::new(error)))
            .ok()??;
        let number = self.number(index);
        let count = self.rows.turns(number);
        Some(Session {
            turns: vec![first],
            later: (count > 1).then(|| LaterTurns {
                count,
                awaited: self.rows.dependencies(number),
                continues: self.later_text.is_some(),
            }),
        })
    }

    /// A turn of the session at this index; None: there is no such turn.
    fn logged_turn(&self, index: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        let number = self.number(index);
        let Some(logged) = self.rows.turn_of_session(number, turn) else {
            return Ok(None);
        };
        let Some(mut prompt) = self.prompt(turn, &logged) else {
            return Ok(None);
        };
        self.write(turn, &logged.entry, self.seeds(index, turn), &mut prompt)?;
        if self.rows.turns(number) > 1 {
            prompt.wait = match logged.wait {
                Wait::Logged(wait) => Some(wait),
                Wait::SinceStart(wait) => (!self.has_think_time).then_some(wait),
            };
            // A whole prompt continues no history.
            prompt.links = self.later_text.is_none().then(Box::default);
        }
        Ok(Some(prompt))
    }

    /// The number of a session in the log, by its index in endless passes.
    fn number(&self, index: u64) -> usize {
        (index % self.rows.len() as u64) as usize
    }

    fn seeds(&self, index: u64, turn: u32) -> TextSeeds {
        let sessions = self.rows.len() as u64;
        let mut blocks = self.seed.child("pass").child(index / sessions);
        if self.rows.has_local_ids() {
            blocks = blocks.child("session").child(index % sessions);
        }
        let row = self.seed.child("row").child(index);
        TextSeeds {
            blocks,
            row: match turn {
                0 => row,
                _ => row.child(u64::from(turn)),
            },
        }
    }

    /// The generator of the text of a turn; None where the log contains request bodies.
    fn generator(&self, turn: u32) -> Option<&TraceText> {
        let later = self.later_text.as_ref().filter(|_| turn > 0);
        later.or(self.text.as_ref())
    }

    /// The request of a turn, without a generated text and what only turns of a session have.
    fn prompt(&self, number: u32, turn: &Turn<'_>) -> Option<Prompt> {
        let mapped = |model: Option<&str>| self.spec.model_mapping.get(model?).cloned();
        match &turn.entry.request {
            LoggedRequest::Lengths { input, output, .. } => {
                let generator = self.generator(number)?;
                let tokens = generator.planned_tokens(*input);
                let continues = self.later_text.is_some() && number > 0;
                let repeated = self.repeated_tokens.as_ref().filter(|_| !continues);
                Some(Prompt {
                    tokens: Some(tokens),
                    approximate: generator.tokenizer.approximate(),
                    cacheable_tokens: repeated.and_then(|repeated| repeated.get(turn.row).copied()),
                    max_tokens: Some(*output).filter(|_| !self.spec.ignores_output),
                    sampling: self.exact_output(*output),
                    model: mapped(turn.entry.model.as_deref()),
                    ..Prompt::default()
                })
            }
            LoggedRequest::Body {
                body,
                headers,
                output,
            } => {
                let mut prompt = Prompt {
                    headers: headers.clone(),
                    ..logged_prompt(body)
                };
                prompt.model = mapped(prompt.body.as_ref()?.get("model").and_then(Value::as_str));
                let body = prompt.body.as_mut()?;
                if let Some(model) = &prompt.model {
                    body.insert("model".to_owned(), json!(model));
                }
                if let Some(output) = output.filter(|_| self.spec.match_output_length) {
                    prompt.max_tokens = Some(output);
                    prompt.sampling = self.exact_output(output);
                }
                prompt.tokens = self
                    .tokenizer
                    .as_ref()
                    .and_then(|tokenizer| tokens_of(&prompt, tokenizer, None));
                prompt.approximate = self
                    .tokenizer
                    .as_ref()
                    .is_some_and(|tokenizer| tokenizer.approximate());
                Some(prompt)
            }
        }
    }

    /// Writes the text of a request of which the log has the lengths.
    fn write(
        &self,
        turn: u32,
        entry: &Entry<'_>,
        seeds: TextSeeds,
        prompt: &mut Prompt,
    ) -> Result<(), TokenError> {
        if let (Some(generator), LoggedRequest::Lengths { input, blocks, .. }) =
            (self.generator(turn), &entry.request)
        {
            let (text, tokens) =
                generator.generate_with_blocks(*input, blocks, seeds.blocks, seeds.row)?;
            prompt.text = text;
            prompt.tokens = Some(tokens);
        }
        Ok(())
    }

    /// The parameters besides `max_tokens` with which a server generates exactly `output` tokens.
    fn exact_output(&self, output: u64) -> Map<String, Value> {
        let fields = [
            ("min_tokens".to_owned(), json!(output)),
            ("ignore_eos".to_owned(), json!(true)),
        ];
        if self.spec.match_output_length {
            fields.into_iter().collect()
        } else {
            Map::new()
        }
    }
}

/// The prompt of a logged body, whose text is the last user message.
fn logged_prompt(body: &serde_json::value::RawValue) -> Prompt {
    let body: Map<String, Value> = serde_json::from_str(body.get()).unwrap_or_default();
    let messages = body
        .get("messages")
        .and_then(Value::as_array)
        .map(|messages| last_user(messages));
    let text = messages
        .or_else(|| Some(body.get("prompt")?.as_str()?.to_owned()))
        .unwrap_or_default();
    Prompt {
        text,
        body: Some(body),
        ..Prompt::default()
    }
}

impl Prompts for Trace {
    fn session(&self, seq: u64) -> Option<Session> {
        if !self.cycle && seq >= self.rows.len() as u64 {
            return None;
        }
        self.logged_session(self.first.wrapping_add(seq))
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        self.logged_turn(self.first.wrapping_add(seq), turn)
    }

    fn len(&self) -> Option<u64> {
        let endless = self.cycle && self.text.is_some();
        (!endless).then_some(self.rows.len() as u64)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.fault.get().cloned()
    }

    fn problems(&self) -> Vec<String> {
        let invalid = self.rows.problem().map(str::to_owned);
        invalid.into_iter().chain(self.statement.clone()).collect()
    }

    fn dropped(&self) -> u64 {
        self.rows.dropped()
    }

    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        self.arrivals.clone()
    }
}
