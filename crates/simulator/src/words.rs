//! The text of the answers: short words, drawn on a seed. None has a character that JSON would escape.

use llmscen_core::seed::Seed;

const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " that", " it", " was", " for", " on", " are", " with", " as", " at", " be",
    " this", " from", " or", " had", " by", " not", " word", " but", " what", " some", " we", " can", " out", " other", " all",
    " when",
];

/// Token `index` of a choice of the answer whose seed this is: one short word with a space in front.
pub(super) fn word(answer: Seed, choice: usize, index: u64) -> &'static str {
    let branch = index ^ ((choice as u64) << 56);
    WORDS[(answer.child(branch).0 % WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_depend_on_answer_choice_and_index() {
        let text = |seed, choice| (0..50).map(|index| word(Seed(seed), choice, index)).collect::<String>();
        assert_eq!(text(1, 0), text(1, 0));
        assert_ne!(text(1, 0), text(2, 0));
        assert_ne!(text(1, 0), text(1, 1));
    }
}
