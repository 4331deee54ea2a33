//! Which cases a chart shows, how they are named, and small multiples: the same picture of each case, side by side.

use crate::chart::axis::Axis;
use crate::chart::figure::{Mark, Panel};
use crate::chart::style::{category, ramp};
use llmscen_core::labels::Scalar;
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::plan::STAGE;
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

/// Panels in one chart at the most.
const ROOM: usize = 12;

/// One panel's content.
pub struct Picture {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks.
    pub marks: Vec<Mark>,
}

/// Panels of at most twelve cases that pass `has`, and what is to be said of the others. `alone`: the title of a panel that is
/// the only one. `draw` is told how many panels there are.
pub fn multiples(
    report: &Report,
    alone: &str,
    has: impl Fn(&CaseReport) -> bool,
    draw: impl Fn(&CaseReport, usize) -> Option<Picture>,
) -> (Vec<Panel>, String) {
    let (picked, found) = pick(report, ROOM, has);
    let panel = |Picked { case, title, .. }: &Picked<'_>| {
        let Picture { x, y, marks } = draw(case, picked.len())?;
        let title = if picked.len() == 1 { alone.to_owned() } else { title.clone() };
        Some(Panel { title, x, y, marks })
    };
    let panels: Vec<Panel> = picked.iter().filter_map(panel).collect();
    let remark = shown(panels.len(), found, "cases");
    (panels, remark)
}

/// Swept fields that are a load. A chart over load has them on its axis.
const LOADS: [&str; 3] = ["load.concurrency", "load.rate", STAGE];

/// How the cases of a chart are named.
pub struct Names<'a>(Vec<Field<'a>>);

/// A swept field of which not all cases have the same value.
struct Field<'a> {
    path: &'a str,
    /// Each value and its short form.
    values: Vec<(&'a Scalar, String)>,
    /// Whether its values are names, such as those of engines and models.
    text: bool,
}

impl<'a> Names<'a> {
    /// Names of these cases.
    pub fn of(cases: &[&'a CaseReport]) -> Names<'a> {
        let mut paths: Vec<&str> = Vec::new();
        for (path, _) in cases.iter().flat_map(|case| &case.labels.0) {
            if !paths.contains(&path.as_str()) {
                paths.push(path);
            }
        }
        Names(paths.into_iter().filter_map(|path| Field::of(path, cases)).collect())
    }

    /// The same without the fields that are a load.
    pub fn without_load(self) -> Names<'a> {
        self.only(|field| !LOADS.contains(&field.path))
    }

    /// The fields whose values are names, which tell engines apart.
    pub fn engines(self) -> Names<'a> {
        self.only(|field| field.text && !LOADS.contains(&field.path))
    }

