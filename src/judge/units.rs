//! What the bootstrap draws: requests, or whole rounds where there are five or more.

use crate::model::metric::{Metric, Per};
use crate::model::sample::{Row, Sample};
use crate::stats::bootstrap::{Unit, ratio};
use std::collections::BTreeMap;

/// Rounds from which on a round is what is drawn: requests of one round share its luck.
pub(super) const ROUNDS: usize = 5;

/// The units of a ratio.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Units {
    /// Requests or rounds.
    pub drawn: Vec<Unit>,
    /// Requests behind them.
    pub n: u64,
    /// Whether rounds are drawn.
    pub by_round: bool,
    /// The ratio over all; None without data.
    pub observed: Option<f64>,
}

/// For the mean of a metric over ok rows; for gaps, a request brings all of its own.
pub(super) fn mean(rows: &[&Row], metric: Metric) -> Units {
    let unit = |row: &&Row| match metric.per() {
        _ if !row.counts(metric) => None,
        Per::Gap => (!row.gaps.is_empty()).then(|| Unit { amount: row.gaps.iter().sum(), weight: row.gaps.len() as f64 }),
        Per::Request | Per::Case => row.values.get(&metric).map(|&amount| Unit { amount, weight: 1.0 }),
    };
    gathered(rows.iter().filter_map(|row| Some((row.round, unit(row)?))).collect())
}

/// For a throughput, or the mean throughput of a user; None for a metric that is neither.
pub(super) fn throughput(rows: &[&Row], metric: Metric, sample: &Sample) -> Option<Units> {
    let scale = match metric {
        Metric::OutputTpsPerUser => {
            let unit = |row: &&Row| Some((row.round, Unit { amount: row.user_tps()?, weight: 1.0 }));
            return Some(gathered(rows.iter().filter_map(unit).collect()));
        }
        Metric::RequestThroughput | Metric::OutputTps | Metric::TotalTps => 1.0,
        Metric::OutputTpsPerGpu => per_gpu(sample),
        _ => return None,
    };
    let counted = rows.iter().any(|row| row.ok && row.credit(metric).is_some()) || metric == Metric::RequestThroughput;
    if !counted || scale <= 0.0 {
        return Some(Units::default());
    }
    let times = times(rows, sample);
    let unit = |(row, &weight): (&&Row, &f64)| (row.round, Unit { amount: row.credit(metric).unwrap_or(0.0) * scale, weight });
    Some(gathered(rows.iter().zip(&times).map(unit).collect()))
}

/// One over the number of GPUs; 0 where it is not known.
fn per_gpu(sample: &Sample) -> f64 {
    let of = |metric| sample.scalars.get(&metric).copied().filter(|&value| value > 0.0);
    of(Metric::OutputTpsPerGpu).zip(of(Metric::OutputTps)).map_or(0.0, |(one, all)| one / all)
}

/// Each request's part of its round's window. In a closed loop a slow request delays the next one, so its part goes with its
/// own duration, whether it succeeded or not; in an open loop the arrivals set the pace, so all parts are equal.
fn times(rows: &[&Row], sample: &Sample) -> Vec<f64> {
    let open = sample.scalars.contains_key(&Metric::RateOffered);
    let took = |row: &&Row| if open { 1.0 } else { row.busy_ms };
    let (mut sums, mut counts) = (BTreeMap::<u32, f64>::new(), BTreeMap::<u32, f64>::new());
    for row in rows {
        *sums.entry(row.round).or_default() += took(row);
        *counts.entry(row.round).or_default() += 1.0;
    }
    let part = |row: &&Row| {
        let window = sample.windows.get(row.round as usize).copied().unwrap_or(0.0);
        match sums.get(&row.round).copied().filter(|&sum| sum > 0.0) {
            Some(sum) => window * took(row) / sum,
            None => window / counts.get(&row.round).copied().unwrap_or(1.0),
        }
    };
    rows.iter().map(part).collect()
}

