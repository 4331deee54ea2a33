//! `random`: text of an exact length, drawn anew for every request.

use super::error::PromptError;
use super::{Prompts, Setting};
use crate::model::prompt::{Prompt, Session};
use crate::model::request::Quantity;
use crate::model::seed::Seed;
use crate::stats::quantity::draw;
use crate::token::Tokenizer;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Map;
use std::sync::Arc;

/// Draws of a length that lies outside `prompt_tokens` before it is moved to the nearest bound.
const REDRAWS: usize = 1000;
/// Generators tried for one prompt: some lengths of some vocabularies are hard to hit.
const GENERATORS: u64 = 4;

struct Random {
    tokens: Quantity,
    bounds: (u64, u64),
    tokenizer: Arc<Tokenizer>,
    seed: Seed,
    first: u64,
}

/// Checks that lengths can be drawn and text of such a length be made.
pub fn open(tokens: &Quantity, setting: &Setting<'_>) -> Result<impl Prompts + use<>, PromptError> {
    let wrong = |reason: &str| PromptError::Length { reason: reason.to_owned() };
    if matches!(tokens, Quantity::Item(_)) {
        return Err(wrong("there are no rows that a length could be taken from; give a number or a distribution"));
    }
    let bounds = (setting.spec.min_tokens.unwrap_or(0), setting.spec.max_tokens.unwrap_or(u64::MAX));
    if let Quantity::Fixed(n) = tokens
        && !setting.admits(Some(*n))
    {
        return Err(wrong("the length lies outside `prompt_tokens`, so that nothing would be left"));
    }
    if bounds.0 > bounds.1 {
        return Err(wrong("`prompt_tokens` has a `min` above its `max`"));
    }
    let tokenizer = setting.tokenizer.clone().unwrap_or_else(|| Arc::new(Tokenizer::builtin()));
    let random = Random { tokens: tokens.clone(), bounds, tokenizer, seed: setting.seed.child("random"), first: setting.first };
    let mut rng = random.rng(0, 0);
    let n = random.length(&mut rng).ok_or_else(|| wrong("the distribution does not exist"))?;
    random.tokenizer.exactly(n, &mut rng)?;
    Ok(random)
}

impl Random {
    fn rng(&self, index: u64, generator: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.child(index).child(generator).0)
    }

    /// A length inside `prompt_tokens`: one outside is drawn again.
    fn length(&self, rng: &mut ChaCha8Rng) -> Option<u64> {
        let (low, high) = self.bounds;
        let mut n = draw(&self.tokens, &Map::new(), rng)?;
        for _ in 0..REDRAWS {
            if (low..=high).contains(&n) {
                break;
            }
            n = draw(&self.tokens, &Map::new(), rng)?;
        }
        Some(n.clamp(low, high))
    }
}

impl Prompts for Random {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        let n = self.length(&mut self.rng(index, 0))?;
        let text = (1..=GENERATORS).find_map(|generator| self.tokenizer.exactly(n, &mut self.rng(index, generator)).ok())?;
        let prompt = Prompt { text, tokens: Some(n), approximate: self.tokenizer.approximate(), ..Prompt::default() };
        Some(Session { turns: vec![prompt] })
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dataset::{DatasetSpec, Source};
    use crate::prompts::{CacheDir, Opened, open as open_any};
    use std::collections::HashSet;

    fn opened(tokens: Quantity, bounds: (Option<u64>, Option<u64>), first: u64) -> Result<Opened, PromptError> {
        let (min_tokens, max_tokens) = bounds;
        let spec = DatasetSpec { min_tokens, max_tokens, ..DatasetSpec::of(Source::Random { tokens, shared_prefix: 0 }) };
        open_any(&spec, Seed(1), first, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ())
    }

    fn prompt(opened: &Opened, seq: u64) -> Prompt {
        opened.prompts.session(seq).unwrap().turns.remove(0)
    }

    #[test]
    fn prompts_are_unique_exact_and_the_same_in_any_order() {
        let opened = opened(Quantity::Fixed(48), (None, None), 0).unwrap();
        let backwards: Vec<Prompt> = (0..100).rev().map(|seq| prompt(&opened, seq)).collect();
        let forwards: Vec<Prompt> = (0..100).map(|seq| prompt(&opened, seq)).collect();
        assert!(forwards.iter().eq(backwards.iter().rev()));
        let different: HashSet<&str> = forwards.iter().map(|prompt| prompt.text.as_str()).collect();
        assert_eq!(different.len(), 100);
        let builtin = Tokenizer::builtin();
        assert!(forwards.iter().all(|prompt| builtin.count(&prompt.text) == Some(48) && prompt.tokens == Some(48)));
        assert!(forwards[0].approximate && opened.notes[0].contains("approximate"));
    }

    #[test]
    fn prompts_share_no_beginning_that_a_prefix_cache_could_use() {
        let opened = opened(Quantity::Fixed(16), (None, None), 0).unwrap();
        let heads: HashSet<String> =
            (0..50).map(|seq| prompt(&opened, seq).text.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(heads.len(), 50);
    }

    #[test]
    fn the_next_case_goes_on_where_the_last_one_ended() {
        let (one, two) =
            (opened(Quantity::Fixed(8), (None, None), 0).unwrap(), opened(Quantity::Fixed(8), (None, None), 10).unwrap());
        assert_eq!(prompt(&one, 13), prompt(&two, 3));
    }

    #[test]
    fn lengths_outside_prompt_tokens_are_drawn_again() {
        let opened = opened(Quantity::Uniform { low: 1, high: 40 }, (Some(10), Some(12)), 0).unwrap();
        let lengths: HashSet<u64> = (0..60).map(|seq| prompt(&opened, seq).tokens.unwrap()).collect();
        assert_eq!(lengths, HashSet::from([10, 11, 12]));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_before_the_run() {
        let item = Quantity::Item("n".into());
        let none = Quantity::Uniform { low: 2, high: 1 };
        for (tokens, bounds, reason) in [
            (item, (None, None), "there are no rows"),
            (none, (None, None), "the distribution does not exist"),
            (Quantity::Fixed(9), (None, Some(8)), "the length lies outside"),
            (Quantity::Normal { mean: 5.0, sd: 1.0 }, (Some(9), Some(8)), "`prompt_tokens` has a `min` above"),
        ] {
            let error = opened(tokens, bounds, 0).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`tokens` of a random dataset: {reason}")), "{error}");
        }
    }
}
