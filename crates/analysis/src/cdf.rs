//! The points of the distributions that are drawn.

use crate::sample::values;
use llmscen_core::metric::Metric;
use llmscen_core::report::Series;
use llmscen_core::sample::Sample;
use llmscen_core::stats::quantile;
use std::collections::BTreeMap;

/// Points of a curve: more than a chart can show.
const POINTS: usize = 400;

/// `(value, share of values at or under it)` of TTFT, ITL and E2E over ok rows, where they exist: at most 400 points each,
/// the least and the greatest value among them.
pub fn cdfs(sample: &Sample) -> BTreeMap<Metric, Series> {
    let curves = [Metric::Ttft, Metric::Itl, Metric::E2e].map(|metric| (metric, curve(values(&sample.rows, metric))));
    curves.into_iter().filter(|(_, curve)| !curve.is_empty()).collect()
}

fn curve(mut values: Vec<f64>) -> Series {
    quantile::sort(&mut values);
    let (n, points) = (values.len(), values.len().min(POINTS));
    let place = |k: usize| k * n.saturating_sub(1) / points.saturating_sub(1).max(1);
    (0..points).map(place).filter_map(|at| values.get(at).map(|&value| (value, (at + 1) as f64 / n as f64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::sample::Row;

    #[test]
    fn few_values_are_all_drawn() {
        assert_eq!(curve(vec![3.0, 1.0]), [(1.0, 0.5), (3.0, 1.0)]);
        assert_eq!(curve(vec![7.0]), [(7.0, 1.0)]);
        assert_eq!(curve(Vec::new()), []);
    }

    #[test]
    fn many_values_keep_their_ends() {
        let drawn = curve((1..=12_345).rev().map(f64::from).collect());
        assert_eq!((drawn.len(), drawn[0], drawn[399]), (400, (1.0, 1.0 / 12_345.0), (12_345.0, 1.0)));
        assert!(drawn.iter().all(|&(value, share)| (share - value / 12_345.0).abs() < 1e-12));
        assert!(drawn.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn only_what_exists_has_a_curve() {
        let row = Row { ok: true, gaps: vec![1.0, 2.0], ..Row::default() };
        let drawn = cdfs(&Sample { rows: vec![row], ..Sample::default() });
        assert_eq!(drawn.into_keys().collect::<Vec<_>>(), [Metric::Itl]);
    }
}
