//! The knee of a curve that bends upwards.
//!
//! Satopää, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a Haystack", ICDCS Workshops (2011): for a convex rising
//! curve, without smoothing, sensitivity S = 1.

/// Points below which no bend can be distinguished from chance.
const FEWEST: usize = 4;

/// The place of the knee among points whose first coordinates rise: the point that lies deepest under the chord from the first
/// to the last, both axes scaled to 0..1. None with fewer than four points, where the last is not higher than the first, and
/// where the depth is no more than the mean step of the first coordinate: then the curve is as good as straight.
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let (first, last) = (points.first()?, points.last()?);
    let (width, height) = (last.0 - first.0, last.1 - first.1);
    let whole = points.iter().all(|point| point.0.is_finite() && point.1.is_finite());
    if points.len() < FEWEST || !whole || width <= 0.0 || height <= 0.0 {
        return None;
    }
    let depth = |point: &(f64, f64)| (point.0 - first.0) / width - (point.1 - first.1) / height;
    let deepest = points.iter().map(depth).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (deepest.1 > 1.0 / (points.len() - 1) as f64).then_some(deepest.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_the_curve_turns_up() {
        assert_eq!(knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.2), (4.0, 9.0)]), Some(3));
        // The queue of a single server at 10 to 90 % of its capacity: deepest where the slope is that of the chord.
        let queue: Vec<(f64, f64)> = (1..=9).map(|k| f64::from(k) / 10.0).map(|busy| (busy, 1.0 / (1.0 - busy))).collect();
        assert_eq!(knee(&queue), Some(6));
    }

    #[test]
    fn what_does_not_bend_has_none() {
        assert_eq!(knee(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]), None);
        assert_eq!(knee(&[(0.0, 0.0), (1.0, 3.0), (2.0, 3.9), (3.0, 4.0)]), None, "it bends downwards");
        assert_eq!(knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 9.0)]), None, "three points");
        assert_eq!(knee(&[(0.0, 2.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]), None, "it falls");
        assert_eq!(knee(&[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 9.0)]), None);
        assert_eq!(knee(&[]), None);
    }
}
