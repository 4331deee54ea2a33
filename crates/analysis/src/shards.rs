//! The measured requests of a case by shard.

use crate::CaseFacts;
use crate::request_row::RequestRow;
use crate::round::cancelled_by_stop;
use crate::table::Table;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::FailureKind;
use std::collections::BTreeMap;

/// The measured requests of one shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardSample {
    /// Requests, dropped ones included.
    pub requests: u64,
    /// Successful requests.
    pub ok: u64,
    /// Requests dropped at the shard's share of `max_in_flight`.
    pub dropped: u64,
    /// Requests that the shard had no file or port for.
    pub without_file: u64,
    /// Send delays, milliseconds.
    pub send_delays_ms: Vec<f64>,
    /// TTFT of the successful requests, milliseconds, ordered by round and scheduled send.
    pub ttft_ms: Vec<f64>,
}

/// The measured requests of a case by shard number, of the rounds that `facts` has.
pub fn shard_samples(table: &Table, facts: &CaseFacts<'_>) -> BTreeMap<u32, ShardSample> {
    let mut rows: Vec<RequestRow<'_>> = table
        .rows_of_case(&facts.case.id)
        .into_iter()
        .filter(|row| row.measured() && !cancelled_by_stop(row, facts))
        .filter(|row| facts.parts.iter().any(|part| part.round == row.round()))
        .collect();
    rows.sort_by_key(|row| (row.round(), row.intended(), row.seq(), row.turn()));
    let mut shards: BTreeMap<u32, ShardSample> = BTreeMap::new();
    for row in &rows {
        let shard = shards.entry(row.shard()).or_default();
        shard.requests += 1;
        shard.ok += u64::from(row.ok());
        shard.dropped += u64::from(row.failure() == Some(FailureKind::Dropped));
        shard.without_file += u64::from(row.lacked_file());
        shard.send_delays_ms.extend(row.metric(Metric::ScheduleLag));
        shard
            .ttft_ms
            .extend(row.metric(Metric::Ttft).filter(|_| row.ok()));
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::TaggedOutcome;
    use crate::fixture::{case, facts, failed, sample_case, stream, warmup};
    use llmscen_core::load::Shape;
    use llmscen_core::manifest::Part;
    use llmscen_core::outcome::Outcome;
    use llmscen_core::stats::design;

    fn table_of(rows: &[(u32, Outcome)]) -> Table {
        Table::build(rows.iter().map(|(shard, outcome)| TaggedOutcome {
            case: "a",
            round: 0,
            shard: *shard,
            outcome,
        }))
        .unwrap()
    }

    #[test]
    fn each_shard_has_its_own_requests() {
        let rows = [
            (0, warmup(stream(0, 0, &[500]))),
            (0, stream(2, 50, &[90, 95])),
            (1, stream(1, 40, &[60, 70])),
            (1, stream(3, 10, &[40, 45])),
            (1, failed(5, FailureKind::Dropped)),
        ];
        let case = case(Shape::Closed { users: 2 });
        let parts = [Part::default()];
        let facts = CaseFacts {
            parts: &parts,
            ..facts(&case)
        };
        let shards = shard_samples(&table_of(&rows), &facts);
        let seen = |index: u32| {
            let shard = &shards[&index];
            (shard.requests, shard.ok, shard.dropped)
        };
        assert_eq!((shards.len(), seen(0), seen(1)), (2, (1, 1, 0), (3, 2, 1)));
        let order: Vec<f64> = shards[&1].ttft_ms.clone();
        assert_eq!(order.len(), 2);
        assert!(order[0] > order[1], "by scheduled send: {order:?}");
    }

    /// A closed loop of four shards, each at its own pace, on a server that is slow in every second tenth of a second.
    fn uneven_shards() -> Vec<(u32, Outcome)> {
        let mut rows = Vec::new();
        for shard in 0..4u32 {
            let (mut at, mut index) = (0, 0);
            let pace = [2, 3, 5, 11][shard as usize];
            while at < 2000 {
                let slow = at / 100 % 2 == 1;
                let first = at + if slow { 90 } else { 10 };
                let seq = u64::from(shard) + 4 * index;
                rows.push((shard, stream(seq, at, &[first, first + 1])));
                (at, index) = (at + pace, index + 1);
            }
        }
        rows
    }

    #[test]
    fn the_dependence_of_merged_shards_is_that_in_time() {
        let rows = uneven_shards();
        let case = case(Shape::Closed { users: 4 });
        let sample = sample_case(&table_of(&rows), &facts(&case));
        type Key<'a> = &'a dyn Fn(&(u32, Outcome)) -> (u64, u64);
        let ordered = |key: Key<'_>| -> Vec<f64> {
            let mut rows: Vec<&(u32, Outcome)> = rows.iter().collect();
            rows.sort_by_key(|row| key(row));
            let first = |row: &&(u32, Outcome)| {
                let line = &row.1.timeline;
                line.tokens[0].since(line.intended).millis()
            };
            rows.iter().map(first).collect()
        };
        let in_time = ordered(&|row| (row.1.timeline.intended.0, row.1.seq));
        let by_number = ordered(&|row| (row.1.seq, 0));
        let merged: Vec<f64> = sample.requests.values(Metric::Ttft).collect();
        assert_eq!(merged, in_time);
        let times = |values: Vec<f64>| design::inflation(&[values]).times;
        let (merged, by_number) = (times(merged), times(by_number));
        assert!(merged > 2.0 * by_number, "{merged} and {by_number}");
    }
}
