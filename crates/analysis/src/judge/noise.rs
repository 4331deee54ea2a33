//! What the runs of a baseline show about its figures: how they vary, and which change that lets one see.

use llmscen_core::baseline::{Baseline, Figure};
use llmscen_core::metric::Metric;
use llmscen_core::baseline::{Noise, USUAL};
use llmscen_core::stats::comparison::{Group, detectable, detectable_by_one};

/// One-sided confidence of the test, which is two-sided at 5 %.
const LEVEL: f64 = 0.975;
/// The probability with which a change of the least size is found.
const POWER: f64 = 0.80;
/// The change that is asked for, as a share.
const WANTED: f64 = 0.05;
/// Runs a side that are tried for it.
const MOST: usize = 100;
/// Runs from which on a spread is an estimate and not a guess.
const FEW: usize = 3;

/// How each of the usual figures, and of those that objectives are about, varies from run to run. A figure of fewer than three runs is
/// left out, and so is a share that is the same in all of them.
pub fn noise(baseline: &Baseline) -> Vec<Noise> {
    let mut all = Vec::new();
    for case in &baseline.cases {
        let usual = USUAL.iter().filter_map(|name| Some((*name, case.figure(name)?)));
        let own = case.metrics.iter().filter(|(name, _)| name.contains(['(', '{', ' ']));
        let figures = usual.chain(own.map(|(name, figure)| (name.as_str(), figure)));
        all.extend(figures.filter_map(|(name, figure)| of(&case.id, name, figure)));
    }
    all
}

fn of(case: &str, name: &str, figure: &Figure) -> Option<Noise> {
    let share = name.split(['.', '{', ' ', '(']).next().and_then(Metric::parse).is_none_or(|metric| metric == Metric::ErrorRate);
    let values: Vec<f64> = figure.runs.iter().copied().flatten().filter(|value| share || *value > 0.0).collect();
    let group = Group::of(&values.iter().map(|value| if share { *value } else { value.ln() }).collect::<Vec<_>>())?;
    // Shares that are equal in all runs show that the event is rare, not that runs do not vary.
    let same = share && values.iter().all(|own| Some(own) == values.first());
    let sd = group.variance.filter(|_| group.n >= FEW && !same)?.sqrt();
    // A change is a share of the base, or of all requests.
    let back = |size: f64| if share { size } else { size.exp_m1() };
    let wanted = if share { WANTED } else { WANTED.ln_1p() };
    let least = |runs: usize| detectable(sd, runs, LEVEL, POWER);
    Some(Noise {
        case: case.to_owned(),
        figure: name.to_owned(),
        share,
        runs: group.n,
        mean: if share { group.mean } else { group.mean.exp() },
        sd: back(sd),
        one: detectable_by_one(sd, group.n, LEVEL, POWER).map(back),
        three: least(3).map(back),
        five: least(5).map(back),
        needed: (2..=MOST).find(|runs| least(*runs).is_some_and(|least| least <= wanted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::baseline::BaselineCase;

    fn baseline(figures: &[(&str, &[f64])]) -> Baseline {
        let figure = |values: &[f64]| Figure { runs: values.iter().copied().map(Some).collect(), ..Figure::default() };
        let metrics = figures.iter().map(|(name, values)| ((*name).to_owned(), figure(values))).collect();
        let case = BaselineCase { id: "base".into(), labels: Default::default(), rounds: 1, scheduled: 1, ok: 1, metrics };
        Baseline { cases: vec![case], ..Baseline::default() }
    }

    #[test]
    fn the_spread_says_which_change_can_be_seen() {
        // Logarithms 0.02 apart: sd 0.02.
        let values = [-0.02f64, 0.0, 0.02].map(|log| 100.0 * log.exp());
        let seen = noise(&baseline(&[("ttft.p95", &values), ("ttft.p98", &values), ("output_tps", &values[..2])]));
        let [own] = seen.as_slice() else { panic!("{seen:?}") };
        assert!((own.figure == "ttft.p95" && own.runs == 3 && !own.share) && (own.mean - 100.0).abs() < 1e-9, "{own:?}");
        assert!((own.sd - 0.02f64.exp_m1()).abs() < 1e-9 && (own.three.unwrap() - 0.0607f64.exp_m1()).abs() < 2e-4, "{own:?}");
        // (t(0.975; 2) + t(0.8; 2)) · 0.02 · √(4/3) = (4.3027 + 1.0607) · 0.023094.
        assert!((own.one.unwrap() - 0.12386f64.exp_m1()).abs() < 2e-4 && own.five < own.three, "{own:?}");
        assert_eq!(own.needed, Some(4), "0.0607 with 3 runs a side, 0.0474 with 4, and ln 1.05 is 0.0488");
    }

    #[test]
    fn shares_vary_in_points_and_those_that_do_not_are_left_out() {
        let seen = noise(&baseline(&[("error_rate", &[0.1, 0.1, 0.1]), ("goodput(ttft < 500ms)", &[0.90, 0.92, 0.94])]));
        let [good] = seen.as_slice() else { panic!("{seen:?}") };
        assert!(good.share && (good.sd - 0.02).abs() < 1e-9 && (good.three.unwrap() - 0.0607).abs() < 2e-4, "{good:?}");
        let wild = noise(&baseline(&[("ttft.p50", &[1.0, 10.0, 100.0])]));
        assert_eq!(wild[0].needed, None);
    }
}
