//! Generated conversations: the lengths of their turns, and the texts of later turns.
//!
//! A later turn is drawn when it is rendered, from the seed, the number of the session and the turn, so that the
//! memory does not grow with the length of sessions. The time before the first turn grows only where a context limit
//! ends the session.

use super::Setting;
use super::error::PromptError;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, REDRAWS, SharedPrefix};
use crate::token::{TokenError, Tokenizer};
use llmscen_core::dataset::{
    AtLimit, ContextLimit, GeneratedSessions, LaterTurns, Prompt, Session,
};
use llmscen_core::distribution::Weighted;
use llmscen_core::quantity::Quantity;
use llmscen_core::request::sample_length;
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

    /// Lengths of a first turn, within the context limit if there is one. `base`: tokens of system message, template
    /// and a prefix that the lengths do not include.
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

    /// The session with this first turn; None if a turn does not fit before the limit ends the session.
    pub fn session(&self, first: Prompt, base: u64, index: u64) -> Option<Session> {
        match &self.0 {
            Some(conversations) => conversations.session(first, base, index),
            None => Some(vec![first].into()),
        }
    }

    /// A later turn of a session; `first_size`: tokens of its first turn and their output.
    ///
    /// # Errors
    /// No text with the drawn tokens was found, or the turn does not fit into the limit.
    pub fn turn(
        &self,
        index: u64,
        turn: u32,
        base: u64,
        first_size: impl FnOnce() -> Option<u64>,
    ) -> Result<Option<Prompt>, PromptError> {
        match &self.0 {
            Some(conversations) => Ok(Some(conversations.turn(index, turn, base, first_size)?)),
            None => Ok(None),
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
        let fits = |drawn: &DrawnLengths| base.saturating_add(drawn.size()) <= limit;
        (0..REDRAWS)
            .map(|_| draw())
            .find(fits)
            .ok_or_else(|| PromptError::Length {
                kind: self.kind,
                reason: format!(
                    "no turn fits into `turns.context_limit` ({limit} tokens): {base} are used by \
                     system message and template, and {REDRAWS} drawn lengths exceed the rest"
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

    /// The session with this first turn. None if a turn does not fit before the limit ends the session.
    fn session(&self, first: Prompt, base: u64, index: u64) -> Option<Session> {
        let mut counts = ChaCha8Rng::seed_from_u64(self.seed.child(index).child("count").0);
        let drawn = sample_length(&self.sessions.count, &Map::new(), &mut counts).unwrap_or(1);
        let mut count = u32::try_from(drawn).unwrap_or(u32::MAX);
        if let Some(ContextLimit {
            tokens,
            at_limit: AtLimit::End,
        }) = self.sessions.limit
        {
            let own = first.tokens.unwrap_or_default().max(base);
            let mut used = own.saturating_add(first.max_tokens.unwrap_or(0));
            for turn in 1..count {
                used = used.saturating_add(self.later_size(index, turn, base).ok()?);
                if used > tokens {
                    count = turn;
                    break;
                }
            }
        }
        Some(Session {
            turns: vec![first],
            later: (count > 1).then_some(LaterTurns {
                count,
                awaited: None,
                continues: true,
            }),
        })
    }

    /// The lengths of a later turn.
    fn later_lengths(&self, index: u64, turn: u32, base: u64) -> Result<DrawnLengths, PromptError> {
        let mut rng = self.rng(index, u64::from(turn));
        // The size of a message pair includes the template around it.
        let around = base.saturating_add(self.turn_tokens);
        self.draw_within(around, || self.draw_later(&mut rng))
    }

    /// Tokens of a later turn in the context.
    fn later_size(&self, index: u64, turn: u32, base: u64) -> Result<u64, PromptError> {
        let drawn = self.later_lengths(index, turn, base)?;
        Ok(drawn.size().saturating_add(self.turn_tokens))
    }

    /// The oldest turn that is in the context beside a later turn.
    fn oldest_turn(
        &self,
        index: u64,
        turn: u32,
        base: u64,
        first_size: impl FnOnce() -> Option<u64>,
    ) -> Result<u32, PromptError> {
        let Some(ContextLimit {
            tokens,
            at_limit: AtLimit::Truncate,
        }) = self.sessions.limit
        else {
            return Ok(0);
        };
        let mut used = base;
        for oldest in (1..=turn).rev() {
            used = used.saturating_add(self.later_size(index, oldest, base)?);
            if used > tokens {
                return Ok((oldest + 1).min(turn));
            }
        }
        let fits = first_size().is_some_and(|size| used.saturating_add(size) <= tokens);
        Ok(u32::from(!fits))
    }

    /// A later turn, with its text.
    fn turn(
        &self,
        index: u64,
        turn: u32,
        base: u64,
        first_size: impl FnOnce() -> Option<u64>,
    ) -> Result<Prompt, PromptError> {
        let drawn = self.later_lengths(index, turn, base)?;
        let total = self.plain.count() + drawn.tokens;
        let seed = self.seed.child(index).child(u64::from(turn)).child("text");
        let text = |generator| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed.child(generator).0);
            self.plain.continue_text(&self.tokenizer, total, &mut rng)
        };
        let found = (1..GENERATORS).fold(text(0), |found, generator| {
            found.or_else(|_| text(generator))
        });
        Ok(Prompt {
            text: found?,
            tokens: Some(drawn.tokens),
            max_tokens: drawn.max_tokens,
            history_from: self.oldest_turn(index, turn, base, first_size)?,
            ..Prompt::default()
        })
    }
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
    use llmscen_core::quantity::Quantity;
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

    #[test]
    fn later_turns_are_drawn_one_by_one_whatever_their_number() {
        let opened = open(&spec(Some(sessions(Quantity::fixed(4_000_000_000), None))));
        for seq in 0..100 {
            let session = opened.prompts.session(seq).unwrap();
            assert_eq!((session.turns.len(), session.count()), (1, 4_000_000_000));
        }
        let last = opened.prompts.turn(0, 3_999_999_999).unwrap().unwrap();
        assert_eq!((last.tokens, last.max_tokens), (Some(30), Some(20)));
    }

    /// With the built-in tokenizer the template has no tokens: 50 + 20 in the first turn, 30 + 20 in each later one.
    #[test]
    fn the_context_limit_ends_or_truncates_a_session() {
        let at = |tokens, at_limit| {
            let limit = Some(ContextLimit { tokens, at_limit });
            let opened = open(&spec(Some(sessions(Quantity::fixed(5), limit))));
            let session = written(opened.prompts.as_ref(), 0);
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
