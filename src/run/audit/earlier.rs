//! The rule for runs that were stored without a list of stalls: it knows how late ticks were, and rejects a case as a whole.

use llmscen_core::plan::AuditLimits;
use llmscen_core::report::Audit;
use llmscen_core::stats::share;
use llmscen_core::units::Unit;
use llmscen_report::format::against;

/// The share of requests, or of ticks, that may be later than the limit, and how sure it must be that more were.
const LATE: (f64, f64) = (0.01, 0.95);
/// So many late ones decide something, where there are as many at all: one hiccup makes a few of them.
const FEW: u64 = 3;

/// How many of `n` must be late for more than a hundredth to be late: of less than a hundred the p99 is the greatest, and one
/// would decide.
pub(in crate::run) fn many(n: u64) -> Option<u64> {
    share::decisive(n, LATE.0, LATE.1).map(|many| many.max(FEW.min(n)))
}

/// By how much enough requests left late, and enough ticks came late, decides; the reason names the p99, which is as much or more.
/// Limits are printed with as many digits as tell them from what broke them.
pub(super) fn reasons(audit: &Audit, [late, stalled]: [Option<f64>; 2], limits: &AuditLimits) -> Vec<String> {
    let p99 = |sure: Option<f64>, limit: f64, p99: Option<f64>| sure.filter(|sure| *sure > limit).and(p99);
    let mut reasons = Vec::new();
    let mut over = |value: Option<f64>, limit: f64, unit: Unit, say: &dyn Fn(&str) -> String| {
        if let Some(value) = value.filter(|value| *value > limit) {
            let limit_text = against(Some(limit), limit, unit);
            reasons.push(say(&format!("{} (limit {limit_text})", against(Some(value), limit, unit))));
        }
    };
    let limit = limits.lag_p99.millis();
    over(p99(late, limit, audit.schedule_lag_ms_p99), limit, Unit::Millis, &|lag| {
        format!("requests left late by {lag} at p99: the tool could not keep its schedule")
    });
    let limit = limits.stall_p99.millis();
    over(p99(stalled, limit, audit.stall_ms_p99), limit, Unit::Millis, &|stall| {
        format!("worker threads stalled for {stall} at p99: stamps are late by as much")
    });
    over(audit.cpu_share_max, limits.cpu, Unit::Share, &|share| format!("a worker thread was busy for {share} of the time"));
    reasons
}
