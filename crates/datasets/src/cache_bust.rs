//! `cache_bust`: words of its own in front of each prompt, so that no prefix cache knows it.
//!
//! They are drawn from `cache_seed` and the number of the session in the whole plan, and go in front of what the model reads
//! first: the system message where there is one. The turns behind the first go on from there and need none. Synthetic
//! prompts get none: those that share a beginning draw one for each prompt instead, so that their lengths stay exact, and
//! the others begin with words of their own already.

use super::message::{put_in_front, tokens_of};
use super::transforms::{Edit, Edited};
use super::{Prompts, Setting};
use crate::token::Tokenizer;
use llmscen_core::dataset::Source;
use llmscen_core::prompt::Session;
use llmscen_core::seed::Seed;
use std::sync::Arc;

struct Busted {
    system: Option<String>,
    tokenizer: Option<Arc<Tokenizer>>,
    seed: Seed,
}

/// The prompts with words in front of each, where the dataset asks for it.
pub fn over(inner: Box<dyn Prompts>, setting: &Setting<'_>, notes: &mut Vec<String>) -> Box<dyn Prompts> {
    if !setting.spec.cache_bust {
        return inner;
    }
    match setting.spec.source {
        Source::Prefix { .. } | Source::Random { shared_prefix: 1.., .. } => return inner,
        Source::Random { .. } | Source::SpeedBenchmark { .. } if setting.spec.cache_seed.is_some() => return inner,
        Source::Random { .. } | Source::SpeedBenchmark { .. } => {
            notes.push("`cache_bust` changes nothing here: each prompt is drawn anew, and none share a beginning".into());
            return inner;
        }
        _ => {}
    }
    let (system, tokenizer) = (setting.spec.system.clone(), setting.tokenizer.clone());
    let edit = Busted { system, tokenizer, seed: setting.bust.child("bust") };
    Box::new(Edited { inner, edit, first: setting.first })
}

impl Edit for Busted {
    fn edit(&self, session: &mut Session, index: u64) {
        let Some(prompt) = session.turns.first_mut() else { return };
        let (words, system) = (format!("{:016x}", self.seed.child(index).0), self.system.as_deref());
        put_in_front(prompt, &words, system);
        prompt.tokens = self.tokenizer.as_ref().and_then(|tokenizer| tokens_of(prompt, tokenizer, system));
    }
}

#[cfg(test)]
mod tests;
