//! `prefix`: groups of prompts with a shared prefix, for tests of prefix caches.
//!
//! Groups alternate: prompt i belongs to group i mod N. With `popularity` the group of each prompt is drawn instead.
//! With `order: shuffle` a bounded dataset is permuted as a whole, an unbounded one within each N prompts. The prefix
//! has the same token ids in all prompts of a group; the rest is different in every prompt. Lengths exclude the
//! system message and the chat template, as in `random`. With `cache_bust` each prompt has a different prefix of the
//! same length, so nothing is shared.

use super::error::PromptError;
use super::generated::{Sessions, system_message};
use super::message::prompt_slot;
use super::synthetic::{DrawnLengths, GENERATORS, Lengths, SharedPrefix};
use super::{Prompts, Setting};
use crate::token::{Slot, TokenError, Tokenizer};
use llmscen_core::dataset::{OnExhausted, Order};
use llmscen_core::dataset::{Prompt, Session};
use llmscen_core::quantity::Quantity;
use llmscen_core::seed::Seed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Zipf};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Limit of the number of groups, whose prefixes are kept in memory.
const MAX_GROUPS: u64 = 1_000_000;

struct Prefix {
    /// By group; generated when the group is first requested.
    prefixes: Box<[OnceLock<Option<SharedPrefix>>]>,
    len: Option<u64>,
    slot: Slot,
    prefix_tokens: u64,
    /// Lengths of the text after the prefix.
    lengths: Lengths,
    /// Tokens of prefix, system message and chat template.
    base_tokens: u64,
    tokenizer: Arc<Tokenizer>,
    shuffled: bool,
    cycle: bool,
    /// Each prompt has a different prefix.
    cache_bust: bool,
    seed: Seed,
    first: u64,
    /// The distribution of the group of a prompt; None: the groups alternate.
    popularity: Option<Zipf<f64>>,
    /// The generated system message.
    system: Option<String>,
    sessions: Sessions,
}

/// The groups of the dataset.
pub struct Groups {
    pub groups: u64,
    /// Prompts per group; None: no limit.
    pub per_group: Option<u64>,
    pub prefix_tokens: u64,
    /// Exponent of the Zipf distribution of groups; None: they alternate.
    pub zipf: Option<f64>,
}

fn drawn_groups(groups: u64, exponent: f64) -> Result<Zipf<f64>, PromptError> {
    Zipf::new(groups as f64, exponent).map_err(|error| PromptError::Groups {
        reason: error.to_string(),
    })
}

/// Checks that such prompts can be generated.
pub fn open(
    groups: &Groups,
    tokens: &Quantity,
    setting: &Setting<'_>,
) -> Result<impl Prompts + use<>, PromptError> {
    let Groups {
        groups,
        per_group,
        prefix_tokens,
        zipf,
    } = *groups;
    let error = |reason: String| PromptError::Groups { reason };
    if !(1..=MAX_GROUPS).contains(&groups) || per_group == Some(0) {
        return Err(error(format!(
            "groups must be 1 to {MAX_GROUPS}, each with at least 1 prompt"
        )));
    }
    let len = per_group
        .map(|each| {
            groups
                .checked_mul(each)
                .ok_or_else(|| error("too many prompts".into()))
        })
        .transpose()?;
    let tokenizer = setting.tokenizer();
    let seed = setting.seed.child("prefix");
    let system = system_message(
        setting.spec.generated.system_tokens,
        &tokenizer,
        seed.child("system"),
    )?;
    let slot = prompt_slot(
        &Prompt::default(),
        &tokenizer,
        system.as_deref().or(setting.spec.system.as_deref()),
    )?;
    let special = tokenizer.count_without_text(&slot) - tokenizer.count_template(&slot);
    let base_tokens = tokenizer.count_template(&slot) + prefix_tokens;
    let prefix = Prefix {
        prefixes: (0..groups).map(|_| OnceLock::new()).collect(),
        len,
        slot,
        prefix_tokens,
        lengths: Lengths::new("prefix", tokens, special, base_tokens, setting)?,
        base_tokens,
        tokenizer,
        shuffled: setting.spec.order == Order::Shuffle,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        cache_bust: setting.spec.cache_bust,
        seed,
        first: setting.first,
        popularity: zipf
            .map(|exponent| drawn_groups(groups, exponent))
            .transpose()?,
        system,
        sessions: Sessions::open("prefix", setting, seed)?,
    };
    let mut rng = prefix.rng(0, 0, 0);
    let n = prefix.base_tokens + prefix.draw(setting.first, &mut rng)?.tokens;
    prefix
        .draw_prefix(prefix.seed.child("group").child(0))?
        .continue_text(&prefix.tokenizer, n, &mut rng)?;
    Ok(prefix)
}

