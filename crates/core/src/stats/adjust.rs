//! Probabilities adjusted for many tests at once: of twenty comparisons without a difference one looks like one at 5 %.

/// Holm's: holds the chance of even one false alarm among all tests (Holm, "A simple sequentially rejective multiple test
/// procedure", Scandinavian Journal of Statistics 6, 1979), in the order of `p`.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut worst: f64 = 0.0;
    stepped(p, rising(p), |place, value| {
        worst = worst.max(value * (m - place) as f64).min(1.0);
        worst
    })
}

/// Benjamini and Hochberg's: holds the expected share of false alarms among the alarms ("Controlling the false discovery
/// rate", Journal of the Royal Statistical Society B 57, 1995), in the order of `p`.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let m = p.len();
    let mut least: f64 = 1.0;
    let falling = rising(p).into_iter().rev().collect();
    stepped(p, falling, |place, value| {
        least = least.min(value * m as f64 / (m - place) as f64);
        least
    })
}

fn rising(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p.get(a).unwrap_or(&1.0).total_cmp(p.get(b).unwrap_or(&1.0)));
    order
}

fn stepped(p: &[f64], order: Vec<usize>, mut adjusted: impl FnMut(usize, f64) -> f64) -> Vec<f64> {
    let mut all = vec![1.0; p.len()];
    for (place, index) in order.into_iter().enumerate() {
        if let (Some(slot), Some(&value)) = (all.get_mut(index), p.get(index)) {
            *slot = adjusted(place, value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(seen: &[f64], known: &[f64]) {
        assert!(seen.len() == known.len() && seen.iter().zip(known).all(|(a, b)| (a - b).abs() < 1e-12), "{seen:?} {known:?}");
    }

    #[test]
    fn the_published_examples() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"), and "BH".
        near(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]);
        near(&benjamini_hochberg(&[0.01, 0.04, 0.03, 0.005]), &[0.02, 0.04, 0.04, 0.02]);
    }

    #[test]
    fn one_test_needs_no_adjustment_and_none_is_over_one() {
        near(&holm(&[0.04]), &[0.04]);
        near(&benjamini_hochberg(&[0.04]), &[0.04]);
        near(&holm(&[0.9, 0.8]), &[1.0, 1.0]);
        near(&holm(&[]), &[]);
    }
}
