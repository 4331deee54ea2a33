//! Suggestions for misspelled words, and lists of words.

/// Longest word that is compared, in bytes: the time is quadratic.
const LONGEST: usize = 200;

/// The candidate that is most similar to `word`: one with it as a dotted segment, one within a third of its length in
/// edits (Damerau–Levenshtein), or one with the same beginning; case is ignored, `-` and `_` are equal.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let normalized_word = plain(word);
    // One edit of a single letter would match anything.
    let max_edits = (normalized_word.chars().count() / 3)
        .max(1)
        .min(normalized_word.chars().count().saturating_sub(1));
    let rank = |candidate: &'a str| {
        let normalized = plain(candidate);
        let last = normalized.rsplit('.').next().unwrap_or(&normalized);
        let full_distance = distance(&normalized_word, &normalized, max_edits);
        let tail = distance(&normalized_word, last, max_edits).saturating_add(1);
        let begins = normalized_word.len() > 2
            && (normalized.starts_with(&normalized_word)
                || normalized_word.starts_with(&normalized) && normalized.len() > 2);
        (
            full_distance
                .min(tail)
                .min(if begins { 1 } else { usize::MAX }),
            candidate,
        )
    };
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(rank)
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .filter(|(d, _)| *d <= max_edits)
        .map(|(_, found)| found)
}

/// The edit distance of two words, unless their lengths differ by more than `most`.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let length_difference = a.chars().count().abs_diff(b.chars().count());
    if length_difference > most {
        usize::MAX
    } else {
        strsim::damerau_levenshtein(a, b)
    }
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

/// The label at an unknown word: the suggestion, or else `otherwise`.
pub(crate) fn meant_or(meant: Option<&str>, otherwise: &str) -> String {
    meant.map_or_else(
        || otherwise.to_owned(),
        |meant| format!("did you mean `{meant}`?"),
    )
}

/// `` `a`, `b` and `c` ``, with the given conjunction.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>, conjunction: &str) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} {conjunction} {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_found() {
        let words = ["concurrency", "rate", "max_in_flight", "load.concurrency"];
        assert_eq!(nearest("concurency", words), Some("concurrency"));
        assert_eq!(nearest("Max-In-Flight", words), Some("max_in_flight"));
        assert_eq!(nearest("rtae", words), Some("rate"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("pdf", ["md", "png"]), None);
        assert_eq!(nearest("minimum", ["min", "max"]), Some("min"));
        assert_eq!(
            nearest("concurrency", ["load.concurrency", "load.rate"]),
            Some("load.concurrency")
        );
        assert_eq!(nearest("x", []), None);
        assert_eq!(
            (nearest("K", ["_"]), nearest("K", ["k"])),
            (None, Some("k"))
        );
    }

    #[test]
    fn lists_are_prose() {
        assert_eq!(list(["a"], "or"), "`a`");
        assert_eq!(list(["a", "b", "c"], "or"), "`a`, `b` or `c`");
        assert_eq!(list([], "or"), "none");
    }
}
