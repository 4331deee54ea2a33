//! Generated conversations: the lengths of their turns, and the texts of later turns.
//!
//! A session is planned as lengths alone. The text of a turn is generated when the turn is rendered, from the seed, the number of the
//! session and the turn, so that the memory does not grow with the length of sessions.

use super::Setting;
use super::error::PromptError;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, REDRAWS, SharedPrefix};
use crate::token::{TokenError, Tokenizer};
use llmscen_core::dataset::{AtLimit, ContextLimit, GeneratedSessions, Prompt, Session};
use llmscen_core::distribution::Weighted;
use llmscen_core::request::{Quantity, sample_length};
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Map;
use std::sync::Arc;

/// A system message of exactly `tokens` tokens; None for 0.
///
/// # Errors
/// No such text was found.
pub fn system_message(
    tokens: u64,
    tokenizer: &Tokenizer,
    seed: Seed,
) -> Result<Option<String>, TokenError> {
    if tokens == 0 {
        return Ok(None);
    }
    let slot = tokenizer.plain_text_slot();
    let special = tokenizer.count_without_text(&slot);
    let mut found = Err(TokenError::NoFit {
        wanted: tokens,
        nearest: 0,
    });
    for generator in 0..GENERATORS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
        found = tokenizer.random_text(special + tokens, &slot, &mut rng);
        if found.is_ok() {
            break;
        }
    }
    found.map(Some)
}

/// What `dataset.turns` makes of generated prompts: conversations, or a request for each.
pub struct Sessions(Option<Conversations>);

impl Sessions {
    /// # Errors
    /// A length that only rows have, or turns that never fit into the context limit.
    pub fn open(
        kind: &'static str,
        setting: &Setting<'_>,
        seed: Seed,
    ) -> Result<Sessions, PromptError> {
        Conversations::open(kind, setting, seed).map(Sessions)
    }

    /// Lengths of a first turn, within the context limit if there is one. `base`: tokens of system message, template and a prefix that the
    /// lengths do not include.
    ///
    /// # Errors
    /// No length within the limit was drawn.
    pub fn draw_first(
        &self,
        lengths: &Lengths,
        base: u64,
        index: u64,
        rng: &mut ChaCha8Rng,
    ) -> Result<DrawnLengths, PromptError> {
        let Some(conversations) = &self.0 else {
            return Ok(lengths.draw(rng));
        };
        let mut outputs = conversations.rng(index, 0);
        let first = || {
            let mut drawn = lengths.draw(rng);
            drawn.max_tokens = drawn
                .max_tokens
                .or_else(|| conversations.output(&mut outputs));
            drawn
        };
        conversations.draw_within(base, first)
    }

    /// The session with this first turn; None if a turn does not fit into the limit.
    pub fn session(&self, first: Prompt, base: u64, index: u64) -> Option<Session> {
        match &self.0 {
            Some(conversations) => conversations.session(first, base, index),
            None => Some(Session { turns: vec![first] }),
        }
    }

    /// Writes the text of a later turn.
    ///
    /// # Errors
    /// No text with the planned tokens was found.
    pub fn write_turn(
        &self,
        index: u64,
        turn: u32,
        prompt: &mut Prompt,
    ) -> Result<(), PromptError> {
        match &self.0 {
            Some(conversations) => Ok(conversations.write_turn(index, turn, prompt)?),
            None => Ok(()),
        }
    }
}

/// The conversations of a dataset.
struct Conversations {
    kind: &'static str,
    sessions: GeneratedSessions,
    pairs: Option<Weighted<(u64, u64)>>,
    tokenizer: Arc<Tokenizer>,
    /// The place of a user's text without a shared prefix.
    plain: SharedPrefix,
    /// Tokens of the template around each message pair, without a system message.
    turn_tokens: u64,
    seed: Seed,
}

