//! Student's t: what few rounds say, whose own spread is all that is known of theirs.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tabled_values() {
        assert!((quantile(0.975, 4.0) - 2.776445).abs() < 1e-5 && (quantile(0.975, f64::INFINITY) - 1.959964).abs() < 1e-5);
        // R: pt(-2, 3).
        assert!((above(2.0, 3.0) - 0.0696630).abs() < 1e-6 && (above(1.959964, 1e9) - 0.025).abs() < 1e-6);
    }
}
