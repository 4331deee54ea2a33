//! The variance between the rounds of a case and between consecutive requests.

use crate::in_flight::changes_load;
use crate::measured_requests::MeasuredRequest;
use crate::sample::{Sample, values};
use crate::scalars::throughput;
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::report::{Change, RoundVariance};
use llmscen_core::stats::moments::components;
use llmscen_core::stats::{design, moments, trend};

/// The reported per-request metrics; without streaming only the last one exists.
const PER_REQUEST: [Metric; 3] = [Metric::Ttft, Metric::Tpot, Metric::E2e];
/// Metrics of a round as a whole; the first one that exists is reported.
const PER_ROUND: [Metric; 2] = [Metric::OutputTps, Metric::RequestThroughput];
/// Maximum and minimum number of segments that a round is divided into.
const MAX_SEGMENTS: usize = 24;
const MIN_SEGMENTS: usize = 6;
/// Minimum effective samples in a segment, so that consecutive means are nearly uncorrelated.
const MIN_EFFECTIVE: f64 = 8.0;

/// The variance of each metric of a sample over its rounds; missing metrics are absent. Changes over time are not
/// tested where `shape` changes the load, or schedules all requests at once.
pub fn round_variances(sample: &Sample, shape: &Shape) -> Vec<RoundVariance> {
    let requests: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
    let rounds: Vec<&[MeasuredRequest<'_>]> =
        requests.chunk_by(|a, b| a.round() == b.round()).collect();
    let steady = !changes_load(shape) && *shape != Shape::Burst;
    let requests = PER_REQUEST
        .iter()
        .filter_map(|&metric| request_variance(metric, &rounds, steady));
    let figure = PER_ROUND
        .iter()
        .find_map(|&metric| round_variance(metric, &rounds, sample));
    requests
        .chain(figure.filter(|_| rounds.len() > 1))
        .collect()
}

fn request_variance(
    metric: Metric,
    rounds: &[&[MeasuredRequest<'_>]],
    steady: bool,
) -> Option<RoundVariance> {
    let series: Vec<Vec<f64>> = rounds
        .iter()
        .map(|requests| values(requests, metric))
        .collect();
    let n = series.iter().map(Vec::len).sum::<usize>();
    let effective_n = design::effective(&series);
    let components = components(&series, n as f64 / effective_n.max(1.0));
    let means: Vec<Option<f64>> = series.iter().map(|values| moments::mean(values)).collect();
    Some(RoundVariance {
        metric,
        between_sd: components.map(|components| components.between),
        within_sd: components
            .map(|components| components.within)
            .or_else(|| moments::sd(&series.concat())),
        over_rounds: over_rounds(&means),
        over_time: steady.then(|| over_time(&series)).flatten(),
        n: n as u64,
        effective_n: Some(effective_n),
        rounds: means,
    })
    .filter(|_| n > 0)
}

fn round_variance(
    metric: Metric,
    rounds: &[&[MeasuredRequest<'_>]],
    sample: &Sample,
) -> Option<RoundVariance> {
    let of_round = |requests: &&[MeasuredRequest<'_>]| {
        let round = requests.first()?.round();
        let flows = sample.flows.iter().filter(|flow| flow.round == round);
        throughput(
            requests,
            flows,
            metric,
            sample
                .requests_window
                .seconds
                .get(round as usize)
                .copied()?,
        )
    };
    let figures: Vec<Option<f64>> = rounds.iter().map(of_round).collect();
    let known: Vec<f64> = figures.iter().copied().flatten().collect();
    (!known.is_empty()).then(|| RoundVariance {
        metric,
        between_sd: moments::sd(&known),
        within_sd: None,
        over_rounds: over_rounds(&figures),
        over_time: None,
        n: sample.requests.len() as u64,
        effective_n: None,
        rounds: figures,
    })
}

fn over_rounds(figures: &[Option<f64>]) -> Option<Change> {
    let known: Vec<f64> = figures.iter().copied().flatten().collect();
    if known.len() < 3 {
        return None;
    }
    let n = known.len();
    let mean = moments::mean(&known)?;
    change(&[known], n - 1, n as u64, mean)
}

/// A trend test on the means of segments, each with several effective samples. The effective sample size comes from
/// the residuals of a straight line: a series that only grows would otherwise have one effective sample.
fn over_time(series: &[Vec<f64>]) -> Option<Change> {
    let residuals: Vec<Vec<f64>> = series
        .iter()
        .filter_map(|values| residuals(values))
        .collect();
    let effective_share =
        design::effective(&residuals) / residuals.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let segment_means = |values: &Vec<f64>| {
        let segments =
            ((values.len() as f64 * effective_share / MIN_EFFECTIVE) as usize).min(MAX_SEGMENTS);
        let size = values
            .len()
            .checked_div(segments)
            .filter(|_| segments >= MIN_SEGMENTS)?;
        Some(
            values
                .chunks_exact(size)
                .take(segments)
                .filter_map(moments::mean)
                .collect::<Vec<f64>>(),
        )
    };
    let means: Vec<Vec<f64>> = series.iter().filter_map(segment_means).collect();
    let longest = means.iter().map(Vec::len).max()?;
    let n = means.iter().map(Vec::len).sum::<usize>();
    change(
        &means,
        longest - 1,
        n as u64,
        moments::mean(&means.concat())?,
    )
}

/// The values minus their least-squares slope. None for fewer than two.
fn residuals(values: &[f64]) -> Option<Vec<f64>> {
    let mean = moments::mean(values)?;
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let squares: f64 = (0..values.len()).map(|x| (x as f64 - middle).powi(2)).sum();
    let slope = values
        .iter()
        .enumerate()
        .map(|(x, value)| (x as f64 - middle) * (value - mean))
        .sum::<f64>()
        / squares;
    (squares > 0.0).then(|| {
        values
            .iter()
            .enumerate()
            .map(|(x, value)| value - slope * (x as f64 - middle))
            .collect()
    })
}

fn change(series: &[Vec<f64>], steps: usize, n: u64, mean: f64) -> Option<Change> {
    let trend = trend::mann_kendall(series)?;
    let share = if mean > 0.0 {
        trend.slope * steps as f64 / mean
    } else {
        0.0
    };
    Some(Change {
        share,
        p_value: trend.p_value,
        n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestRequest, sample_of};
    use crate::sending::{Amounts, Flow, ThroughputWindow};
    use llmscen_core::load::Arrival;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const OPEN: Shape = Shape::Open {
        rate: 9.0,
        arrival: Arrival::Poisson,
    };

    fn row(round: u32, e2e: f64) -> TestRequest {
        TestRequest {
            round,
            ok: true,
            output_tokens: Some(10.0),
            values: [(Metric::E2e, e2e)].into(),
            ..TestRequest::default()
        }
    }

    fn seen(rows: Vec<TestRequest>, windows: &[f64]) -> Vec<RoundVariance> {
        let flow = |round: u32| {
            let output = 10.0 * rows.iter().filter(|row| row.round == round).count() as f64;
            let bins = [(
                0,
                Amounts {
                    output,
                    ..Amounts::default()
                },
            )]
            .into();
            Flow {
                round,
                bins,
                ..Flow::default()
            }
        };
        let flows = (0..windows.len() as u32).map(flow).collect();
        round_variances(
            &Sample {
                requests_window: ThroughputWindow::of_lengths(windows.to_vec()),
                flows,
                ..sample_of(rows)
            },
            &OPEN,
        )
    }

    /// Rounds of waits in which neighbours are alike by `phi`, each beginning so much higher than the one before.
    fn waits(rounds: u32, n: u32, phi: f64, step: f64, grows: f64, seed: u64) -> Vec<TestRequest> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut last = 0.0;
        let mut draw = |round: u32, place: u32| {
            last = phi * last - (1.0 - phi * phi).sqrt() * ((1.0 - rng.random::<f64>()).ln() + 1.0);
            row(
                round,
                10.0 + last + step * f64::from(round) + grows * f64::from(place) / f64::from(n),
            )
        };
        (0..rounds)
            .flat_map(|round| (0..n).map(move |place| (round, place)))
            .map(|(round, place)| draw(round, place))
            .collect()
    }

    #[test]
    fn every_figure_of_two_rounds_by_hand() {
        let rows = vec![row(0, 1.0), row(0, 3.0), row(1, 5.0), row(1, 7.0)];
        let actual = seen(rows, &[2.0, 1.0]);
        assert_eq!(
            actual.iter().map(|one| one.metric).collect::<Vec<_>>(),
            [Metric::E2e, Metric::OutputTps]
        );
        assert_eq!(
            (&actual[0].rounds, &actual[1].rounds),
            (&vec![Some(2.0), Some(6.0)], &vec![Some(10.0), Some(20.0)])
        );
        // MSW 2, MSB 16, two requests a round: (16 − 2) / 2.
        assert_eq!(
            (actual[0].between_sd, actual[0].within_sd),
            (Some(7f64.sqrt()), Some(2f64.sqrt()))
        );
        assert_eq!(
            (
                actual[1].between_sd,
                actual[1].within_sd,
                actual[1].effective_n
            ),
            (Some(50f64.sqrt()), None, None)
        );
        assert_eq!(
            (
                actual[0].over_rounds,
                actual[0].over_time,
                actual[0].n,
                actual[0].effective_n
            ),
            (None, None, 4, Some(4.0))
        );
    }

    #[test]
    fn one_round_has_an_effective_size_and_no_variance_between_rounds() {
        let actual = seen(waits(1, 500, 0.9, 0.0, 0.0, 1), &[1.0]);
        assert_eq!(actual.len(), 1);
        assert!(
            (10.0..60.0).contains(&actual[0].reported_effective_n().unwrap()),
            "{actual:?}"
        );
        assert_eq!(
            (
                actual[0].between_sd,
                actual[0].rounds.len(),
                actual[0].over_rounds
            ),
            (None, 1, None)
        );
        assert!(seen(vec![TestRequest::default()], &[1.0]).is_empty());
    }

    #[test]
    fn drift_between_rounds_and_trend_within_rounds_are_distinguished() {
        let drifting = &seen(waits(5, 300, 0.0, 0.5, 0.0, 2), &[1.0; 5])[0];
        let change = drifting.reported_round_trend().unwrap();
        assert!(
            (change.p_value - 1.0 / 60.0).abs() < 1e-12 && (0.15..0.22).contains(&change.share),
            "{change:?}"
        );
        assert_eq!(
            (
                drifting.reported_time_trend(),
                drifting.reported_effective_n()
            ),
            (None, None)
        );
        let creeping = &seen(waits(3, 600, 0.3, 0.0, 2.0, 3), &[1.0; 3])[0];
        let change = creeping.reported_time_trend().unwrap();
        assert!(
            change.p_value < 1e-4 && (0.12..0.24).contains(&change.share),
            "{change:?}"
        );
        assert_eq!(creeping.reported_round_trend(), None);
        let sample = Sample {
            windows: vec![1.0; 3],
            ..sample_of(waits(3, 600, 0.3, 0.0, 2.0, 3))
        };
        assert_eq!(
            round_variances(&sample, &Shape::Burst)[0].over_time,
            None,
            "all was due at once"
        );
    }

    #[test]
    fn a_constant_series_rarely_has_a_change() {
        for (phi, n, times) in [(0.0, 100, 200), (0.5, 200, 200), (0.9, 1600, 40)] {
            let actual: Vec<RoundVariance> = (0..times)
                .map(|seed| seen(waits(5, n, phi, 0.0, 0.0, seed), &[1.0; 5]).remove(0))
                .collect();
            let within = actual
                .iter()
                .filter(|one| {
                    one.over_time
                        .is_some_and(|change| change.p_value <= RoundVariance::MAX_TIME_P_VALUE)
                })
                .count();
            let between = actual
                .iter()
                .filter(|one| one.over_rounds.unwrap().p_value <= RoundVariance::MAX_ROUND_P_VALUE)
                .count();
            // Nominally 2 and 3 of 200; a note also needs a change of 2 %.
            assert!(
                within <= 6 && between <= 8,
                "{within} and {between} of {times} at phi {phi}"
            );
            assert!(
                actual.iter().filter(|one| one.over_time.is_some()).count() as u64 > times * 3 / 4,
                "the test is made"
            );
            let spread: f64 = actual
                .iter()
                .map(|one| one.between_sd.unwrap())
                .sum::<f64>()
                / times as f64;
            let naive = (1.0 + phi) / (1.0 - phi) / f64::from(n);
            assert!(
                spread < naive.sqrt(),
                "likeness of neighbours is not taken for rounds that differ: {spread}"
            );
        }
    }
}
