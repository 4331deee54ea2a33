//! Beside a verdict that took its requests as independent: what they are worth, and what would be ruled by so many.
//!
//! The ruling itself does not change: what alike requests are worth is an estimate, and the exact rules know no estimates.

use crate::judge::evidence::{goodput_flags, tagged};
use crate::judge::opinion::{Opinion, ruling};
use crate::judge::units::ROUNDS;
use crate::model::check::{Check, Confidence, Of, Op, Ruling, Subject};
use crate::model::metric::{Metric, Per, Stat};
use crate::model::repeats::Repeat;
use crate::model::sample::{Row, Sample};
use crate::stats::claim::{decide, needed_to_decide};
use crate::stats::worth::effective;

/// What the requests of a check are worth, and what they say then.
struct Worth {
    n: f64,
    worth: f64,
}

/// A sentence where the requests behind a ruling at a confidence are worth less than half of their number. None for gaps, which
/// have a note of their own, for throughputs, for relative limits, and for rounds that are drawn as a whole.
pub(super) fn remark(check: &Check, sample: &Sample, opinion: &Opinion) -> Option<String> {
    let Confidence::Level(level) = check.confidence else { return None };
    // What a relative limit needs lies with the other side too.
    if matches!(check.op, Op::Equal | Op::Unequal) || check.relative.is_some() {
        return None;
    }
    let (observed, rounds) = (opinion.observed?, rounds(check, sample));
    match &check.subject {
        Subject::Goodput(limits) => {
            let flags = |rows: &Vec<&Row>| rows.iter().flat_map(|row| goodput_flags(std::slice::from_ref(row), limits)).collect();
            share(check, rounds.iter().map(flags).collect(), opinion, level)
        }
        Subject::Metric { metric: Metric::ErrorRate, .. } => {
            let flags = |rows: &Vec<&Row>| rows.iter().filter(|row| !row.left).map(|row| !row.ok).collect();
            share(check, rounds.iter().map(flags).collect(), opinion, level)
        }
        Subject::Metric { metric, stat: Some(stat), .. } if metric.per() == Per::Request => {
            let values: Vec<Vec<f64>> = rounds.iter().map(|rows| values(rows, *metric, check)).collect();
            match *stat {
                Stat::Quantile(p) if 0.0 < p && p < 1.0 => quantile(check, &values, (p, observed), opinion, level),
                Stat::Mean if rounds.len() < ROUNDS => mean(check, &values, observed, opinion),
                _ => None,
            }
        }
        Subject::Metric { .. } | Subject::Signal { .. } => None,
    }
}

fn rounds<'a>(check: &Check, sample: &'a Sample) -> Vec<Vec<&'a Row>> {
    let tags: &[(String, String)] = match &check.subject {
        Subject::Metric { tags, .. } => tags,
        Subject::Goodput(_) | Subject::Signal { .. } => &[],
    };
    let own = |rows: &'a [Row]| rows.iter().filter(|row| tagged(row, tags)).collect();
    sample.rows.chunk_by(|a, b| a.round == b.round).map(own).collect()
}

fn values(rows: &[&Row], metric: Metric, check: &Check) -> Vec<f64> {
    let worst = if check.op.is_ceiling() { f64::INFINITY } else { f64::NEG_INFINITY };
    let value = |row: &&Row| match row.counts(metric) {
        true => row.values.get(&metric).copied(),
        false => (check.of == Of::Scheduled && !row.left).then_some(worst),
    };
    rows.iter().filter_map(value).collect()
}

impl Worth {
    /// None where it is not to be told.
    fn of(series: &[Vec<f64>]) -> Option<Worth> {
        let n = series.iter().map(Vec::len).sum::<usize>() as u64;
        let worth = Some(n).filter(|n| *n >= Repeat::FEW.1).map(|_| effective(series))?.round();
        (worth < Repeat::FEW.0 * n as f64).then_some(Worth { n: n as f64, worth })
    }

    fn times(&self) -> f64 {
        self.n / self.worth
    }

    /// `need`: independent requests that would decide.
    fn told(&self, now: Ruling, then: Ruling, need: Option<f64>) -> String {
        let need = need.map(|need| format!("about {:.0} would decide", (need * self.times()).ceil()));
        let (n, worth) = (self.n, self.worth);
        let more = match (now == then, need) {
            (true, Some(need)) => format!("; {need}"),
            (true, None) => "; the ruling stands by those too".to_owned(),
            (false, need) => {
                let need = need.map(|need| format!("; {need}")).unwrap_or_default();
                format!(", by which it would be {}{need}", then.name())
            }
        };
        format!("requests that follow one another are alike: n = {n} is worth about {worth}{more}")
    }
}

/// Flags of requests that count towards a share.
fn share(check: &Check, flags: Vec<Vec<bool>>, opinion: &Opinion, level: f64) -> Option<String> {
    let numbers: Vec<Vec<f64>> = flags.iter().map(|own| own.iter().map(|flag| f64::from(u8::from(*flag))).collect()).collect();
    let hits: f64 = numbers.iter().flatten().sum();
    let n = numbers.iter().map(Vec::len).sum::<usize>() as f64;
    let (breaking, tail) = if check.op.is_ceiling() { (hits, check.limit) } else { (n - hits, 1.0 - check.limit) };
    (0.0 < tail && tail < 1.0).then(|| again(&numbers, breaking, tail, opinion, level)).flatten()
}