impl Conversations {
    /// The conversations of the dataset; None for single requests.
    ///
    /// # Errors
    /// A length that only rows have.
    fn open(
        kind: &'static str,
        setting: &Setting<'_>,
        seed: Seed,
    ) -> Result<Option<Conversations>, PromptError> {
        let Some(sessions) = setting.spec.generated.sessions.clone() else {
            return Ok(None);
        };
        let quantities = [
            Some(&sessions.count),
            Some(&sessions.tokens),
            sessions.max_tokens.as_ref(),
        ];
        if quantities
            .into_iter()
            .flatten()
            .any(|quantity| matches!(quantity, Quantity::Item(_)))
        {
            return Err(PromptError::Length {
                kind,
                reason:
                    "this kind of dataset has no rows with a length; use a number or a distribution"
                        .into(),
            });
        }
        let tokenizer = setting.tokenizer();
        let plain = super::message::prompt_slot(&Prompt::default(), &tokenizer, None)?;
        let turn_tokens = tokenizer.count_template(&plain);
        let conversations = Conversations {
            kind,
            sessions,
            pairs: setting.spec.generated.pairs.clone(),
            plain: SharedPrefix::draw(&tokenizer, &plain, 0, seed)?,
            tokenizer,
            turn_tokens,
            seed: seed.child("turns"),
        };
        // A turn that no session has room for is an error of the plan.
        let mut rng = conversations.rng(0, 1);
        conversations.draw_within(turn_tokens, || conversations.draw_later(&mut rng))?;
        Ok(Some(conversations))
    }

    /// Draws until the lengths fit beside `base` tokens.
    fn draw_within(
        &self,
        base: u64,
        mut draw: impl FnMut() -> DrawnLengths,
    ) -> Result<DrawnLengths, PromptError> {
        let limit = self.sessions.limit.map_or(u64::MAX, |limit| limit.tokens);
        let fits = |drawn: &DrawnLengths| base.saturating_add(size(drawn)) <= limit;
        (0..REDRAWS)
            .map(|_| draw())
            .find(fits)
            .ok_or_else(|| PromptError::Length {
                kind: self.kind,
                reason: format!(
                    "no turn fits into `turns.context_limit` ({limit} tokens): {base} are used by system message and template, and \
                     {REDRAWS} drawn lengths exceed the rest"
                ),
            })
    }

