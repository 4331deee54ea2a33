//! What of a spread lies between groups and what within them.

use crate::stats::moments::mean;

/// Standard deviations of a one-way layout with random effects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Components {
    /// Of the groups' true means; 0 where those seen differ by no more than chance has them.
    pub between: f64,
    /// Of the values of a group around its mean.
    pub within: f64,
}

/// The components by the analysis of variance, for groups of unequal size: σ² within = MSW, σ² between = (MSB − MSW · inflation)
/// ÷ n₀ with n₀ = (N − Σ nᵢ² ÷ N) ÷ (k − 1), not below 0 (Searle, Casella and McCulloch, "Variance components", 1992, section
/// 3.6). `inflation`: by how much the mean of a group varies more than that of independent values, 1 where they are. None for
/// fewer than two groups with values, or where no group has two.
pub fn components(groups: &[Vec<f64>], inflation: f64) -> Option<Components> {
    let groups: Vec<(&Vec<f64>, f64)> = groups.iter().filter_map(|own| Some((own, mean(own)?))).collect();
    let (k, n): (f64, f64) = (groups.len() as f64, groups.iter().map(|(own, _)| own.len() as f64).sum());
    if k < 2.0 || n <= k {
        return None;
    }
    let grand = groups.iter().map(|(own, middle)| own.len() as f64 * middle).sum::<f64>() / n;
    let among: f64 = groups.iter().map(|(own, middle)| own.len() as f64 * (middle - grand).powi(2)).sum();
    let inside: f64 = groups.iter().flat_map(|(own, middle)| own.iter().map(move |value| (value - middle).powi(2))).sum();
    let size = (n - groups.iter().map(|(own, _)| (own.len() as f64).powi(2)).sum::<f64>() / n) / (k - 1.0);
    let (among, inside) = (among / (k - 1.0), inside / (n - k));
    Some(Components { between: ((among - inside * inflation) / size).max(0.0).sqrt(), within: inside.sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_by_hand() {
        // Means 2, 4, 7; MSW = (2 + 2 + 2) / 6 = 1; MSB = 3 (49 + 1 + 64) / 9 / 2 = 19; n₀ = 3.
        let groups = [vec![1.0, 2.0, 3.0], vec![3.0, 4.0, 5.0], vec![6.0, 7.0, 8.0]];
        let seen = components(&groups, 1.0).unwrap();
        assert!((seen.within - 1.0).abs() < 1e-12 && (seen.between - 6f64.sqrt()).abs() < 1e-12, "{seen:?}");
        // Were neighbours so alike that each mean varied seven times as much, 12 of the 18 would be left.
        assert!((components(&groups, 7.0).unwrap().between - 2.0).abs() < 1e-12);
    }

    #[test]
    fn groups_of_unequal_size_weigh_by_it() {
        // Means 1 and 3, grand 2.5; MSW = (2 + 8) / 6; MSB = 2 · 2.25 + 6 · 0.25 = 6; n₀ = 8 − 40 / 8 = 3.
        let seen = components(&[vec![0.0, 2.0], vec![1.0, 3.0, 3.0, 3.0, 3.0, 5.0]], 1.0).unwrap();
        assert!((seen.within - (10.0f64 / 6.0).sqrt()).abs() < 1e-12, "{seen:?}");
        assert!((seen.between - ((6.0 - 10.0 / 6.0) / 3.0f64).sqrt()).abs() < 1e-12, "{seen:?}");
    }

    #[test]
    fn equal_means_have_nothing_between_and_one_group_no_components() {
        assert_eq!(components(&[vec![1.0, 3.0], vec![1.0, 3.0]], 1.0).map(|seen| seen.between), Some(0.0));
        assert_eq!((components(&[vec![1.0, 3.0], vec![]], 1.0), components(&[vec![1.0], vec![2.0]], 1.0)), (None, None));
    }
}
