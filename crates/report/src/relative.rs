//! What a relative limit rests on, in words: `1.10 × baseline (512 ms, 498 ms to 530 ms)`.

use crate::format::{against, unit_of, value};
use llmscen_core::check::{Check, Verdict};

/// What the limit is a multiple of, with its bounds where it has any; None for a limit that is a number of its own.
pub fn words(check: &Check) -> Option<String> {
    let relative = check.relative?;
    let (to, unit) = (relative.to.name(), check.subject.unit());
    let factor = format!("{:.2}", relative.factor);
    let factor = if factor.parse() == Ok(relative.factor) { factor } else { relative.factor.to_string() };
    let Some(known) = relative.known else { return Some(format!("{factor} × {to} (there is none)")) };
    let ends = match (known.low, known.high) {
        (Some(low), Some(high)) if low == high => String::new(),
        (Some(low), Some(high)) => format!(", {} to {}", value(low, unit), value(high, unit)),
        (Some(low), None) => format!(", {} or more", value(low, unit)),
        (None, Some(high)) => format!(", {} or less", value(high, unit)),
        (None, None) => String::new(),
    };
    let runs = known.spread.map(|spread| format!(", {} runs", spread.runs)).unwrap_or_default();
    Some(format!("{factor} × {to} ({}{ends}{runs})", value(known.value, unit)))
}

/// The limit as a number, and what it is a multiple of.
pub fn limit(verdict: &Verdict) -> String {
    let limit = verdict.check.limit;
    let number = against(Some(limit), limit, unit_of(verdict));
    match words(&verdict.check) {
        Some(words) if limit.is_nan() => words,
        Some(words) => format!("{number} = {words}"),
        None => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::case;
    use llmscen_core::baseline::{Against, Known, Relative};

    fn of(factor: f64, known: Option<Known>) -> Verdict {
        let verdict = case(4).verdicts[0].clone();
        let relative = Relative { to: Against::Baseline, factor, known };
        Verdict { check: Check { limit: relative.limit(), relative: Some(relative), ..verdict.check.clone() }, ..verdict }
    }

    fn known(low: Option<f64>, high: Option<f64>) -> Option<Known> {
        Some(Known { value: 512.0, low, high, n: Some(400), spread: None })
    }

    #[test]
    fn a_reader_sees_the_multiple_and_its_doubt() {
        let both = of(1.1, known(Some(498.0), Some(530.0)));
        assert_eq!(limit(&both), "563 ms = 1.10 × baseline (512 ms, 498 ms to 530 ms)");
        assert_eq!(words(&of(1.125, known(None, Some(530.0))).check).unwrap(), "1.125 × baseline (512 ms, 530 ms or less)");
        assert_eq!(words(&of(1.0, known(Some(512.0), Some(512.0))).check).unwrap(), "1.00 × baseline (512 ms)");
        assert_eq!(limit(&of(1.1, None)), "1.10 × baseline (there is none)");
        assert_eq!(limit(&case(4).verdicts[0]), "500 ms");
    }
}
