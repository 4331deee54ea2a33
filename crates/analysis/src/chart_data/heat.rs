//! The heat map: how many requests had which end-to-end latency when.

use llmscen_core::chart_data::Heat;

/// Columns and rows at the most.
const COLUMNS: usize = 80;
const ROWS: usize = 40;
/// The least latency that a logarithm is taken of, and the least ratio of the highest edge to the lowest.
const LEAST: f64 = 1e-3;
const SPREAD: f64 = 1.1;
/// Requests due within so many seconds are due at one instant: they have one column, of that width.
const INSTANT: f64 = 1e-3;

/// Of `(seconds, milliseconds)`: as many cells as the points can fill. None with fewer than two points.
pub(super) fn heat(points: &[(f64, f64)]) -> Option<Heat> {
    let (n, ends) = (points.len() as f64, |values: &dyn Fn(&(f64, f64)) -> f64| {
        points.iter().map(values).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    });
    let (from, to) = ends(&|point| point.0);
    let (low, high) = ends(&|point| point.1.max(LEAST));
    if points.len() < 2 {
        return None;
    }
    let at_once = to - from < INSTANT;
    let to = if at_once { from + INSTANT } else { to };
    let (low, high) = if high / low < SPREAD { (low / SPREAD, high * SPREAD) } else { (low, high) };
    let columns = if at_once { 1 } else { ((2.0 * n.sqrt()) as usize).clamp(1, COLUMNS) };
    let rows = (n.sqrt() as usize).clamp(1, ROWS);
    let mut counts = vec![vec![0; rows]; columns];
    for (time, latency) in points {
        let column = place((time - from) / (to - from), columns);
        let row = place((latency.max(LEAST) / low).ln() / (high / low).ln(), rows);
        if let Some(count) = counts.get_mut(column).and_then(|column| column.get_mut(row)) {
            *count += 1;
        }
    }
    let edge = |k: usize, of: usize| k as f64 / of as f64;
    let times = (0..=columns).map(|k| from + edge(k, columns) * (to - from)).collect();
    let levels = (0..=rows).map(|k| low * (high / low).powf(edge(k, rows))).collect();
    Some(Heat { times, levels, counts })
}

/// The step of `steps` equal ones that a share 0..=1 lies in.
fn place(share: f64, steps: usize) -> usize {
    ((share * steps as f64) as usize).min(steps - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_in_the_cell_of_its_time_and_latency() {
        let seen = heat(&[(0.0, 1.0), (1.0, 10.0), (2.0, 100.0), (4.0, 100.0)]).unwrap();
        assert_eq!(seen.times, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(seen.levels.len(), 3);
        assert!(seen.levels.iter().zip([1.0, 10.0, 100.0]).all(|(seen, known)| (seen - known).abs() < 1e-9));
        assert_eq!(seen.counts, [[1, 0], [0, 1], [0, 1], [0, 1]]);
    }

    #[test]
    fn it_stays_small_and_loses_nothing() {
        let points: Vec<(f64, f64)> = (0..100_000).map(|k| (f64::from(k), f64::from(k % 977 + 1))).collect();
        let seen = heat(&points).unwrap();
        assert_eq!((seen.counts.len(), seen.counts[0].len()), (80, 40));
        assert_eq!(seen.counts.iter().flatten().sum::<u32>(), 100_000);
    }

    #[test]
    fn equal_latencies_have_a_row_and_one_instant_a_column() {
        let seen = heat(&[(0.0, 5.0), (1.0, 5.0)]).unwrap();
        assert!(seen.levels[0] < 5.0 && *seen.levels.last().unwrap() > 5.0);
        assert_eq!(seen.counts.iter().flatten().sum::<u32>(), 2);
        let seen = heat(&[(1.0, 5.0), (1.0, 6.0), (1.0, 6.0), (1.0, 50.0)]).unwrap();
        assert_eq!((seen.times, seen.counts), (vec![1.0, 1.001], vec![vec![3, 1]]));
        assert_eq!(heat(&[(1.0, 5.0)]), None);
        assert!(heat(&[(0.0, 0.0), (1.0, 5.0)]).unwrap().levels[0] > 0.0);
    }
}
