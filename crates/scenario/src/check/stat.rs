//! The statistic of a distribution: `.p99`.

use super::CheckError;
use super::cursor::Cursor;
use crate::suggest::near;
use llmscen_core::metric::{Metric, Scope, Stat};
use std::ops::Range;

const EXIST: &str = "Statistics are `p0` to `p100` (`p99.9` too), `mean`, `min`, `max`, `count` and `sd`.";

/// Reads the statistic of a metric whose name ends at `end`; None exactly where the metric has one value per case.
pub(super) fn read(cursor: &mut Cursor<'_>, metric: Metric, end: usize) -> Result<Option<Stat>, CheckError> {
    if !cursor.eat('.') {
        if metric.per() == Scope::Case {
            return Ok(None);
        }
        let at = end - metric.name().len()..end;
        let error = CheckError::new(at, format!("`{metric}` needs a statistic"), format!("for example `{metric}.p95`"));
        return Err(error.help(EXIST));
    }
    let (name, at) = cursor.stat();
    match Stat::parse(name) {
        Some(_) if metric.per() == Scope::Case => {
            let error = CheckError::new(at, format!("`{metric}` is one value per case"), "has no statistics");
            Err(error.help(format!("Write `{metric}` alone.")))
        }
        Some(stat) => Ok(Some(stat)),
        None => Err(unknown(cursor, name, at)),
    }
}

/// A word that is no statistic.
pub(super) fn unknown(cursor: &Cursor<'_>, name: &str, at: Range<usize>) -> CheckError {
    let label = match name {
        "avg" => Some("mean"),
        "median" => Some("p50"),
        _ => near(name, ["mean", "min", "max", "count", "sd"]),
    };
    let label = label.map_or("does not exist".to_owned(), |meant| format!("did you mean `{meant}`?"));
    CheckError::new(cursor.visible(at), format!("unknown statistic `{name}`"), label).help(EXIST)
}
