//! A straight line through points, some of which lie far off.
//!
//! Sen, "Estimates of the regression coefficient based on Kendall's tau", Journal of the American Statistical Association 63
//! (1968): the median of the slopes of all pairs.

use crate::stats::quantile::{nearest_rank, sort};

/// Points that are paired at the most: 20 000 slopes.
const PAIRED: usize = 200;

/// `(slope, value at 0)`: the median slope over all pairs of at most 200 evenly picked points, and the median of what is left.
/// None where no two points differ in their first coordinate.
pub fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let step = points.len().div_ceil(PAIRED).max(1);
    let some: Vec<(f64, f64)> = points.iter().copied().step_by(step).collect();
    let pairs = some.iter().enumerate().flat_map(|(at, a)| some.iter().skip(at + 1).map(move |b| (a, b)));
    let slope = median(pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)))?;
    Some((slope, median(some.iter().map(|point| point.1 - slope * point.0))?))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    sort(&mut values);
    nearest_rank(&values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wild_points_do_not_bend_the_line() {
        let mut points: Vec<(f64, f64)> = (0..1000).map(|k| (f64::from(k), 5.0 + 0.5 * f64::from(k))).collect();
        points.iter_mut().step_by(10).for_each(|point| point.1 += 1e6);
        points.rotate_left(7);
        let (slope, start) = line(&points).unwrap();
        assert!((slope - 0.5).abs() < 1e-9 && (start - 5.0).abs() < 1e-9, "{slope} {start}");
    }

    #[test]
    fn equal_places_have_no_slope() {
        assert_eq!(line(&[(512.0, 1.0), (512.0, 9.0)]), None);
        assert_eq!((line(&[]), line(&[(1.0, 1.0)])), (None, None));
    }
}
