//! How the values behind a check depend on one another: gaps of one request, and requests that shared a batch or a queue.

use crate::judge::counted::value_at;
use crate::judge::evidence::{Evidence, own, tagged};
use llmscen_core::check::{Check, Of, RequestLimit, Subject};
use llmscen_core::sample::{Row, Sample};
use llmscen_core::stats::design::Unit;
use llmscen_core::stats::design::{self, Dependence};
use llmscen_core::stats::quantile::rank;

/// The dependence behind the estimate `value` of a check: of a quantile by the share of values beyond it.
pub(super) fn dependence(check: &Check, sample: &Sample, evidence: &Evidence, value: f64) -> Dependence {
    let unit: &dyn Fn(&Row) -> Option<Unit> = match evidence {
        // The bounds of a ratio have it in them.
        Evidence::Ratio(_) | Evidence::Figure(..) => return Dependence::NONE,
        Evidence::Values(..) => &|row| beyond(check, row, value),
        Evidence::Share { .. } => &|row| counted(check, row),
    };
    if let (Evidence::Share { .. }, Subject::Goodput(limits)) = (evidence, &check.subject)
        && !check.op.is_ceiling()
        && 0.0 < check.limit
        && check.limit < 1.0
    {
        return of_goodput(check, sample, limits);
    }
    let (rounds, units): (Vec<u32>, Vec<Unit>) =
        rows(check, sample).into_iter().filter_map(|row| Some((row.round, unit(row)?))).unzip();
    design::dependence(&units, &rounds)
}

/// A goodput asks for a quantile of how near each request is to its limits: where few requests break them, those that come
/// nearest show the dependence. So does each limit alone: requests that break an independent one hide the bursts of another.
fn of_goodput(check: &Check, sample: &Sample, limits: &[RequestLimit]) -> Dependence {
    let rows: Vec<&Row> = rows(check, sample).into_iter().filter(|row| !row.left).collect();
    let rounds: Vec<u32> = rows.iter().map(|row| row.round).collect();
    let of = |limits: &[RequestLimit]| {
        let own: Vec<f64> = rows.iter().map(|row| severity(row, limits)).collect();
        let mut sorted = own.clone();
        let place = rank(sorted.len(), check.limit);
        let seen = value_at(&mut sorted, place)?;
        let over = |severity: f64| if seen.is_infinite() { severity == seen } else { severity > seen };
        let unit = |severity: &f64| Unit { amount: f64::from(u8::from(over(*severity))), weight: 1.0 };
        Some(design::dependence(&own.iter().map(unit).collect::<Vec<Unit>>(), &rounds))
    };
    let each = limits.iter().filter(|_| limits.len() > 1).filter_map(|limit| of(std::slice::from_ref(limit)));
    of(limits).into_iter().chain(each).reduce(Dependence::or_greater).unwrap_or(Dependence::NONE)
}

/// The greatest share that a request takes of its limits; infinite where it failed or has not what a limit is about.
fn severity(row: &Row, limits: &[RequestLimit]) -> f64 {
    let of = |limit: &RequestLimit| match own(row, limit.metric) {
        [] if row.meets(std::slice::from_ref(limit)) => 0.0,
        [] => f64::INFINITY,
        values => {
            let ratio = |value: &f64| if limit.op.is_ceiling() { value / limit.limit } else { limit.limit / value };
            values.iter().map(ratio).fold(0.0, f64::max)
        }
    };
    if row.ok { limits.iter().map(of).fold(0.0, f64::max) } else { f64::INFINITY }
}

/// The rows that a check is about, by round and in the order of their scheduled send.
fn rows<'a>(check: &Check, sample: &'a Sample) -> Vec<&'a Row> {
    let tags: &[(String, String)] = match &check.subject {
        Subject::Metric { tags, .. } => tags,
        Subject::Goodput(_) | Subject::Signal { .. } => &[],
    };
    let mut rows: Vec<&Row> = sample.rows.iter().filter(|row| tagged(row, tags)).collect();
    rows.sort_by(|a, b| a.round.cmp(&b.round).then(a.scheduled_s.total_cmp(&b.scheduled_s)));
    rows
}

/// How many of a request's values lie beyond the estimate; None where it has none.
fn beyond(check: &Check, row: &Row, value: f64) -> Option<Unit> {
    let Subject::Metric { metric, .. } = &check.subject else { return None };
    let worst = [if check.op.is_ceiling() { f64::INFINITY } else { f64::NEG_INFINITY }];
    let lost = check.of == Of::Scheduled && !row.ok && !row.left;
    let own: &[f64] = if lost { &worst } else { own(row, *metric) };
    // Nothing is beyond an estimate that lies among the failed; they themselves are what counts.
    let over = own.iter().filter(|one| if value.is_infinite() { **one == value } else { **one > value }).count();
    (!own.is_empty()).then_some(Unit { amount: over as f64, weight: own.len() as f64 })
}

fn counted(check: &Check, row: &Row) -> Option<Unit> {
    let hit = match &check.subject {
        Subject::Goodput(limits) => row.meets(limits),
        Subject::Metric { .. } => !row.ok,
        Subject::Signal { .. } => return None,
    };
    (!row.left).then_some(Unit { amount: f64::from(u8::from(hit)), weight: 1.0 })
}

#[cfg(test)]
mod tests;