/// By which requests are beyond the quantile that was seen: beyond a far limit there may be none.
fn quantile(check: &Check, values: &[Vec<f64>], (p, seen): (f64, f64), opinion: &Opinion, level: f64) -> Option<String> {
    let beyond = |own: &Vec<f64>| own.iter().map(|value| f64::from(u8::from(*value > seen))).collect();
    let breaking = values.iter().flatten().filter(|value| !check.op.holds(**value, check.limit)).count() as f64;
    let tail = if check.op.is_ceiling() { 1.0 - p } else { p };
    again(&values.iter().map(beyond).collect::<Vec<_>>(), breaking, tail, opinion, level)
}

/// The exact rule on as many independent requests as these are worth, of which the same share breaks the limit.
fn again(series: &[Vec<f64>], breaking: f64, tail: f64, opinion: &Opinion, level: f64) -> Option<String> {
    let seen = Worth::of(series)?;
    let (n, t) = (seen.worth as u64, (breaking / seen.times()).round() as u64);
    let then = ruling(decide(n, t, tail, level));
    let need = (then == Ruling::Inconclusive).then(|| needed_to_decide(n, t, tail, level)).flatten();
    Some(seen.told(opinion.ruling, then, need.map(|need| need as f64)))
}

/// The bound stands farther off by the root of how many requests are worth one.
fn mean(check: &Check, values: &[Vec<f64>], observed: f64, opinion: &Opinion) -> Option<String> {
    let (seen, bound) = (Worth::of(values)?, opinion.bound.filter(|_| observed.is_finite())?);
    let (reach, room) = ((bound - observed).abs() * seen.times().sqrt(), (check.limit - observed).abs());
    let then = match (reach < room, check.op.holds(observed, check.limit)) {
        (false, _) => Ruling::Inconclusive,
        (true, true) => Ruling::Pass,
        (true, false) => Ruling::Fail,
    };
    let need = (then == Ruling::Inconclusive && room > 0.0).then(|| seen.worth * (reach / room).powi(2));
    Some(seen.told(opinion.ruling, then, need))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, failed, goodput, ok, sample};
    use crate::judge::rule;
    use crate::model::check::{RequestLimit, Verdict};
    use crate::model::seed::Seed;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Each value so many times in a row.
    fn alike(values: impl IntoIterator<Item = f64>, times: usize) -> Vec<Row> {
        values.into_iter().flat_map(|value| vec![ok(Metric::Ttft, value); times]).collect()
    }

    /// Independent numbers from 0 to 1000.
    fn mixed(n: usize) -> impl Iterator<Item = f64> {
        ChaCha8Rng::seed_from_u64(n as u64).random_iter().take(n).map(|share: f64| share * 1000.0)
    }

    fn ruled(check: &Check, rows: Vec<Row>) -> Verdict {
        rule(check, &sample(rows), true, Seed(1))
    }

    fn p90(limit: f64) -> Check {
        check(Metric::Ttft, Some(Stat::Quantile(0.9)), Op::Less, limit)
    }

    #[test]
    fn alike_requests_leave_the_ruling_and_say_what_they_are_worth() {
        let seen = ruled(&p90(1001.0), alike(mixed(20), 40));
        let note = seen.note.unwrap();
        assert_eq!((seen.ruling, seen.n), (Ruling::Pass, 800));
        assert!(note.starts_with("requests that follow one another are alike: n = 800 is worth about "), "{note}");
        assert!(note.contains(", by which it would be inconclusive; about ") && note.ends_with(" would decide"), "{note}");
        assert_eq!(ruled(&p90(980.0), mixed(800).map(|value| ok(Metric::Ttft, value)).collect()).note, None);
    }

    #[test]
    fn a_ruling_that_stands_by_fewer_says_so() {
        let note = ruled(&p90(2000.0), alike(mixed(400), 10)).note.unwrap();
        assert!(note.ends_with("; the ruling stands by those too"), "{note}");
        let mean = check(Metric::Ttft, Some(Stat::Mean), Op::Less, 900.0);
        let note = ruled(&mean, alike(mixed(100), 20)).note.unwrap();
        assert!(note.ends_with("; the ruling stands by those too"), "{note}");
        // 2000 requests have a bound 11 above the mean, 100 have one 48 above.
        let near = Check { limit: mixed(100).sum::<f64>() / 100.0 + 25.0, ..mean };
        let seen = ruled(&near, alike(mixed(100), 20));
        assert_eq!(seen.ruling, Ruling::Pass);
        assert!(seen.note.is_some_and(|note| note.contains("by which it would be inconclusive; about ")));
    }

    #[test]
    fn failures_in_one_stretch_are_worth_few() {
        let rows = || (0..1000).map(|k| if k % 200 < 10 { failed() } else { ok(Metric::Ttft, 1.0) }).collect::<Vec<Row>>();
        let limits = vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 5.0 }];
        for wanted in [check(Metric::ErrorRate, None, Op::Less, 0.07), goodput(limits, Op::AtLeast, 0.93)] {
            let seen = ruled(&wanted, rows());
            let note = seen.note.unwrap();
            assert!(seen.ruling == Ruling::Pass && note.contains("by which it would be inconclusive"), "{note}");
        }
        let all = Check { of: Of::Scheduled, ..check(Metric::Ttft, Some(Stat::Quantile(0.93)), Op::Less, 5.0) };
        assert!(ruled(&all, rows()).note.is_some());
        let point = Check { confidence: Confidence::Point, ..check(Metric::ErrorRate, None, Op::Less, 0.07) };
        assert_eq!(ruled(&point, rows()).note, None);
    }
}
