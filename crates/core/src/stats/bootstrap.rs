//! Ratios of sums: means are sums over counts, throughputs sums over time.

/// A part of a ratio: a request, or a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What it adds above the line.
    pub amount: f64,
    /// What it adds below the line.
    pub weight: f64,
}

/// Σ amount / Σ weight; zero without weight.
pub fn ratio<'a>(units: impl IntoIterator<Item = &'a Unit>) -> f64 {
    let (amount, weight) = units.into_iter().fold((0.0, 0.0), |sum, unit| (sum.0 + unit.amount, sum.1 + unit.weight));
    if weight > 0.0 { amount / weight } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_weighs_and_an_empty_one_is_zero() {
        let units = [Unit { amount: 10.0, weight: 1.0 }, Unit { amount: 20.0, weight: 4.0 }];
        assert_eq!(ratio(&units), 6.0);
        assert_eq!(ratio(&[Unit { amount: 1.0, weight: 0.0 }]), 0.0);
    }
}
