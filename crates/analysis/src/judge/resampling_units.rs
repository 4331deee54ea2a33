//! What a mean or a throughput is judged by: its estimate, and how far the long run may be from it.

use llmscen_core::metric::{Metric, Scope};
use llmscen_core::sample::{Amounts, Flow, Row, Sample};
use llmscen_core::stats::design::{Unit, ratio};
use llmscen_core::stats::long_run::{self, Arrivals, BINS, LongRun, ROUNDS};
use llmscen_core::stats::quantile::{Method, quantile, sort};

/// A mean, or a throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Units {
    /// Requests.
    pub n: u64,
    /// Those of them that a bound counts: of a throughput the requests that ended in its window, else all.
    pub counted: u64,
    /// Whether the spread between rounds counts too.
    pub by_round: bool,
    /// The estimate; None without data.
    pub observed: Option<f64>,
    /// The same with its standard errors; None where there are too few requests for any.
    pub long_run: Option<LongRun>,
}

/// For the mean of a metric over ok rows; for gaps, a request brings all of its own.
pub(super) fn mean(rows: &[&Row], metric: Metric) -> Units {
    let unit = |row: &&Row| match metric.per() {
        _ if !row.counts(metric) => None,
        Scope::Gap => (!row.gaps.is_empty()).then(|| Unit { amount: row.gaps.iter().sum(), weight: row.gaps.len() as f64 }),
        Scope::Request | Scope::Case => row.values.get(&metric).map(|&amount| Unit { amount, weight: 1.0 }),
    };
    of_requests(rows.iter().filter_map(|row| Some((row.round, unit(row)?))).unzip())
}

/// For a throughput, or the mean throughput of a user, over the requests with all of the tags that `tagged` asks for; None for a
/// metric that is neither.
pub(super) fn throughput(rows: &[&Row], metric: Metric, sample: &Sample, tagged: impl Fn(&Row) -> bool) -> Option<Units> {
    let scale = match metric {
        Metric::OutputTpsPerUser => {
            let unit = |row: &&Row| Some((row.round, Unit { amount: row.user_tps()?, weight: 1.0 }));
            return Some(of_requests(rows.iter().filter_map(unit).unzip()));
        }
        Metric::RequestThroughput | Metric::OutputTps | Metric::TotalTps => 1.0,
        Metric::OutputTpsPerGpu => per_gpu(sample),
        _ => return None,
    };
    let known = rows.iter().any(|row| row.ok && row.credit(metric).is_some()) || metric == Metric::RequestThroughput;
    if !known || scale <= 0.0 {
        return Some(Units::default());
    }
    let flows: Vec<&Flow> = sample.flows.iter().filter(|flow| tagged(&flow.like)).collect();
    let ended: f64 = flows.iter().flat_map(|flow| flow.bins.values()).map(|own| own.ended).sum();
    let arrivals = arrivals(&flows, &sample.sending, |own| own.of(metric));
    let seen = long_run::rate(&arrivals, request(sample)).map(|own| own.scaled(scale));
    Some(Units {
        n: rows.len() as u64,
        counted: ended as u64,
        by_round: arrivals.len() >= ROUNDS,
        observed: seen.as_ref().map(|own| own.value),
        long_run: seen.filter(|_| ended >= long_run::LEAST as f64),
    })
}

/// What arrived in each round that has a window.
fn arrivals(flows: &[&Flow], sending: &[f64], amount: impl Fn(&Amounts) -> f64) -> Vec<Arrivals> {
    let of_round = |(round, seconds): (usize, &f64)| {
        let mut bins = vec![0.0; BINS];
        for (bin, own) in flows.iter().filter(|flow| flow.like.round as usize == round).flat_map(|flow| &flow.bins) {
            if let Some(sum) = bins.get_mut(usize::from(*bin)) {
                *sum += amount(own);
            }
        }
        Arrivals { seconds: *seconds, bins }
    };
    sending.iter().enumerate().filter(|(_, seconds)| **seconds > 0.0).map(of_round).collect()
}

/// What a request of the sample takes, its median in seconds; 0 where none succeeded.
fn request(sample: &Sample) -> f64 {
    let mut took: Vec<f64> = sample.rows.iter().filter(|row| row.ok).map(|row| row.busy_ms / 1e3).collect();
    sort(&mut took);
    quantile(&took, 0.5, Method::NearestRank).unwrap_or(0.0)
}

