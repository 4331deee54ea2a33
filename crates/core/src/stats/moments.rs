//! Mean, standard deviation, and variance components between and within groups.

/// The arithmetic mean. None without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation (denominator n − 1), in two passes to avoid cancellation. None for n < 2.
pub fn sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The population standard deviation (denominator n). None without values.
pub fn population_sd(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt())
}

/// Standard deviations of a one-way layout with random effects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Components {
    /// Between the true means of the groups; 0 if the observed means differ by no more than chance.
    pub between: f64,
    /// Within the groups.
    pub within: f64,
}

/// The components by the analysis of variance, for groups of unequal size: σ² within = MSW, σ² between = (MSB − MSW ·
/// inflation) ÷ n₀ with n₀ = (N − Σ nᵢ² ÷ N) ÷ (k − 1), not below 0 (Searle, Casella and McCulloch, "Variance
/// components", 1992, section
/// 3.6). `inflation` is the variance of a group mean relative to that of independent values, 1 if they are
/// independent. None for fewer than two groups with values, or if no group has two.
pub fn components(groups: &[Vec<f64>], inflation: f64) -> Option<Components> {
    let groups: Vec<(&Vec<f64>, f64)> = groups
        .iter()
        .filter_map(|group| Some((group, mean(group)?)))
        .collect();
    let k = groups.len() as f64;
    let n: f64 = groups.iter().map(|(group, _)| group.len() as f64).sum();
    if k < 2.0 || n <= k {
        return None;
    }
    let grand = groups
        .iter()
        .map(|(group, mean)| group.len() as f64 * mean)
        .sum::<f64>()
        / n;
    let among: f64 = groups
        .iter()
        .map(|(group, mean)| group.len() as f64 * (mean - grand).powi(2))
        .sum();
    let inside: f64 = groups
        .iter()
        .flat_map(|(group, mean)| group.iter().map(move |value| (value - mean).powi(2)))
        .sum();
    let size = (n - groups
        .iter()
        .map(|(group, _)| (group.len() as f64).powi(2))
        .sum::<f64>()
        / n)
        / (k - 1.0);
    let (among, inside) = (among / (k - 1.0), inside / (n - k));
    Some(Components {
        between: ((among - inside * inflation) / size).max(0.0).sqrt(),
        within: inside.sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviations_are_those_of_a_sample_and_of_a_population() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(sd(&values), Some((32.0f64 / 7.0).sqrt()));
        assert_eq!(
            (
                population_sd(&values),
                population_sd(&[7.0]),
                population_sd(&[])
            ),
            (Some(2.0), Some(0.0), None)
        );
    }

    #[test]
    fn a_large_offset_does_not_drown_the_deviation() {
        assert_eq!(sd(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0]), Some(1.0));
    }

    #[test]
    fn too_few_values_have_none() {
        assert_eq!((mean(&[]), sd(&[]), sd(&[3.0])), (None, None, None));
    }

    #[test]
    fn a_layout_by_hand() {
        // Means 2, 4, 7; MSW = (2 + 2 + 2) / 6 = 1; MSB = 3 (49 + 1 + 64) / 9 / 2 = 19; n₀ = 3.
        let groups = [
            vec![1.0, 2.0, 3.0],
            vec![3.0, 4.0, 5.0],
            vec![6.0, 7.0, 8.0],
        ];
        let found = components(&groups, 1.0).unwrap();
        assert!(
            (found.within - 1.0).abs() < 1e-12 && (found.between - 6f64.sqrt()).abs() < 1e-12,
            "{found:?}"
        );
        // With an inflation of 7, (19 − 7) / 3 = 4.
        assert!((components(&groups, 7.0).unwrap().between - 2.0).abs() < 1e-12);
    }

    #[test]
    fn groups_of_unequal_size_weigh_by_it() {
        // Means 1 and 3, grand 2.5; MSW = (2 + 8) / 6; MSB = 2 · 2.25 + 6 · 0.25 = 6; n₀ = 8 − 40 / 8 = 3.
        let found = components(&[vec![0.0, 2.0], vec![1.0, 3.0, 3.0, 3.0, 3.0, 5.0]], 1.0).unwrap();
        assert!(
            (found.within - (10.0f64 / 6.0).sqrt()).abs() < 1e-12,
            "{found:?}"
        );
        assert!(
            (found.between - ((6.0 - 10.0 / 6.0) / 3.0f64).sqrt()).abs() < 1e-12,
            "{found:?}"
        );
    }

    #[test]
    fn equal_means_have_nothing_between_and_one_group_no_components() {
        assert_eq!(
            components(&[vec![1.0, 3.0], vec![1.0, 3.0]], 1.0).map(|found| found.between),
            Some(0.0)
        );
        assert_eq!(
            (
                components(&[vec![1.0, 3.0], vec![]], 1.0),
                components(&[vec![1.0], vec![2.0]], 1.0)
            ),
            (None, None)
        );
    }
}
