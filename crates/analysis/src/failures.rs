//! One example of each kind of failure.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::sample::given_up;
use crate::table::Table;
use llmscen_core::outcome::FailureKind;
use llmscen_core::report::FailureExample;
use std::collections::BTreeMap;

/// The kinds of failure among the measured requests of a case, most frequent first, each with the words of its first one;
/// without what the tool itself gave up when it ended a round early.
pub fn failures(table: &Table, facts: &CaseFacts<'_>) -> Vec<FailureExample> {
    let mut kinds: BTreeMap<FailureKind, FailureExample> = BTreeMap::new();
    let counts = |fact: &&RequestRow<'_>| fact.measured() && !fact.left() && !given_up(fact, facts);
    for fact in table.rows_of_case(&facts.case.id).iter().filter(counts) {
        let Some(kind) = fact.failure() else { continue };
        let status = fact.status().and_then(|status| u16::try_from(status).ok());
        let first = || FailureExample { kind, count: 0, status, message: fact.message().into(), at: fact.at_place().into() };
        kinds.entry(kind).or_insert_with(first).count += 1;
    }
    let mut examples: Vec<_> = kinds.into_values().collect();
    examples.sort_by_key(|example| std::cmp::Reverse(example.count));
    examples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, facts, failed, outcome, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::outcome::Failure;

    #[test]
    fn the_most_frequent_comes_first_with_its_first_words() {
        let mut second = failed(3, FailureKind::Http429);
        second.end = Err(Failure::new(FailureKind::Http429, "later words"));
        let rows = [
            warmup(failed(0, FailureKind::Tls)),
            failed(1, FailureKind::Connect),
            failed(2, FailureKind::Http429),
            second,
            outcome(4),
        ];
        let seen = failures(&table("a", &rows), &facts(&case(Shape::Burst)));
        let words: Vec<_> = seen.iter().map(|one| (one.kind, one.count, one.message.as_str(), one.at.as_str())).collect();
        let at = "after headers";
        assert_eq!(words, [(FailureKind::Http429, 2, "no luck", at), (FailureKind::Connect, 1, "no luck", at)]);
    }
}
