//! Rates and concurrency over time, as GuideLLM spreads them: what held for how long.

use crate::compat::guidellm::dist::Dist;

/// Instants closer than this, seconds, are one.
const TOGETHER: f64 = 1e-4;

/// Events per second from 0 to `until` seconds: each instant stands for the time that is nearer to it than to any other.
pub(super) fn rate(mut events: Vec<(f64, f64)>, until: f64) -> Dist {
    events.retain(|(at, _)| (0.0..=until).contains(at));
    events.extend([(0.0, 0.0), (until, 0.0)]);
    let events = merged(events);
    if events.len() < 2 {
        return Dist { count: events.len() as u64, ..Dist::default() };
    }
    let count: f64 = events.iter().map(|(_, weight)| weight).sum();
    let mut from = events.first().map_or(0.0, |(at, _)| *at);
    let mut rates = Vec::with_capacity(events.len());
    for pair in events.windows(2) {
        if let [(at, weight), (next, _)] = pair {
            let to = (at + next) / 2.0;
            rates.push((weight / (to - from), to - from));
            from = to;
        }
    }
    if let Some((at, weight)) = events.last() {
        let span = (at - from).max(1e-6);
        rates.push((weight / span, span));
    }
    Dist::weighted(rates, Some(count.round() as u64))
}

/// How many of these spans held at once, from 0 to `until` seconds.
pub(super) fn concurrency(spans: &[(f64, f64)], until: f64) -> Dist {
    let spans = spans.iter().filter(|(from, to)| *to >= 0.0 && *from <= until);
    let mut turns: Vec<(f64, f64)> = spans.clone().flat_map(|&(from, to)| [(from.max(0.0), 1.0), (to, -1.0)]).collect();
    let count = spans.count() as u64;
    turns.retain(|(at, _)| *at <= until);
    turns.push((until, 0.0));
    let mut level = 0.0;
    let turns = merged(turns);
    let levels = turns.windows(2).filter_map(|pair| match pair {
        [(at, step), (next, _)] => {
            level += step;
            Some((f64::max(level, 0.0), next - at))
        }
        _ => None,
    });
    Dist::weighted(levels.collect(), Some(count))
}

/// In order, with what happened within [`TOGETHER`] of the first of a group added up at its instant.
fn merged(mut events: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out: Vec<(f64, f64)> = Vec::with_capacity(events.len());
    for (at, weight) in events {
        match out.last_mut() {
            Some((first, sum)) if at - *first <= TOGETHER => *sum += weight,
            _ => out.push((at, weight)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_is_events_over_time() {
        let seen = rate(vec![(1.0, 1.0), (2.0, 1.0), (4.0, 2.0)], 4.0);
        assert_eq!((seen.mean, seen.count, seen.min, seen.max), (1.0, 4, 0.0, 2.0));
        assert_eq!(rate(Vec::new(), 0.0).count, 1);
    }

    #[test]
    fn concurrency_is_weighed_by_time() {
        let seen = concurrency(&[(0.0, 2.0), (1.0, 4.0)], 4.0);
        assert_eq!((seen.mean, seen.max, seen.count, seen.median()), (1.25, 2.0, 2, 1.0));
    }
}
