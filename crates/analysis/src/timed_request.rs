//! The measured requests of a case with their instants.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::sample::given_up;
use crate::table::Table;
use llmscen_core::stamped::Stamped;
use llmscen_core::units::Nanos;

/// The measured requests of a case, those of [`crate::sample`], with their instants since the start of the run, in
/// the order of (round, seq, turn).
pub fn stamped(table: &Table, facts: &CaseFacts<'_>) -> Vec<Stamped> {
    let all = table.rows_of_case(&facts.case.id).into_iter();
    all.filter(|fact| fact.measured() && !given_up(fact, facts)).map(|fact| stamp(&fact, facts)).collect()
}

fn stamp(fact: &RequestRow<'_>, facts: &CaseFacts<'_>) -> Stamped {
    let part = facts.parts.iter().find(|part| part.case == facts.case.id && part.round == fact.round());
    let origin = part.map_or(0, |part| part.origin_ns);
    let at = |stamp: u64| Nanos(origin + stamp);
    Stamped {
        row: fact.row(),
        intended: at(fact.intended()),
        sent: fact.sent().map(at),
        first_token: fact.events().first().copied().map(at),
        last_token: fact.events().last().copied().map(at),
        end: at(fact.end()),
        events: fact.events().len() as u64,
        failure: fact.failure(),
        message: fact.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failed, outcome, stream, table, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::FailureKind;

    #[test]
    fn stamps_count_from_the_start_of_the_run() {
        let rows = [warmup(outcome(0)), stream(1, 100, &[150, 170, 200]), outcome(2), failed(3, FailureKind::Dropped)];
        let parts = [Part { case: "a".into(), origin_ns: 5_000_000_000, ..Part::default() }];
        let case = case(Shape::Closed { users: 1 });
        let seen = stamped(&table("a", &rows), &CaseFacts { case: &case, parts: &parts, until: None });
        let ms = |millis| Some(Nanos::from_millis(millis));
        assert_eq!(seen.iter().map(|row| row.sent).collect::<Vec<_>>(), [ms(5100), ms(5202), None]);
        assert_eq!((seen[0].first_token, seen[0].last_token, seen[0].end), (ms(5150), ms(5200), Nanos::from_millis(5200)));
        assert_eq!((seen[0].events, seen[0].answer_ms(), seen[0].pace_ms(seen[0].answer_ms())), (3, Some(100.0), Some(25.0)));
        assert_eq!((seen[1].first_token, seen[1].answer_ms(), seen[1].pace_ms(Some(80.0))), (None, Some(80.0), None));
        assert_eq!((seen[2].failure, seen[2].message.as_str()), (Some(FailureKind::Dropped), "no luck"));
        assert_eq!(seen[2].get(Metric::E2eService), None);
    }
}
