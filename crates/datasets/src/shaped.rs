//! `shape`: prompts brought to a length.
//!
//! The last user message of a session's first turn is cut or continued until the model reads exactly as many tokens as
//! wanted, system message, chat template and `cache_bust` included; later turns are as long as they are. What is too
//! short goes on with its own text or with that of `fill_from`, from a place drawn for each prompt. A prompt whose length
//! cannot be drawn from its row, or that holds pictures, stays as it is, with its own count.

use super::error::PromptError;
use super::message::{replace_last_user, shapeable, slot_of, tokens_of};
use super::transforms::{Edit, Edited};
use super::{Prompts, Setting, text};
use crate::token::{Text, TokenError, Tokenizer};
use llmscen_core::dataset::{ShapeMode, TextShape};
use llmscen_core::prompt::{Prompt, Session};
use llmscen_core::request::Quantity;
use llmscen_core::seed::Seed;
use llmscen_core::stats::length_distribution::draw;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

struct Shaped {
    tokens: Quantity,
    mode: ShapeMode,
    fill: Option<String>,
    system: Option<String>,
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
}

/// The prompts brought to a length, where the dataset has a shape.
///
/// # Errors
/// `fill_from` cannot be read, or the first prompt cannot be brought to its length.
pub fn over(inner: Box<dyn Prompts>, setting: &Setting<'_>) -> Result<Box<dyn Prompts>, PromptError> {
    let Some(TextShape { tokens, mode, fill_from }) = &setting.spec.shape else { return Ok(inner) };
    let fill = fill_from.as_deref().map(|path| text::read(path.as_ref())).transpose()?;
    let shaped = Shaped {
        tokens: tokens.clone(),
        mode: *mode,
        fill,
        system: setting.spec.system.clone(),
        tokenizer: setting.tokenizer(),
        seed: setting.seed.child("shape"),
    };
    if let Some(mut session) = inner.session(0)
        && let Some(prompt) = session.turns.first_mut()
    {
        shaped.shape(prompt, setting.first)?;
    }
    Ok(Box::new(Edited { inner, edit: shaped, first: setting.first }))
}

impl Shaped {
    fn shape(&self, prompt: &mut Prompt, index: u64) -> Result<(), TokenError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.child(index).0);
        let (Some(n), Some(own)) = (draw(&self.tokens, &prompt.fields, &mut rng), shapeable(prompt)) else { return Ok(()) };
        let slot = slot_of(prompt, &self.tokenizer, self.system.as_deref())?;
        let brought = match self.mode {
            ShapeMode::Cap => self.tokenizer.capped(n, &slot, &own)?,
            ShapeMode::Exact => {
                let (more, from) = match &self.fill {
                    Some(fill) => (fill.as_str(), rng.random_range(0..fill.len().max(1))),
                    None => (own.as_str(), 0),
                };
                self.tokenizer.fitted(n, &slot, Text { text: &own, more, from }, &mut rng)?
            }
        };
        replace_last_user(prompt, &brought);
        Ok(())
    }
}

impl Edit for Shaped {
    fn edit(&self, session: &mut Session, index: u64) {
        let Some(prompt) = session.turns.first_mut() else { return };
        // What cannot be brought there keeps its text and says its own length.
        let _ = self.shape(prompt, index);
        prompt.tokens = tokens_of(prompt, &self.tokenizer, self.system.as_deref());
        prompt.approximate = self.tokenizer.approximate();
    }
}

#[cfg(test)]
mod tests;
