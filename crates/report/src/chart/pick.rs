//! Which cases a chart shows, in which order and colour, and what it says about the rest.

use crate::chart::style::{category, ramp};
use crate::names::Names;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, Report, TokenSource};
use plotters::style::RGBColor;

/// A case on a chart.
pub struct Picked<'a> {
    /// The case.
    pub case: &'a CaseReport,
    /// Its name in the legend.
    pub label: String,
    /// The title of its panel.
    pub title: String,
    /// Its colour: a ramp where the cases are levels of load.
    pub color: RGBColor,
}

/// At most `room` of the cases that pass `has`, by rising load and evenly spread over it, and how many there were.
pub fn pick(report: &Report, room: usize, has: impl Fn(&CaseReport) -> bool) -> (Vec<Picked<'_>>, usize) {
    let mut cases: Vec<&CaseReport> = report.cases.iter().filter(|case| has(case)).collect();
    let ordered =
        cases.iter().all(|case| case.load_value.is_some()) && cases.windows(2).any(|p| p[0].load_value != p[1].load_value);
    if ordered {
        cases.sort_by(|a, b| a.load_value.unwrap_or(0.0).total_cmp(&b.load_value.unwrap_or(0.0)));
    }
    let found = cases.len();
    let shown: Vec<&CaseReport> = spread(found, room).into_iter().map(|index| cases[index]).collect();
    let color = |index| if ordered { ramp(index, shown.len()) } else { category(index, shown.len()) };
    let names = Names::of(&shown);
    let picked = shown.iter().enumerate().map(|(index, case)| Picked {
        case,
        label: short(case, &names),
        title: title(case, &names),
        color: color(index),
    });
    (picked.collect(), found)
}

/// The name of a case, or, where that is long, what it differs in from the others that are shown.
fn short(case: &CaseReport, names: &Names) -> String {
    let whole = name(case);
    let differs = names.legend(case);
    if differs.is_empty() || whole.chars().count() <= LONGEST { whole } else { differs }
}

/// The title of its panel among others.
fn title(case: &CaseReport, names: &Names) -> String {
    Some(names.title(case)).filter(|title| !title.is_empty()).unwrap_or_else(|| name(case))
}

/// The longest load that stands in a legend.
const LONGEST: usize = 30;

/// The name of a case on a chart: its id, or its load where the id says nothing and the load is short; of a mix, which the
/// subtitle tells in full, the load of all its entries.
pub fn name(case: &CaseReport) -> String {
    let whole = case.load.split_once("; ").map(|(whole, _)| whole);
    let short = [Some(case.load.as_str()), whole].into_iter().flatten().find(|load| load.chars().count() <= LONGEST);
    let named = short.filter(|_| case.labels.0.is_empty()).unwrap_or(&case.id);
    named.to_owned()
}

/// At most `room` indices below `count`, first and last among them, evenly spread.
pub fn spread(count: usize, room: usize) -> Vec<usize> {
    match (count, room) {
        (count, room) if count <= room => (0..count).collect(),
        (_, 0) => Vec::new(),
        (_, 1) => vec![0],
        _ => (0..room).map(|step| (step * (count - 1) + (room - 1) / 2) / (room - 1)).collect(),
    }
}

/// Panels in a row, so that they fill a page.
pub fn columns(panels: usize) -> usize {
    match panels {
        0 | 1 => 1,
        2 | 4 => 2,
        3 | 5..=9 => 3,
        _ => 4,
    }
}

/// The line under a title: scenario, its size, and what else must be said.
pub fn subtitle(report: &Report, remarks: &[String]) -> String {
    let scope = match report.cases.as_slice() {
        [only] => only.load.clone(),
        cases => format!("{} cases", cases.len()),
    };
    let parts =
        [report.manifest.name.clone(), scope].into_iter().chain(remarks.iter().filter(|remark| !remark.is_empty()).cloned());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ·  ")
}

