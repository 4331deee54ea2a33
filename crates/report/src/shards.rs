//! The shards of a distributed run.

use crate::format::{ABSENT, counted, millis, optional};
use crate::table::{Cell, Column, Columns, Table};
use llmscen_core::report::{CaseReport, InvalidReason, Report, ShardRecord};
use llmscen_core::stats::quantile::select_quantile;
use llmscen_core::units::Unit;
use std::collections::BTreeSet;

/// With more shards, only those that differ are shown.
const MAX_SHOWN: usize = 16;
/// A shard differs if its median TTFT is further from that of the shards than this share.
pub const MIN_TTFT_SHARE: f64 = 0.1;

/// The shards of each case; empty for a run of one process.
pub(crate) fn shards_table(report: &Report) -> Table {
    type Shard<'a> = (usize, &'a CaseReport, &'a ShardRecord);
    let shards = report.cases.iter().enumerate().flat_map(|(index, case)| {
        let shown = shown_shards(case).into_iter();
        shown.map(move |shard| (index, case, shard))
    });
    let millis_of = |of: fn(&ShardRecord) -> Option<f64>| {
        move |(.., shard): &Shard<'_>| {
            let value = of(shard);
            Cell::figure(optional(value, Unit::Millis), value)
        }
    };
    let text = |head: &str| Column::text().documents(head);
    let number = |head: &str| Column::number().documents(head);
    Columns::<Shard<'_>>::new()
        .add_case(text("Case"))
        .add(number("Shard"), |(.., shard)| {
            Cell::count(u64::from(shard.index))
        })
        .add(text("Host"), |(.., shard)| Cell::prose(&shard.host))
        .add(number("ok / requests"), |(.., shard)| {
            Cell::figure(format!("{} / {}", shard.ok, shard.requests), shard.ok)
        })
        .add(number("Dropped"), |(.., shard)| Cell::count(shard.dropped))
        .add(
            number("Send delay p99"),
            millis_of(|shard| shard.send_delay_ms_p99),
        )
        .add(number("Stall p99"), millis_of(|shard| shard.stall_ms_p99))
        .add(number("CPU per core"), |(.., shard)| {
            Cell::figure(optional(shard.cpu_share, Unit::Share), shard.cpu_share)
        })
        .add(number("Clock offset"), |(.., shard)| {
            let offset = match shard.offset_source.as_str() {
                "" => ABSENT.to_owned(),
                _ => format!("{} ± {}", millis(shard.offset_ms), millis(shard.bound_ms)),
            };
            Cell::figure(offset, shard.offset_ms)
        })
        .add(text("Offset by"), |(.., shard)| {
            Cell::prose(&shard.offset_source)
        })
        .add(number("TTFT p50"), millis_of(|shard| shard.ttft_ms_p50))
        .add(number("TTFT p99"), millis_of(|shard| shard.ttft_ms_p99))
        .add(text("Reasons"), |(.., shard)| {
            Cell::prose(&InvalidReason::joined(&shard.reasons))
        })
        .table_by_case(shards)
}

/// All shards of a case, or of many those that differ.
fn shown_shards(case: &CaseReport) -> Vec<&ShardRecord> {
    let mut medians: Vec<f64> = case
        .shards
        .iter()
        .filter_map(|shard| shard.ttft_ms_p50)
        .collect();
    let median = select_quantile(&mut medians, 0.5);
    let is_far = |shard: &ShardRecord| {
        let off = shard
            .ttft_ms_p50
            .zip(median)
            .map(|(own, median)| (own - median).abs() / median);
        off.is_some_and(|off| off > MIN_TTFT_SHARE)
    };
    let differs = |shard: &&ShardRecord| {
        !shard.reasons.is_empty() || shard.late || shard.dropped > 0 || is_far(shard)
    };
    let is_few = case.shards.len() <= MAX_SHOWN;
    case.shards
        .iter()
        .filter(|shard| is_few || differs(shard))
        .collect()
}

