//! The wall-clock time of the run's start in its various forms, in UTC.

use llmscen_core::seed::Seed;
use time::OffsetDateTime;

/// The time as a date; the epoch if the number is out of range.
fn date(unix_ns: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ns))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// RFC 3339 to the millisecond: `2026-11-21T08:15:30.250Z`.
pub fn rfc3339(unix_ns: u64) -> String {
    let date = date(unix_ns);
    let (day, clock) = (date.date(), date.time());
    let (hour, minute, second, milli) = clock.as_hms_milli();
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The name of a run's folder: `20261121T081530Z`.
pub fn folder_name(unix_ns: u64) -> String {
    rfc3339(unix_ns)
        .split('.')
        .next()
        .map(|text| text.replace(['-', ':'], "") + "Z")
        .unwrap_or_default()
}

/// A unique id: a hash of plan and start time, in 16 hex digits.
pub fn run_id(plan_id: &str, unix_ns: u64) -> String {
    format!("{:016x}", Seed(unix_ns).child(plan_id).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        let instant = 1_795_249_530_250_000_000;
        assert_eq!(rfc3339(instant), "2026-11-21T08:25:30.250Z");
        assert_eq!(folder_name(instant), "20261121T082530Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn two_runs_of_a_plan_have_two_ids() {
        assert_ne!(run_id("a", 1), run_id("a", 2));
        assert_ne!(run_id("a", 1), run_id("b", 1));
        assert_eq!(run_id("a", 1).len(), 16);
    }
}