    /// All other fields.
    pub fn without_engines(self) -> Names<'a> {
        self.only(|field| !field.text)
    }

    fn only(mut self, wanted: fn(&Field<'a>) -> bool) -> Names<'a> {
        self.0.retain(wanted);
        self
    }

    /// `max_tokens=256, vllm:8000`: for a legend. Empty where the case has none of the fields.
    pub fn legend(&self, case: &CaseReport) -> String {
        self.words(case, |field| last(field.path).to_owned()).join(", ")
    }

    /// `c=96 · seqs=8`: for the title of a small panel.
    pub fn title(&self, case: &CaseReport) -> String {
        let shortened = |field: &Field| {
            let short = short_key(field.path);
            let alone = self.0.iter().filter(|other| short_key(other.path) == short).count() == 1;
            if alone && self.0.len() > 1 { short.to_owned() } else { last(field.path).to_owned() }
        };
        self.words(case, shortened).join(" · ")
    }

    fn words(&self, case: &CaseReport, key: impl Fn(&Field) -> String) -> Vec<String> {
        // A name explains itself; of several it must be said which is which.
        let sole = self.0.iter().filter(|field| field.text).count() == 1;
        let word = |field: &Field| {
            let value = case.labels.get(field.path)?;
            let short = field.values.iter().find(|(own, _)| *own == value).map(|(_, short)| short.as_str())?;
            Some(if field.text && sole { short.to_owned() } else { format!("{}={short}", key(field)) })
        };
        self.0.iter().filter_map(word).collect()
    }
}

impl<'a> Field<'a> {
    fn of(path: &'a str, cases: &[&'a CaseReport]) -> Option<Field<'a>> {
        let mut values: Vec<&Scalar> = Vec::new();
        for value in cases.iter().filter_map(|case| case.labels.get(path)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let missing = cases.iter().any(|case| case.labels.get(path).is_none());
        if values.len() < 2 && !missing {
            return None;
        }
        let whole: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let text = values.iter().all(|value| matches!(value, Scalar::Text(_)) && value.number().is_none());
        let short = if text { distinct(&whole) } else { whole };
        Some(Field { path, values: values.into_iter().zip(short).collect(), text })
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// The last word of a key: `seqs` for `max_num_seqs`.
fn short_key(path: &str) -> &str {
    match last(path) {
        "concurrency" => "c",
        key => key.rsplit('_').next().unwrap_or_default(),
    }
}

/// Names without the parts that all of them share: of addresses the host and port or the path, of paths and models what differs.
fn distinct(names: &[String]) -> Vec<String> {
    let bare = |name: &String| name.split_once("://").map_or(name.as_str(), |(_, rest)| rest).trim_end_matches('/').to_owned();
    let bare: Vec<String> = names.iter().map(bare).collect();
    let parts: Vec<Vec<&str>> = bare.iter().map(|name| name.split('/').collect()).collect();
    let least = parts.iter().map(Vec::len).min().unwrap_or(0);
    // At least one part of each name stays.
    let shared = |at: fn(&[&str], usize) -> Option<String>, room: usize| {
        (0..room).take_while(|&place| parts.windows(2).all(|pair| at(&pair[0], place) == at(&pair[1], place))).count()
    };
    let head = shared(|own, place| own.get(place).map(|part| (*part).to_owned()), least.saturating_sub(1));
    let from_end = |own: &[&str], place: usize| own.iter().rev().nth(place).map(|part| (*part).to_owned());
    let tail = shared(from_end, least.saturating_sub(1 + head));
    let rest = |own: &Vec<&str>| own[head..own.len() - tail].join("/");
    let short: Vec<String> = parts.iter().map(rest).collect();
    let unique = short.iter().enumerate().all(|(at, own)| !own.is_empty() && !short[..at].contains(own));
    if names.len() > 1 && unique { short } else { names.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};
    use llmscen_core::labels::Labels;

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

    fn case(labels: &[(&str, Scalar)]) -> CaseReport {
        let labels = Labels(labels.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect());
        CaseReport { id: "x".into(), labels, ..CaseReport::default() }
    }

    fn text(value: &str) -> Scalar {
        Scalar::Text(value.into())
    }

    fn short(names: &[&str]) -> Vec<String> {
        distinct(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_keeps_what_differs() {
        assert_eq!(short(&["http://a:8000/v1", "http://b:8001/v1/"]), ["a:8000", "b:8001"]);
        assert_eq!(short(&["http://a:8000/vllm/v1", "http://a:8000/sglang/v1"]), ["vllm", "sglang"]);
        assert_eq!(short(&["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B"]), ["Qwen2.5-7B", "Qwen2.5-72B"]);
        assert_eq!(short(&["simulator", "http://a:8000/v1"]), ["simulator", "a:8000/v1"]);
        assert_eq!(short(&["http://a", "https://a"]), ["http://a", "https://a"], "never the same name twice");
        assert_eq!(short(&["http://a/v1"]), ["http://a/v1"]);
    }

    #[test]
    fn names_hold_the_fields_that_vary_and_no_others() {
        let own = |users, seqs| {
            case(&[
                ("load.concurrency", Scalar::Int(users)),
                ("target.server.vars.max_num_seqs", Scalar::Int(seqs)),
                ("request.max_tokens", Scalar::Int(128)),
            ])
        };
        let cases = [own(1, 8), own(96, 8), own(96, 16)];
        let names = Names::of(&cases.iter().collect::<Vec<_>>());
        assert_eq!(names.title(&cases[1]), "c=96 · seqs=8");
        assert_eq!(names.legend(&cases[1]), "concurrency=96, max_num_seqs=8");
        assert_eq!(names.without_load().legend(&cases[1]), "max_num_seqs=8");
        let alone = Names::of(&[&cases[0], &cases[1]]);
        assert_eq!(alone.title(&cases[1]), "concurrency=96", "one field needs no abbreviation");
    }

    #[test]
    fn short_keys_are_never_the_same() {
        let own = |a, b| case(&[("request.max_tokens", Scalar::Int(a)), ("dataset.prompt_tokens", Scalar::Int(b))]);
        let cases = [own(1, 2), own(3, 4)];
        assert_eq!(Names::of(&cases.iter().collect::<Vec<_>>()).title(&cases[0]), "max_tokens=1 · prompt_tokens=2");
    }

    #[test]
    fn the_name_of_an_engine_needs_no_key() {
        let own = |url: &str, users| case(&[("target.url", text(url)), ("load.rate", text(users))]);
        let cases = [own("http://a:8000/v1", "8/s"), own("http://a:8001/v1", "16/s")];
        let all: Vec<&CaseReport> = cases.iter().collect();
        assert_eq!(Names::of(&all).title(&cases[1]), "a:8001 · rate=16/s");
        assert_eq!(Names::of(&all).engines().legend(&cases[0]), "a:8000");
        assert_eq!(Names::of(&all[..1]).legend(&cases[0]), "");
    }
}