impl Prefix {
    fn rng(&self, group: u64, member: u64, generator: u64) -> ChaCha8Rng {
        let seed = self
            .seed
            .child("suffix")
            .child(group)
            .child(member)
            .child(generator);
        ChaCha8Rng::seed_from_u64(seed.0)
    }

    fn draw_prefix(&self, seed: Seed) -> Result<SharedPrefix, TokenError> {
        SharedPrefix::draw(&self.tokenizer, &self.slot, self.prefix_tokens, seed)
    }

    /// The prefix of a prompt: that of its group, or with `cache_bust` a different one, which is not repeated when
    /// the dataset starts again.
    fn shared_prefix(&self, group: u64, index: u64) -> Option<Cow<'_, SharedPrefix>> {
        if self.cache_bust {
            return self
                .draw_prefix(self.seed.child("bust").child(index))
                .ok()
                .map(Cow::Owned);
        }
        let seed = self.seed.child("group").child(group);
        self.prefixes
            .get(group as usize)?
            .get_or_init(|| self.draw_prefix(seed).ok())
            .as_ref()
            .map(Cow::Borrowed)
    }

    fn draw(&self, index: u64, rng: &mut ChaCha8Rng) -> Result<DrawnLengths, PromptError> {
        self.sessions
            .draw_first(&self.lengths, self.base_tokens, index, rng)
    }

    /// The position of a session in a pass over the prompts.
    fn position(&self, seq: u64) -> u64 {
        let index = self.first.wrapping_add(seq);
        self.len.map_or(index, |len| index % len)
    }

    /// The group of a prompt, and its number in the group.
    fn group_member(&self, position: u64) -> (u64, u64) {
        if let Some(popularity) = &self.popularity {
            let seed = self.seed.child("popularity").child(position);
            let rank = popularity.sample(&mut ChaCha8Rng::seed_from_u64(seed.0));
            return (rank as u64 - 1, position);
        }
        let groups = self.prefixes.len() as u64;
        let member = position / groups;
        let turn = position % groups;
        match self.len {
            _ if !self.shuffled => (turn, member),
            Some(len) => {
                let drawn = permute(position, len, self.seed.child("order"));
                (drawn % groups, drawn / groups)
            }
            None => (
                permute(turn, groups, self.seed.child("order").child(member)),
                member,
            ),
        }
    }
}

impl Prompts for Prefix {
    fn session(&self, seq: u64) -> Option<Session> {
        let index = self.first.wrapping_add(seq);
        if self.len.is_some_and(|len| !self.cycle && seq >= len) {
            return None;
        }
        let (group, member) = self.group_member(self.position(seq));
        let prefix = self.shared_prefix(group, index)?;
        let drawn = self.draw(index, &mut self.rng(group, member, 0)).ok()?;
        let n = self.base_tokens + drawn.tokens;
        let draw = |generator| {
            prefix
                .continue_text(&self.tokenizer, n, &mut self.rng(group, member, generator))
                .ok()
        };
        let prompt = Prompt {
            text: (1..=GENERATORS).find_map(draw)?,
            tokens: Some(n),
            approximate: self.tokenizer.approximate(),
            group: Some(format!("prefix-{group}")),
            max_tokens: drawn.max_tokens,
            system: self.system.clone(),
            ..Prompt::default()
        };
        // The prefix is part of the first turn, and leaves the context with it.
        let template_tokens = self.base_tokens - self.prefix_tokens;
        self.sessions.session(prompt, template_tokens, index)
    }