/// One over the number of GPUs; 0 where it is not known.
fn per_gpu(sample: &Sample) -> f64 {
    let of = |metric| sample.scalars.get(&metric).copied().filter(|&value| value > 0.0);
    of(Metric::OutputTpsPerGpu).zip(of(Metric::OutputTps)).map_or(0.0, |(one, all)| one / all)
}

fn of_requests((rounds, units): (Vec<u32>, Vec<Unit>)) -> Units {
    let n = units.len() as u64;
    let observed = units.iter().any(|unit| unit.weight > 0.0).then(|| ratio(&units));
    let by_round = rounds.chunk_by(|a, b| a == b).count() >= ROUNDS;
    Units { n, counted: n, by_round, observed, long_run: long_run::mean(&units, &rounds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{failed, ok, sample};

    fn reply(round: u32, took: f64, tokens: f64) -> Row {
        Row { round, output_tokens: Some(tokens), busy_ms: took, ..ok(Metric::E2e, took) }
    }

    /// Requests of 10 tokens that end evenly over rounds of 10 s, so many in each.
    fn steady(each: &[u16]) -> Sample {
        let flow = |(round, ends): (usize, &u16)| Flow {
            like: Row { round: round as u32, ..Row::default() },
            bins: (0..*ends)
                .map(|end| (end * (240 / ends), Amounts { ended: 1.0, requests: 1.0, output: 10.0, ..Amounts::default() }))
                .collect(),
        };
        let rows = each.iter().enumerate().flat_map(|(round, ends)| vec![reply(round as u32, 500.0, 10.0); usize::from(*ends)]);
        let flows = each.iter().enumerate().map(flow).collect();
        Sample { sending: vec![10.0; each.len()], flows, ..sample(rows.collect()) }
    }

    fn of(sample: &Sample, metric: Metric) -> Units {
        throughput(&sample.rows.iter().collect::<Vec<_>>(), metric, sample, |_| true).unwrap()
    }

    #[test]
    fn a_throughput_is_what_arrived_over_all_windows() {
        let seen = of(&steady(&[60, 120]), Metric::OutputTps);
        assert_eq!((seen.observed, seen.n, seen.counted, seen.by_round), (Some(90.0), 180, 180, false));
        assert_eq!(of(&steady(&[60, 120]), Metric::RequestThroughput).observed, Some(9.0));
        assert_eq!(of(&steady(&[]), Metric::RequestThroughput).observed, None);
    }

    #[test]
    fn fewer_than_twenty_ends_have_a_figure_and_no_bound() {
        let (few, enough) = (of(&steady(&[15]), Metric::OutputTps), of(&steady(&[20]), Metric::OutputTps));
        assert_eq!((few.observed, few.long_run, few.counted), (Some(15.0), None, 15));
        assert!(enough.long_run.is_some());
    }

    #[test]
    fn five_rounds_differ_as_they_do() {
        let seen = of(&steady(&[60, 120, 60, 120, 60]), Metric::RequestThroughput);
        let errors = seen.long_run.unwrap().errors;
        // 6 and 12 a second, 8.4 in all: 24, 36, 24, 36 and 24 requests off; 5 / 4 of their squares, over 50 s.
        assert!(seen.by_round && (errors[1].size - (5.0 / 4.0 * 4320.0f64).sqrt() / 50.0).abs() < 1e-12, "{errors:?}");
        assert_eq!(errors[1].freedom, 4.0);
    }

    #[test]
    fn tags_leave_out_what_others_brought() {
        let sample = steady(&[60, 120]);
        let rows: Vec<&Row> = sample.rows.iter().filter(|row| row.round == 1).collect();
        let seen = throughput(&rows, Metric::OutputTps, &sample, |row| row.round == 1).unwrap();
        assert_eq!((seen.observed, seen.n), (Some(60.0), 120), "over the windows of the case");
    }

    #[test]
    fn unknown_tokens_are_no_data_and_gpus_divide() {
        let mut bare = steady(&[60]);
        bare.rows.iter_mut().for_each(|row| row.output_tokens = None);
        assert_eq!(of(&bare, Metric::OutputTps), Units::default());
        let mut sample = steady(&[60]);
        sample.rows.push(failed());
        sample.scalars.extend([(Metric::OutputTps, 60.0), (Metric::OutputTpsPerGpu, 15.0)]);
        let rows: Vec<&Row> = sample.rows.iter().collect();
        assert_eq!(of(&sample, Metric::OutputTpsPerGpu).observed, Some(15.0));
        assert_eq!(of(&sample, Metric::OutputTpsPerUser).observed, Some(20.0));
        assert_eq!(throughput(&rows, Metric::ConcurrencyMean, &sample, |_| true), None);
    }
}
