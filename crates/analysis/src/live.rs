//! A request as statistics will see it, while its case still runs.

use crate::columns::Columns;
use crate::facts::Fact;
use crate::table::Tagged;
use llmscen_core::outcome::Outcome;
use llmscen_core::sample::Row;

/// The row that the report will make of this outcome.
pub fn row(outcome: &Outcome, round: u32) -> Row {
    let mut columns = Columns::default();
    columns.push(&Tagged { case: "", round, shard: 0, outcome });
    Fact::at(&columns, 0).row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed, outcome, stream, table};
    use llmscen_core::outcome::{FailureKind, ServerTimes};
    use llmscen_core::units::Nanos;

    #[test]
    fn it_is_the_row_of_the_report() {
        let mut paced = stream(1, 100, &[150, 160, 190]);
        (paced.timeline.choices, paced.timeline.weights) = (vec![0, 1, 0], vec![2, 1, 4]);
        paced.server = ServerTimes { queue: Some(Nanos(5)), total: Some(Nanos(9)), ..ServerTimes::default() };
        let mut whole = stream(2, 200, &[250, 260]);
        whole.streamed = false;
        let rows = [outcome(0), paced, whole, failed(3, FailureKind::Truncated), failed(4, FailureKind::Dropped)];
        let table = table("a", &rows);
        let stored: Vec<Row> = crate::facts::of(&table, "a").unwrap().iter().map(Fact::row).collect();
        let live: Vec<Row> = rows.iter().map(|outcome| row(outcome, 0)).collect();
        assert_eq!(live, stored);
    }
}