/// How many shards the table omits; None if it has all.
pub(crate) fn omitted_shards(report: &Report) -> Option<String> {
    let omitted = |case: &CaseReport| case.shards.len() - shown_shards(case).len();
    let most = report.cases.iter().max_by_key(|case| omitted(case))?;
    let count = omitted(most);
    (count > 0).then(|| {
        format!(
            "Up to {count} of {} shards per case are not shown: no reason, no dropped request, \
             and a median TTFT within 10 % of that of all shards.",
            most.shards.len()
        )
    })
}

/// `8 shards on 4 hosts, clocks within 300 µs`; None for a run of one process.
pub fn shard_line(report: &Report) -> Option<String> {
    let most = report.cases.iter().map(|case| case.shards.len()).max()?;
    let shards = || report.cases.iter().flat_map(|case| &case.shards);
    let hosts: BTreeSet<&str> = shards().map(|shard| shard.host.as_str()).collect();
    let skew = shards().map(ShardRecord::skew_ms).fold(0.0, f64::max);
    (most > 0).then(|| {
        format!(
            "{} on {}, clocks within {}",
            counted(most, "shard"),
            counted(hosts.len(), "host"),
            millis(skew)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{report_of, sweep};
    use llmscen_core::report::Cause;

    fn shard(index: u32) -> ShardRecord {
        ShardRecord {
            index,
            host: format!("host-{}", index % 4),
            requests: 60,
            ok: 60,
            send_delay_ms_p99: Some(0.4),
            stall_ms_p99: Some(0.2),
            cpu_share: Some(0.31),
            offset_ms: 0.1,
            bound_ms: 0.2,
            offset_source: "exchange".into(),
            ttft_ms_p50: Some(120.0),
            ttft_ms_p99: Some(240.0),
            ..ShardRecord::default()
        }
    }

    fn report(count: u32, change: impl Fn(&mut ShardRecord)) -> Report {
        let mut case = crate::fixture::case(4);
        case.shards = (0..count).map(shard).collect();
        change(&mut case.shards[3]);
        report_of(vec![case], Default::default(), 0)
    }

    #[test]
    fn a_run_of_one_process_has_no_shards() {
        let report = sweep(1);
        assert!(shards_table(&report).rows.is_empty());
        assert_eq!((omitted_shards(&report), shard_line(&report)), (None, None));
        assert!(!crate::json(&report).unwrap().contains("\"shards\""));
    }

    #[test]
    fn few_shards_are_all_shown() {
        let report = report(8, |shard| {
            shard
                .reasons
                .push(Cause::LoadGenerator.reason("shard 3 (host-3): late"))
        });
        assert_eq!(
            shard_line(&report).unwrap(),
            "8 shards on 4 hosts, clocks within 300 µs"
        );
        let table = shards_table(&report);
        assert_eq!(
            table.markdown_rows()[3].join(" | "),
            "`concurrency=4` | 3 | host-3 | 60 / 60 | 0 | 400 µs | 200 µs | 31% | 100 µs ± 200 µs \
             | exchange | 120 ms | 240 ms | shard 3 (host-3): late"
        );
        assert_eq!((table.rows.len(), omitted_shards(&report)), (8, None));
    }

    #[test]
    fn of_many_shards_those_that_differ_are_shown() {
        for change in [
            (|shard| shard.ttft_ms_p50 = Some(140.0)) as fn(&mut ShardRecord),
            |shard| shard.dropped = 1,
            |shard| shard.late = true,
        ] {
            let report = report(128, change);
            let rows = shards_table(&report).markdown_rows();
            assert_eq!((rows.len(), rows[0][1].as_str()), (1, "3"));
            assert!(
                omitted_shards(&report)
                    .unwrap()
                    .starts_with("Up to 127 of 128 shards")
            );
        }
    }
}
