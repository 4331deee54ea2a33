//! How much a difference matters, whatever its probability: with a million gaps between tokens any difference is certain.

/// Cliff's delta of ascending values: P[b > a] − P[b < a] of a random pair, from −1 to 1 (Cliff, "Dominance statistics: ordinal
/// analyses to answer ordinal questions", Psychological Bulletin 114, 1993). None where either is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (mut under, mut upto, mut sum) = (0usize, 0usize, 0.0);
    for value in b {
        under += a.get(under..)?.iter().take_while(|own| *own < value).count();
        upto = upto.max(under);
        upto += a.get(upto..)?.iter().take_while(|own| *own <= value).count();
        // So many of `a` lie under the value, and so many over it.
        sum += under as f64 - (a.len() - upto) as f64;
    }
    Some(sum / (a.len() as f64 * b.len() as f64))
}

/// Cohen's h of two shares: 2 asin √b − 2 asin √a (Cohen, "Statistical power analysis for the behavioral sciences", 2nd
/// edition, 1988, chapter 6).
pub fn cohens_h(a: f64, b: f64) -> f64 {
    2.0 * (b.sqrt().asin() - a.sqrt().asin())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_deltas() {
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[4.0, 5.0]), Some(1.0));
        assert_eq!(cliffs_delta(&[4.0, 5.0], &[1.0, 2.0, 3.0]), Some(-1.0));
        assert_eq!(cliffs_delta(&[1.0, 1.0], &[1.0]), Some(0.0));
        assert_eq!(cliffs_delta(&[1.0, 2.0, 2.0, 3.0], &[2.0]), Some(0.0));
        assert_eq!(cliffs_delta(&[], &[2.0]), None);
    }

    #[test]
    fn the_distance_of_shares_is_that_of_their_arcs() {
        // Cohen, table 6.2.2: φ(0.50) = 1.571, φ(0.30) = 1.159.
        assert!((cohens_h(0.3, 0.5) - (1.571 - 1.159)).abs() < 1e-3);
        assert_eq!(cohens_h(0.2, 0.2), 0.0);
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_pairs(mut a in prop::collection::vec(0u8..9, 1..30), mut b in prop::collection::vec(0u8..9, 1..30)) {
            a.sort();
            b.sort();
            let signs = b.iter().flat_map(|y| a.iter().map(move |x| f64::from(i8::from(y > x) - i8::from(y < x))));
            let mean = signs.sum::<f64>() / (a.len() * b.len()) as f64;
            let [a, b] = [a, b].map(|own| own.into_iter().map(f64::from).collect::<Vec<_>>());
            prop_assert!((cliffs_delta(&a, &b).unwrap() - mean).abs() < 1e-12);
        }
    }
}