fn gathered(units: Vec<(u32, Unit)>) -> Units {
    let n = units.len() as u64;
    let mut rounds = BTreeMap::<u32, Unit>::new();
    for (round, unit) in &units {
        let sum = rounds.entry(*round).or_insert(Unit { amount: 0.0, weight: 0.0 });
        *sum = Unit { amount: sum.amount + unit.amount, weight: sum.weight + unit.weight };
    }
    let by_round = rounds.len() >= ROUNDS;
    let drawn: Vec<Unit> =
        if by_round { rounds.into_values().collect() } else { units.into_iter().map(|(_, unit)| unit).collect() };
    let observed = drawn.iter().any(|unit| unit.weight > 0.0).then(|| ratio(&drawn));
    Units { drawn, n, by_round, observed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{failed, ok, sample};

    fn reply(round: u32, took: f64, tokens: f64) -> Row {
        Row { round, output_tokens: Some(tokens), busy_ms: took, ..ok(Metric::E2e, took) }
    }

    fn of(rows: Vec<Row>, windows: &[f64], metric: Metric) -> Units {
        let sample = Sample { windows: windows.to_vec(), ..sample(rows) };
        throughput(&sample.rows.iter().collect::<Vec<_>>(), metric, &sample).unwrap()
    }

    #[test]
    fn the_ratio_over_all_is_the_total_over_the_windows() {
        let rows = vec![reply(0, 100.0, 10.0), reply(0, 300.0, 30.0), failed(), reply(1, 100.0, 20.0)];
        let seen = of(rows, &[2.0, 1.0], Metric::OutputTps);
        assert_eq!((seen.observed, seen.n, seen.by_round), (Some(20.0), 4, false));
        assert_eq!(seen.drawn[..3].iter().map(|unit| unit.weight).collect::<Vec<_>>(), [0.5, 1.5, 0.0]);
    }

    #[test]
    fn a_failure_that_took_its_time_weighs_as_much_as_a_success() {
        let timed_out = Row { busy_ms: 300.0, ..failed() };
        let seen = of(vec![reply(0, 100.0, 10.0), timed_out], &[0.4], Metric::OutputTps);
        assert_eq!(seen.drawn, [Unit { amount: 10.0, weight: 0.1 }, Unit { amount: 0.0, weight: 0.3 }]);
    }

    #[test]
    fn five_rounds_are_drawn_as_rounds() {
        let rows = (0..5).flat_map(|round| [reply(round, 100.0, 10.0), reply(round, 50.0, 10.0)]).collect();
        let seen = of(rows, &[1.0, 2.0, 1.0, 1.0, 1.0], Metric::RequestThroughput);
        assert!(seen.by_round && seen.n == 10);
        assert_eq!(seen.drawn.iter().map(|unit| (unit.amount, unit.weight)).collect::<Vec<_>>()[..2], [(2.0, 1.0), (2.0, 2.0)]);
    }

    #[test]
    fn an_open_loop_shares_the_window_equally() {
        let mut sample = Sample { windows: vec![4.0], ..sample(vec![reply(0, 100.0, 8.0), reply(0, 300.0, 8.0)]) };
        sample.scalars.insert(Metric::RateOffered, 0.5);
        let seen = throughput(&sample.rows.iter().collect::<Vec<_>>(), Metric::OutputTps, &sample).unwrap();
        assert_eq!(seen.drawn, [Unit { amount: 8.0, weight: 2.0 }; 2]);
    }

    #[test]
    fn unknown_tokens_are_no_data_and_gpus_divide() {
        let mut bare = reply(0, 100.0, 10.0);
        bare.output_tokens = None;
        assert_eq!(of(vec![bare], &[1.0], Metric::OutputTps), Units::default());
        let mut sample = Sample { windows: vec![1.0], ..sample(vec![reply(0, 100.0, 10.0)]) };
        sample.scalars.extend([(Metric::OutputTps, 10.0), (Metric::OutputTpsPerGpu, 2.5)]);
        let rows: Vec<&Row> = sample.rows.iter().collect();
        assert_eq!(throughput(&rows, Metric::OutputTpsPerGpu, &sample).unwrap().observed, Some(2.5));
        assert_eq!(throughput(&rows, Metric::OutputTpsPerUser, &sample).unwrap().observed, Some(100.0));
        assert_eq!(throughput(&rows, Metric::ConcurrencyMean, &sample), None);
    }
}