    fn turn(&self, seq: u64, turn: u32) -> Result<Option<Prompt>, PromptError> {
        let index = self.first.wrapping_add(seq);
        let (group, member) = self.group_member(self.position(seq));
        let first = || {
            let drawn = self.draw(index, &mut self.rng(group, member, 0)).ok()?;
            Some(self.prefix_tokens.saturating_add(drawn.size()))
        };
        let template_tokens = self.base_tokens - self.prefix_tokens;
        self.sessions.turn(index, turn, template_tokens, first)
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    /// With `cache_bust` no prompt is repeated.
    fn distinct(&self) -> Option<u64> {
        self.len.filter(|_| !self.cache_bust)
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Rounds of the Feistel network. Four make a pseudo-random permutation (Luby and Rackoff, "How to construct
/// pseudorandom permutations from pseudorandom functions", 1988).
const ROUNDS: u64 = 4;

/// The image of `index` modulo `len` in a random permutation of `0..len`; 0 where `len` is 0. It is a Feistel network
/// over the next power of four, repeated until the result is below `len` (Black and Rogaway, "Ciphers with arbitrary
/// finite domains", 2002).
fn permute(index: u64, len: u64, seed: Seed) -> u64 {
    if len < 2 {
        return 0;
    }
    let half = (u64::BITS - (len - 1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut at = index % len;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (seed.child(round).child(right).0 & mask));
        }
        at = (left << half) | right;
        if at < len {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tokens_of;
    use crate::testing::written;
    use crate::token::trained::CHATS;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{
        AtLimit, ContextLimit, DatasetSpec, GeneratedSessions, Source, Turns,
    };
    use serde_json::json;
    use std::collections::{BTreeMap, HashSet};

    fn source(
        groups: u64,
        per_group: Option<u64>,
        prefix_tokens: u64,
        tokens: Quantity,
    ) -> DatasetSpec {
        DatasetSpec::new(Source::Prefix {
            groups,
            per_group,
            prefix_tokens,
            tokens,
            zipf: None,
        })
    }

    fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
        open_any(
            spec,
            Seed(1),
            first,
            &CacheDir {
                dir: "unused".into(),
                hub: String::new(),
                ..CacheDir::default()
            },
            &|_| (),
        )
    }

    fn prompt(opened: &Opened, seq: u64) -> Prompt {
        opened.prompts.session(seq).unwrap().turns.remove(0)
    }

    fn groups(opened: &Opened, count: u64) -> Vec<String> {
        (0..count)
            .map(|seq| prompt(opened, seq).group.unwrap())
            .collect()
    }

    #[test]
    fn groups_share_their_beginning_in_tokens_and_nothing_else() {
        for (chat, kind) in CHATS
            .iter()
            .flat_map(|chat| ["byte-level", "unigram", "wordpiece"].map(|kind| (chat, kind)))
        {
            let folder = chat.folder(kind);
            let tokenizer = Some(folder.path().display().to_string());
            let spec = DatasetSpec {
                tokenizer,
                ..source(3, None, 300, Quantity::fixed(20))
            };
            let opened = opened(&spec, 0).unwrap();
            let tokenizer = opened.tokenizer.clone().unwrap();
            let slot = prompt_slot(&Prompt::default(), &tokenizer, None).unwrap();
            let (head, around) = (
                tokenizer.count_without_text(&slot.front()) as usize,
                tokenizer.count_template(&slot),
            );
            let mut ids: BTreeMap<String, Vec<Vec<u32>>> = BTreeMap::new();
            for seq in 0..12 {
                let prompt = prompt(&opened, seq);
                assert_eq!(
                    tokens_of(&prompt, &tokenizer, None),
                    Some(around + 320),
                    "{} {kind}",
                    chat.name
                );
                assert_eq!(prompt.tokens, Some(around + 320));
                let whole = tokenizer
                    .chat(&[json!({ "role": "user", "content": prompt.text })], None)
                    .unwrap();
                ids.entry(prompt.group.unwrap())
                    .or_default()
                    .push(tokenizer.ids(&whole).unwrap());
            }
            assert_eq!(
                ids.keys().collect::<Vec<_>>(),
                ["prefix-0", "prefix-1", "prefix-2"]
            );
            let prefixes: HashSet<&[u32]> =
                ids.values().map(|group| &group[0][..head + 300]).collect();
            assert_eq!(prefixes.len(), 3);
            for group in ids.values() {
                assert!(
                    group
                        .iter()
                        .all(|each| each.starts_with(&group[0][..head + 300])),
                    "{} {kind}",
                    chat.name
                );
                let rests: HashSet<&[u32]> = group.iter().map(|each| &each[head + 300..]).collect();
                assert_eq!(rests.len(), 4);
            }
        }
    }

    #[test]
    fn a_truncated_context_loses_the_prefix_with_the_first_turn() {
        let mut spec = source(1, None, 50, Quantity::fixed(10));
        spec.turns = Some(Turns::default());
        spec.generated.sessions = Some(GeneratedSessions {
            count: Quantity::fixed(3),
            tokens: Quantity::fixed(10),
            max_tokens: Some(Quantity::fixed(10)),
            limit: Some(ContextLimit {
                tokens: 75,
                at_limit: AtLimit::Truncate,
            }),
        });
        // 50 + 10 + 10 tokens; the second turn has no room beside the first, the third has room beside the second.
        let session = written(opened(&spec, 0).unwrap().prompts.as_ref(), 0);
        let oldest: Vec<u32> = session.turns.iter().map(|turn| turn.history_from).collect();
        assert_eq!(oldest, [0, 1, 1]);
    }

    #[test]
    fn groups_alternate_until_the_end() {
        let spec = source(2, Some(2), 8, Quantity::uniform(4, 9));
        let bounded = opened(&spec, 0).unwrap();
        assert_eq!(
            groups(&bounded, 4),
            ["prefix-0", "prefix-1", "prefix-0", "prefix-1"]
        );
        assert_eq!(
            (bounded.prompts.len(), prompt(&bounded, 5)),
            (Some(4), prompt(&bounded, 1))
        );
        assert_eq!(prompt(&opened(&spec, 3).unwrap(), 0), prompt(&bounded, 3));
        let stop = DatasetSpec {
            on_exhausted: OnExhausted::Stop,
            ..spec
        };
        let stop = opened(&stop, 1).unwrap();
        assert!(stop.prompts.session(3).is_some() && stop.prompts.session(4).is_none());
        assert_eq!(
            opened(&source(2, None, 8, Quantity::fixed(4)), 0)
                .unwrap()
                .prompts
                .len(),
            None
        );
    }

    #[test]
    fn a_shuffle_takes_every_prompt_once() {
        let texts = |spec: &DatasetSpec| -> Vec<String> {
            let opened = opened(spec, 0).unwrap();
            (0..24).map(|seq| prompt(&opened, seq).text).collect()
        };
        let mut spec = source(4, Some(6), 8, Quantity::fixed(4));
        let straight = texts(&spec);
        spec.order = Order::Shuffle;
        let mixed = texts(&spec);
        assert_eq!(mixed, texts(&spec));
        assert_ne!(mixed, straight);
        assert_eq!(
            mixed.into_iter().collect::<HashSet<_>>(),
            straight.into_iter().collect()
        );
        let endless = opened(
            &DatasetSpec {
                order: Order::Shuffle,
                ..source(4, None, 8, Quantity::fixed(4))
            },
            0,
        )
        .unwrap();
        let turns = groups(&endless, 40);
        assert!(
            turns
                .chunks(4)
                .all(|turn| turn.iter().collect::<HashSet<_>>().len() == 4)
        );
        assert!(turns.chunks(4).any(|turn| turn != &turns[..4]));
    }

    #[test]
    fn with_cache_bust_prompts_share_nothing_and_have_the_same_length() {
        let folder = CHATS[0].folder("byte-level");
        let tokenizer = Some(folder.path().display().to_string());
        let spec = DatasetSpec {
            tokenizer,
            ..source(2, Some(3), 40, Quantity::fixed(20))
        };
        let busted = DatasetSpec {
            cache_bust: true,
            ..spec.clone()
        };
        let (plain, own, later) = (
            opened(&spec, 0).unwrap(),
            opened(&busted, 0).unwrap(),
            opened(&busted, 4).unwrap(),
        );
        let tokenizer = own.tokenizer.clone().unwrap();
        let slot = prompt_slot(&Prompt::default(), &tokenizer, None).unwrap();
        let head = tokenizer.count_without_text(&slot.front()) as usize;
        let mut beginnings = HashSet::new();
        // Two rounds: a dataset that starts again does not repeat its beginnings.
        for seq in 0..12 {
            let prompt = prompt(&own, seq);
            assert_eq!(
                tokens_of(&prompt, &tokenizer, None),
                Some(tokenizer.count_template(&slot) + 60)
            );
            assert_eq!(prompt.tokens, Some(tokenizer.count_template(&slot) + 60));
            let whole = tokenizer
                .chat(&[json!({ "role": "user", "content": prompt.text })], None)
                .unwrap();
            beginnings.insert(tokenizer.ids(&whole).unwrap()[head..head + 8].to_vec());
        }
        assert_eq!(beginnings.len(), 12);
        assert_eq!(
            (
                own.prompts.len(),
                own.prompts.distinct(),
                plain.prompts.distinct()
            ),
            (Some(6), None, Some(6))
        );
        assert_eq!(groups(&own, 4), groups(&plain, 4));
        assert_eq!(prompt(&own, 5), prompt(&later, 1));
        assert!(
            own.notes.iter().all(|note| !note.contains("cache_bust")),
            "{:?}",
            own.notes
        );
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let tell = |spec: &DatasetSpec| opened(spec, 0).unwrap_err().to_string();
        assert_eq!(
            tell(&source(0, None, 8, Quantity::fixed(4))),
            "`prefix`: groups must be 1 to 1000000, each with at least 1 prompt"
        );
        assert_eq!(
            tell(&source(2, Some(u64::MAX), 8, Quantity::fixed(4))),
            "`prefix`: too many prompts"
        );
        let short = DatasetSpec {
            max_tokens: Some(10),
            ..source(2, None, 8, Quantity::fixed(4))
        };
        assert!(
            tell(&short)
                .starts_with("`tokens` of a prefix dataset: the length is outside `prompt_tokens`")
        );
    }

    #[test]
    fn every_place_is_taken_once_and_the_seed_decides() {
        for len in [1u64, 2, 3, 4, 5, 16, 17, 1000] {
            let order = |seed| {
                (0..len)
                    .map(|index| permute(index, len, Seed(seed)))
                    .collect::<Vec<_>>()
            };
            let mut sorted = order(1);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..len), "{len}");
            assert_eq!(order(1), order(1));
            assert!(len < 1000 || order(1) != order(2));
        }
        let fixed = (0..1000u64)
            .filter(|&index| permute(index, 1000, Seed(1)) == index)
            .count();
        assert!(fixed < 10, "{fixed} of 1000 stay where they are");
        assert!(permute(u64::MAX, u64::MAX, Seed(1)) < u64::MAX);
    }
}
