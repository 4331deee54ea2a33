//! Percentile spectra: quantiles that lie ever denser towards the greatest value.

use llmscen_core::report::Series;
use llmscen_core::stats::quantile::rank;

/// Points of a spectrum, about.
const POINTS: f64 = 110.0;
/// Points to a tenth of the values above at the most: more are not told apart.
const DENSEST: f64 = 40.0;

/// `(share, quantile by nearest rank)` for shares `1 - 10^(-k/m)`, so that 90 %, 99 %, 99.9 % … are among them, and at the
/// end the maximum at `1 - 1/n`. Empty without values, whose order is changed.
pub(super) fn spectrum(values: &mut [f64]) -> Series {
    let n = values.len();
    if n == 0 {
        return Series::new();
    }
    let last = 1.0 - 1.0 / n as f64;
    let steps = (POINTS / (n as f64).log10().max(1.0)).floor().min(DENSEST);
    let shares = (0..).map(|step| 1.0 - 10f64.powf(-f64::from(step) / steps)).take_while(|&share| share < last);
    let mut wanted: Vec<(f64, usize)> = shares.map(|share| (share, rank(n, share) - 1)).collect();
    wanted.push((last, n - 1));
    let mut ranks: Vec<usize> = wanted.iter().map(|point| point.1).collect();
    ranks.dedup();
    settle(values, &ranks, 0);
    wanted.into_iter().filter_map(|(share, place)| Some((share, *values.get(place)?))).collect()
}

/// Brings the values of these places, ascending, to where a sort would put them: much cheaper than the sort.
/// `first`: place of the first value.
pub(super) fn settle(values: &mut [f64], places: &[usize], first: usize) {
    let (below, rest) = places.split_at(places.len() / 2);
    let Some((&middle, above)) = rest.split_first() else { return };
    let place = middle - first;
    if place < values.len() {
        let (low, _, high) = values.select_nth_unstable_by(place, f64::total_cmp);
        settle(low, below, first);
        settle(high, above, middle + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::stats::quantile::{Method, quantile, sort};

    #[test]
    fn every_point_is_a_quantile_and_the_last_is_the_maximum() {
        // A multiplier prime to the length shuffles 1 to 10 000.
        let mut values: Vec<f64> = (0..10_000).map(|k| f64::from(k * 7919 % 10_000 + 1)).collect();
        let seen = spectrum(&mut values);
        let mut sorted = values.clone();
        sort(&mut sorted);
        let (end, inner) = seen.split_last().unwrap();
        assert_eq!((seen[0], *end), ((0.0, 1.0), (1.0 - 1e-4, 10_000.0)));
        assert!(inner.iter().all(|&(share, value)| quantile(&sorted, share, Method::NearestRank) == Some(value)));
        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert!((60..=120).contains(&seen.len()), "{}", seen.len());
        let at = |share: f64| inner.iter().find(|point| (point.0 - share).abs() < 1e-9).map(|point| point.1);
        assert_eq!((at(0.9), at(0.99), at(0.999)), (Some(9000.0), Some(9900.0), Some(9990.0)));
    }

    #[test]
    fn few_values_are_their_own_spectrum() {
        assert_eq!(spectrum(&mut []), []);
        assert_eq!(spectrum(&mut [7.0]), [(0.0, 7.0)]);
        let two = spectrum(&mut [9.0, 7.0]);
        assert_eq!((two[0], two.last()), ((0.0, 7.0), Some(&(0.5, 9.0))));
        assert!(two[..two.len() - 1].iter().all(|point| point.1 == 7.0));
    }
}
