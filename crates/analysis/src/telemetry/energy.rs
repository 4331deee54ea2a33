//! Energy: power over time.

use super::Window;

/// The area under a line through the samples, in seconds times their unit, over the window. At an edge without a sample beyond
/// it the nearest value stands, for no longer than the widest gap between two samples; None where more than that is missing.
pub(super) fn integral(samples: &[(i64, f64)], window: Window) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let gap = samples.windows(2).filter_map(|pair| Some(pair.last()?.0 - pair.first()?.0)).max()?;
    if first.0 - window.from > gap || window.until - last.0 > gap {
        return None;
    }
    let ends = ((window.from.min(first.0), first.1), (window.until.max(last.0), last.1));
    let all: Vec<(i64, f64)> = [ends.0].into_iter().chain(samples.iter().copied()).chain([ends.1]).collect();
    Some(all.windows(2).filter_map(|pair| Some(piece(*pair.first()?, *pair.last()?, window))).sum())
}

/// The part of a trapezoid that lies in the window.
fn piece(a: (i64, f64), b: (i64, f64), window: Window) -> f64 {
    let (from, until) = (a.0.max(window.from), b.0.min(window.until));
    if until <= from {
        return 0.0;
    }
    let at = |time: i64| a.1 + (b.1 - a.1) * ((time - a.0) as f64 / (b.0 - a.0) as f64);
    (at(from) + at(until)) / 2.0 * (until - from) as f64 / 1e9
}