/// `n = 240 requests per case`: over how many requests, or gaps, the figures of these cases are, by the values of a metric.
pub fn sizes<'a>(cases: impl Iterator<Item = &'a CaseReport>, metric: Metric) -> String {
    let sizes: Vec<u64> = cases.filter_map(|case| case.distributions.get(&metric)).map(|spread| spread.n).collect();
    let what = if metric.per() == Scope::Gap { "gaps" } else { "requests" };
    match (sizes.iter().min(), sizes.iter().max()) {
        (Some(n), _) if sizes.len() == 1 => format!("n = {n} {what}"),
        (Some(least), Some(most)) if least == most => format!("n = {least} {what} per case"),
        (Some(least), Some(most)) => format!("n = {least} to {most} {what} per case"),
        _ => String::new(),
    }
}

/// `12 of 100 cases shown`, or nothing where all are.
pub fn shown(count: usize, of: usize, what: &str) -> String {
    if count == of { String::new() } else { format!("{count} of {of} {what} shown") }
}

/// What a chart of output tokens must say where they were only counted from events.
pub fn token_remark(report: &Report) -> String {
    let counted = report.cases.iter().any(|case| case.token_source == Some(TokenSource::Events));
    if counted { "~ tokens counted from events, a lower bound".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    #[test]
    fn the_ends_are_always_shown_and_no_case_twice() {
        for count in 1..=120 {
            let indices = spread(count, 12);
            assert_eq!((indices[0], indices[indices.len() - 1], indices.len()), (0, count - 1, count.min(12)));
            assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "{indices:?}");
        }
        assert_eq!(spread(0, 12), Vec::<usize>::new());
    }

    #[test]
    fn a_name_is_never_too_long_for_a_legend() {
        let mut case = sweep(1).cases.remove(0);
        case.load = "30/s poisson; chat 75%, summarise 25%".to_owned();
        assert_eq!(name(&case), "concurrency=1");
        case.labels.0.clear();
        assert_eq!(name(&case), "30/s poisson");
        case.load = "30/s; a 1%, b 99%".to_owned();
        assert_eq!(name(&case), case.load);
        case.load = "x".repeat(31);
        assert_eq!(name(&case), "concurrency=1");
    }

    #[test]
    fn a_sweep_is_shown_by_rising_load_and_says_what_is_left_out() {
        let mut report = sweep(100);
        report.cases.reverse();
        let (picked, found) = pick(&report, 12, |_| true);
        let loads: Vec<f64> = picked.iter().filter_map(|picked| picked.case.load_value).collect();
        assert_eq!(loads, [1.0, 10.0, 19.0, 28.0, 37.0, 46.0, 55.0, 64.0, 73.0, 82.0, 91.0, 100.0]);
        assert_eq!(picked[0].label, "concurrency=1");
        assert_eq!(subtitle(&report, &[shown(picked.len(), found, "cases")]), "chat  ·  100 cases  ·  12 of 100 cases shown");
        assert_eq!(subtitle(&sweep(1), &[shown(1, 1, "cases")]), "chat  ·  concurrency 1");
    }

    #[test]
    fn a_long_name_is_cut_to_what_differs() {
        let report = grid(2);
        let (picked, _) = pick(&report, 12, |_| true);
        assert_eq!(picked[0].label, "rate=1/s, max_tokens=128");
        let (alone, _) = pick(&report, 1, |_| true);
        assert_eq!(alone[0].label, report.cases[0].id, "nothing differs");
        let titles: Vec<&str> = picked.iter().map(|picked| picked.title.as_str()).collect();
        assert_eq!(titles[0], "rate=1/s · tokens=128");
        assert!((1..titles.len()).all(|at| !titles[..at].contains(&titles[at])), "{titles:?}");
    }

    #[test]
    fn the_number_of_requests_is_told_in_one_phrase() {
        let mut report = sweep(3);
        assert_eq!(sizes(report.cases[..1].iter(), Metric::Ttft), "n = 240 requests");
        assert_eq!(sizes(report.cases.iter(), Metric::Ttft), "n = 240 requests per case");
        report.cases[1].distributions.entry(Metric::Ttft).and_modify(|spread| spread.n = 100);
        assert_eq!(sizes(report.cases.iter(), Metric::Ttft), "n = 100 to 240 requests per case");
        assert_eq!(sizes(report.cases[..1].iter(), Metric::Itl), "n = 240 gaps");
        assert_eq!(sizes(report.cases.iter(), Metric::Items), "");
    }
}
