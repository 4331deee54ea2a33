//! Student's t: what few rounds say, whose own spread is all that is known of theirs.

use crate::stats::bootstrap::{Unit, ratio};
use crate::stats::normal;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Degrees of freedom from which on the normal law is told from it by nothing.
const MANY: f64 = 1e6;

/// The quantile `level`, 0 < level < 1, with so many degrees of `freedom`; infinite ones are the normal law.
pub fn quantile(level: f64, freedom: f64) -> f64 {
    of(freedom).map_or_else(|| normal::score(level), |own| own.inverse_cdf(level))
}

/// The probability of more than `t`.
pub fn above(t: f64, freedom: f64) -> f64 {
    of(freedom).map_or_else(|| normal::probability(-t), |own| own.sf(t))
}

fn of(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| freedom < MANY)
}

/// The one-sided ends `(lower, upper)`, each at confidence `level`, of the ratio of sums over units that are whole rounds: t times
/// the standard error by linearisation (Cochran, "Sampling techniques", 3rd edition, section 2.9), with n − 1 degrees of
/// freedom, on the logarithm where the ratio is above 0. Sums over rounds are near normal, and unlike the bootstrap of so few this
/// reaches past the most extreme of them. None for fewer than two.
pub fn ends(units: &[Unit], level: f64) -> Option<(f64, f64)> {
    let (n, value) = (units.len() as f64, ratio(units));
    let weight: f64 = units.iter().map(|unit| unit.weight).sum();
    if units.len() < 2 || weight <= 0.0 {
        return None;
    }
    let squares: f64 = units.iter().map(|unit| (unit.amount - value * unit.weight).powi(2)).sum();
    let arm = quantile(level, n - 1.0) * (squares * n / (n - 1.0)).sqrt() / weight;
    let plain = (value - arm, value + arm);
    Some(if value > 0.0 { (value * (-arm / value).exp(), value * (arm / value).exp()) } else { plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tabled_values() {
        assert!((quantile(0.975, 4.0) - 2.776445).abs() < 1e-5 && (quantile(0.975, f64::INFINITY) - 1.959964).abs() < 1e-5);
        // R: pt(-2, 3).
        assert!((above(2.0, 3.0) - 0.0696630).abs() < 1e-6 && (above(1.959964, 1e9) - 0.025).abs() < 1e-6);
    }

    #[test]
    fn the_ends_of_equal_weights_are_those_of_the_t_test() {
        let units = [98.0, 99.0, 100.0, 101.0, 102.0].map(|amount| Unit { amount, weight: 1.0 });
        // Standard error √(2.5 / 5), over 100, on the logarithm.
        let (low, high) = ends(&units, 0.975).unwrap();
        let arm = 2.776445 * 0.5f64.sqrt() / 100.0;
        assert!((low.ln() - (100f64.ln() - arm)).abs() < 1e-8 && (high.ln() - (100f64.ln() + arm)).abs() < 1e-8);
        assert!(low < 98.04 + 0.1 && ends(&units[..1], 0.975).is_none());
        let none = [Unit { amount: 0.0, weight: 1.0 }; 5];
        assert_eq!((ends(&none, 0.975), ends(&[], 0.975)), (Some((0.0, 0.0)), None));
    }
}