    fn rng(&self, index: u64, turn: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed.child(index).child(turn).0)
    }

    fn output(&self, rng: &mut ChaCha8Rng) -> Option<u64> {
        let quantity = self.sessions.max_tokens.as_ref()?;
        sample_length(quantity, &Map::new(), rng)
    }

    fn draw_later(&self, rng: &mut ChaCha8Rng) -> DrawnLengths {
        match &self.pairs {
            Some(pairs) => {
                let (tokens, output) = *pairs.draw(rng);
                DrawnLengths {
                    tokens,
                    max_tokens: Some(output),
                }
            }
            None => DrawnLengths {
                tokens: sample_length(&self.sessions.tokens, &Map::new(), rng).unwrap_or(1),
                max_tokens: self.output(rng),
            },
        }
    }

    /// The session with this first turn. Later turns have lengths, and no text yet. None if a turn does not fit into the limit.
    fn session(&self, first: Prompt, base: u64, index: u64) -> Option<Session> {
        let mut counts = ChaCha8Rng::seed_from_u64(self.seed.child(index).child("count").0);
        let count = sample_length(&self.sessions.count, &Map::new(), &mut counts).unwrap_or(1);
        let drawn = DrawnLengths {
            tokens: first.tokens.unwrap_or_default().saturating_sub(base),
            max_tokens: first.max_tokens,
        };
        let mut sizes = vec![size(&drawn)];
        let mut oldest = 0;
        // The tokens of the turns from `oldest` on, and what is before them.
        let mut used = base.saturating_add(size(&drawn));
        let mut turns = vec![first];
        for turn in 1..count {
            let mut rng = self.rng(index, turn);
            // The size of a message pair includes the template around it.
            let around = base.saturating_add(self.turn_tokens);
            let drawn = self
                .draw_within(around, || self.draw_later(&mut rng))
                .ok()?;
            sizes.push(size(&drawn).saturating_add(self.turn_tokens));
            used = used.saturating_add(*sizes.last().unwrap_or(&0));
            if let Some(ContextLimit { tokens, at_limit }) = self.sessions.limit {
                if used > tokens && at_limit == AtLimit::End {
                    break;
                }
                while used > tokens && oldest + 1 < sizes.len() {
                    used -= sizes[oldest];
                    oldest += 1;
                }
            }
            turns.push(Prompt {
                tokens: Some(drawn.tokens),
                max_tokens: drawn.max_tokens,
                history_from: oldest as u32,
                ..Prompt::default()
            });
        }
        Some(Session { turns })
    }

    /// Writes the text of a later turn, with the tokens that [`Conversations::session`] planned.
    ///
    /// # Errors
    /// No such text was found.
    fn write_turn(&self, index: u64, turn: u32, prompt: &mut Prompt) -> Result<(), TokenError> {
        let total = self.plain.count() + prompt.tokens.unwrap_or(1);
        let seed = self.seed.child(index).child(u64::from(turn)).child("text");
        let mut last_error = TokenError::NoFit {
            wanted: total,
            nearest: 0,
        };
        for generator in 0..GENERATORS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
            match self.plain.continue_text(&self.tokenizer, total, &mut rng) {
                Ok(text) => {
                    prompt.text = text;
                    return Ok(());
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }
}

fn size(drawn: &DrawnLengths) -> u64 {
    drawn.tokens.saturating_add(drawn.max_tokens.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use crate::testing::written;
    use crate::token::trained::CHATS;
    use crate::{CacheDir, Opened};
    use llmscen_core::dataset::{
        AtLimit, ContextLimit, DatasetSpec, Generated, GeneratedSessions, Source, Turns,
    };
    use llmscen_core::distribution::Weighted;
    use llmscen_core::request::Quantity;
    use llmscen_core::seed::Seed;
    use std::collections::HashSet;

    fn sessions(count: Quantity, limit: Option<ContextLimit>) -> GeneratedSessions {
        GeneratedSessions {
            count,
            tokens: Quantity::fixed(30),
            max_tokens: Some(Quantity::fixed(20)),
            limit,
        }
    }

    fn spec(sessions: Option<GeneratedSessions>) -> DatasetSpec {
        DatasetSpec {
            turns: sessions.is_some().then(Turns::default),
            generated: Generated {
                sessions,
                ..Generated::default()
            },
            ..DatasetSpec::new(Source::Random {
                tokens: Quantity::fixed(50),
                shared_prefix: 0,
            })
        }
    }

    fn no_cache() -> CacheDir {
        CacheDir {
            dir: "unused".into(),
            ..CacheDir::default()
        }
    }

    fn open(spec: &DatasetSpec) -> Opened {
        let cache = no_cache();
        crate::open(spec, Seed(3), 0, &cache, &|_| {}).unwrap()
    }

    #[test]
    fn every_turn_has_exactly_its_tokens_and_only_the_system_message_is_shared() {
        let folder = CHATS[0].folder("byte-level");
        let mut spec = spec(Some(sessions(Quantity::uniform(2, 6), None)));
        spec.tokenizer = Some(folder.path().display().to_string());
        spec.generated.system_tokens = 40;
        spec.generated.context_tokens = Some(Quantity::uniform(100, 200));
        let opened = open(&spec);
        let tokenizer = opened.tokenizer.as_ref().unwrap();
        let [first, second] = [0, 1].map(|seq| written(opened.prompts.as_ref(), seq));
        let system = first.turns[0].system.as_deref().unwrap();
        assert_eq!(tokenizer.count(system), Some(40));
        assert_eq!(second.turns[0].system.as_deref(), Some(system));
        let mut texts = HashSet::new();
        for session in [&first, &second] {
            assert!((2..=6).contains(&session.turns.len()));
            let opening = tokenizer.count(&session.turns[0].text).unwrap();
            assert!((150..=250).contains(&opening), "{opening}");
            for turn in &session.turns[1..] {
                assert_eq!(tokenizer.count(&turn.text), Some(30));
                assert_eq!(turn.max_tokens, Some(20));
            }
            texts.extend(session.turns.iter().map(|turn| turn.text.clone()));
        }
        assert_eq!(texts.len(), first.turns.len() + second.turns.len());
        assert_eq!(
            written(open(&spec).prompts.as_ref(), 1),
            second,
            "the same seed"
        );
    }

    /// The plan of a session is lengths alone, whatever the number of turns.
    #[test]
    fn later_turns_have_no_text_until_they_are_written() {
        let opened = open(&spec(Some(sessions(Quantity::fixed(40), None))));
        for seq in 0..100 {
            let session = opened.prompts.session(seq).unwrap();
            assert_eq!(session.turns.len(), 40);
            assert!(session.turns[1..].iter().all(|turn| turn.text.is_empty()));
        }
    }

    /// With the built-in tokenizer the template has no tokens: 50 + 20 in the first turn, 30 + 20 in each later one.
    #[test]
    fn the_context_limit_ends_or_truncates_a_session() {
        let at = |tokens, at_limit| {
            let limit = Some(ContextLimit { tokens, at_limit });
            let opened = open(&spec(Some(sessions(Quantity::fixed(5), limit))));
            let session = opened.prompts.session(0).unwrap();
            session
                .turns
                .iter()
                .map(|turn| turn.history_from)
                .collect::<Vec<_>>()
        };
        assert_eq!(at(270, AtLimit::End), [0; 5]);
        assert_eq!(at(269, AtLimit::End), [0; 4]);
        assert_eq!(at(119, AtLimit::End), [0]);
        assert_eq!(at(170, AtLimit::Truncate), [0, 0, 0, 1, 2]);
        assert_eq!(at(70, AtLimit::Truncate), [0, 1, 2, 3, 4]);
        let limit = ContextLimit {
            tokens: 69,
            at_limit: AtLimit::End,
        };
        let cache = no_cache();
        let impossible = spec(Some(sessions(Quantity::fixed(5), Some(limit))));
        let error = crate::open(&impossible, Seed(3), 0, &cache, &|_| {}).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no turn fits into `turns.context_limit` (69 tokens)"),
            "{error}"
        );
    }

    #[test]
    fn pairs_of_lengths_are_drawn_together() {
        let pairs = Weighted::new(vec![(1.0, (10, 200)), (3.0, (100, 20))]).unwrap();
        let mut spec = spec(None);
        spec.generated.pairs = Some(pairs);
        let opened = open(&spec);
        let lengths = |seq| {
            let prompt = opened.prompts.session(seq).unwrap().turns.remove(0);
            (prompt.tokens.unwrap(), prompt.max_tokens.unwrap())
        };
        let drawn: Vec<(u64, u64)> = (0..400).map(lengths).collect();
        assert!(
            drawn
                .iter()
                .all(|pair| [(10, 200), (100, 20)].contains(pair))
        );
        let short = drawn.iter().filter(|pair| pair.0 == 10).count();
        assert!((60..=140).contains(&short), "{short} of 400, 100 expected");
    }

    /// P(rank 1) of 5 groups with exponent 1 is 1 / (1 + 1/2 + 1/3 + 1/4 + 1/5) = 43.8 %.
    #[test]
    fn popular_groups_are_drawn_by_zipf_and_by_number() {
        let prefix = DatasetSpec::new(Source::Prefix {
            groups: 5,
            per_group: None,
            prefix_tokens: 8,
            tokens: Quantity::fixed(8),
            zipf: Some(1.0),
        });
        let opened = open(&prefix);
        let group = |seq| {
            opened
                .prompts
                .session(seq)
                .unwrap()
                .turns
                .remove(0)
                .group
                .unwrap()
        };
        let groups: Vec<String> = (0..1000).map(group).collect();
        let first = groups.iter().filter(|group| *group == "prefix-0").count();
        assert!(
            (375..=500).contains(&first),
            "{first} of 1000, 438 expected"
        );
        assert_eq!(
            (group(700), group(3)),
            (groups[700].clone(), groups[3].clone())
        );
    }
}
