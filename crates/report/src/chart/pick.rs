//! Selecting and naming the cases of a chart, and small multiples: one panel per case.

use crate::chart::axis::Axis;
use crate::chart::figure::{Mark, Panel};
use crate::chart::style::{category, ramp};
use crate::objectives::{severity, worst_ruling};
use llmscen_core::check::Ruling;
use llmscen_core::label::{STAGE, Scalar};
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, Report, TokenSource};
use plotters::style::RGBColor;

/// A case shown in a chart.
pub struct ShownCase<'a> {
    /// The case.
    pub case: &'a CaseReport,
    /// Its name in the legend.
    pub label: String,
    /// The title of its panel.
    pub title: String,
    /// Its color: from a ramp if the cases are levels of load.
    pub color: RGBColor,
}

/// At most `max` of the cases with data by rising load, and a remark about omitted cases. If not all fit, failed ones
/// come first, then invalid and inconclusive ones, each evenly spaced.
pub fn select_cases(
    report: &Report,
    max: usize,
    has_data: impl Fn(&CaseReport) -> bool,
) -> (Vec<ShownCase<'_>>, String) {
    let mut cases: Vec<&CaseReport> = report.cases.iter().filter(|case| has_data(case)).collect();
    let ordered = cases.iter().all(|case| case.load_value.is_some())
        && cases.windows(2).any(|p| p[0].load_value != p[1].load_value);
    if ordered {
        cases.sort_by(|a, b| {
            a.load_value
                .unwrap_or(0.0)
                .total_cmp(&b.load_value.unwrap_or(0.0))
        });
    }
    let found = cases.len();
    let kept = most_severe(&cases, max);
    let has_failed = kept.iter().any(|index| case_severity(cases[*index]) == 0);
    let remark = match shown(kept.len(), found, "cases") {
        remark if remark.is_empty() || !has_failed => remark,
        remark => format!("{remark}, failed ones first"),
    };
    let shown: Vec<&CaseReport> = kept.into_iter().map(|index| cases[index]).collect();
    let color = |index| {
        if ordered {
            ramp(index, shown.len())
        } else {
            category(index, shown.len())
        }
    };
    let names = CaseNames::new(&shown);
    let picked = shown.iter().enumerate().map(|(index, case)| ShownCase {
        case,
        label: legend_label(case, &names),
        title: panel_title(case, &names),
        color: color(index),
    });
    (picked.collect(), remark)
}

/// 0 for a case with a failed objective, then invalid, inconclusive and passed.
fn case_severity(case: &CaseReport) -> u8 {
    severity(worst_ruling(case).unwrap_or(Ruling::Pass))
}

/// The indices of at most `max` cases, ascending.
fn most_severe(cases: &[&CaseReport], max: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for level in 0..=3 {
        let same: Vec<usize> = (0..cases.len())
            .filter(|index| case_severity(cases[*index]) == level)
            .collect();
        let free = max.saturating_sub(kept.len());
        kept.extend(
            evenly_spaced(same.len(), free)
                .into_iter()
                .map(|at| same[at]),
        );
    }
    kept.sort_unstable();
    kept
}

/// The name of a case, or if that is long, the values that distinguish it.
fn legend_label(case: &CaseReport, names: &CaseNames) -> String {
    let name = case_name(case);
    let distinct = names.legend(case);
    if distinct.is_empty() || name.chars().count() <= MAX_NAME {
        name
    } else {
        distinct
    }
}

/// The title of the panel of a case.
fn panel_title(case: &CaseReport, names: &CaseNames) -> String {
    Some(names.title(case))
        .filter(|title| !title.is_empty())
        .unwrap_or_else(|| case_name(case))
}

/// The longest title of a panel in a row of three, in characters.
const MAX_TITLE: usize = 36;
/// The longest load in a legend, in characters.
const MAX_NAME: usize = 30;

/// The name of a case in a chart: its id, or its load if no value is swept and the load is short. For a mix it is the
/// total load, since the subtitle shows the mix in full.
fn case_name(case: &CaseReport) -> String {
    let total = case.load.split_once("; ").map(|(total, _)| total);
    let short = [Some(case.load.as_str()), total]
        .into_iter()
        .flatten()
        .find(|load| load.chars().count() <= MAX_NAME);
    short
        .filter(|_| case.labels.0.is_empty())
        .unwrap_or(&case.id)
        .to_owned()
}

/// At most `max` evenly spaced indices below `count`, including the first and the last.
pub fn evenly_spaced(count: usize, max: usize) -> Vec<usize> {
    match (count, max) {
        (count, max) if count <= max => (0..count).collect(),
        (_, 0) => Vec::new(),
        (_, 1) => vec![0],
        _ => (0..max)
            .map(|step| (step * (count - 1) + (max - 1) / 2) / (max - 1))
            .collect(),
    }
}

/// Panels per row.
pub fn columns(panels: usize) -> usize {
    match panels {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    }
}

/// The line under the title: scenario, number of cases, remarks.
pub fn subtitle(report: &Report, remarks: &[String]) -> String {
    let scope = match report.cases.as_slice() {
        [only] => only.load.clone(),
        cases => format!("{} cases", cases.len()),
    };
    let parts = [report.manifest.name.clone(), scope]
        .into_iter()
        .chain(remarks.iter().filter(|remark| !remark.is_empty()).cloned());
    parts
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("  ·  ")
}

/// `n = 240 requests per case`: the number of values of a metric in the cases.
pub fn sample_sizes<'a>(cases: impl Iterator<Item = &'a CaseReport>, metric: Metric) -> String {
    let sizes: Vec<u64> = cases
        .filter_map(|case| case.distributions.get(&metric))
        .map(|values| values.n)
        .collect();
    let unit = if metric.per() == Scope::Gap {
        "gaps"
    } else {
        "requests"
    };
    match (sizes.iter().min(), sizes.iter().max()) {
        (Some(n), _) if sizes.len() == 1 => format!("n = {n} {unit}"),
        (Some(least), Some(most)) if least == most => format!("n = {least} {unit} per case"),
        (Some(least), Some(most)) => format!("n = {least} to {most} {unit} per case"),
        _ => String::new(),
    }
}

/// `12 of 100 cases shown`; empty if all are.
pub fn shown(count: usize, total: usize, noun: &str) -> String {
    if count == total {
        String::new()
    } else {
        format!("{count} of {total} {noun} shown")
    }
}

/// The remark of a chart of output tokens that were only counted from streamed events.
pub fn token_remark(report: &Report) -> String {
    let counted = report
        .cases
        .iter()
        .any(|case| case.token_source == Some(TokenSource::Events));
    if counted {
        "~ token counts: streamed events (lower bound)".to_owned()
    } else {
        String::new()
    }
}

/// The remark of small multiples that can be compared.
pub const SHARED_SCALE: &str = "all panels have the same vertical scale";

/// The most panels of one chart.
pub const MAX_PANELS: usize = 12;

/// A panel without its title.
pub struct PanelContent {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks.
    pub marks: Vec<Mark>,
}

/// One panel for each of at most `max` cases with data, and a remark about omitted cases. `single_title`: the title
/// of a panel that is the only one. `draw` gets the case and the number of panels.
pub fn small_multiples(
    report: &Report,
    single_title: &str,
    max: usize,
    has_data: impl Fn(&CaseReport) -> bool,
    draw: impl Fn(&CaseReport, usize) -> Option<PanelContent>,
) -> (Vec<Panel>, String) {
    let (picked, remark) = select_cases(report, max, has_data);
    let panel = |ShownCase { case, title, .. }: &ShownCase<'_>| {
        let PanelContent { x, y, marks } = draw(case, picked.len())?;
        let title = if picked.len() == 1 {
            single_title.to_owned()
        } else {
            title.clone()
        };
        Some(Panel { title, x, y, marks })
    };
    (picked.iter().filter_map(panel).collect(), remark)
}

/// Swept keys that are the load. A chart over load has them on its axis.
const LOAD_KEYS: [&str; 3] = ["load.concurrency", "load.rate", STAGE];

/// CaseNames of the cases in a chart, made of the swept keys that differ.
pub struct CaseNames<'a>(Vec<Field<'a>>);

/// A swept key whose values differ.
struct Field<'a> {
    path: &'a str,
    /// Each value and its short form.
    values: Vec<(&'a Scalar, String)>,
    /// Whether its values are names, such as URLs and models.
    text: bool,
}

impl<'a> CaseNames<'a> {
    /// CaseNames for the cases.
    pub fn new(cases: &[&'a CaseReport]) -> CaseNames<'a> {
        let mut paths: Vec<&str> = Vec::new();
        for (path, _) in cases.iter().flat_map(|case| &case.labels.0) {
            if !paths.contains(&path.as_str()) {
                paths.push(path);
            }
        }
        CaseNames(
            paths
                .into_iter()
                .filter_map(|path| Field::new(path, cases))
                .collect(),
        )
    }

    /// Removes the load.
    pub fn without_load(self) -> CaseNames<'a> {
        self.retain(|field| !LOAD_KEYS.contains(&field.path))
    }

    /// Keeps the keys whose values are names: they identify engines.
    pub fn engines(self) -> CaseNames<'a> {
        self.retain(|field| field.text && !LOAD_KEYS.contains(&field.path))
    }

    /// Removes the keys whose values are names.
    pub fn without_engines(self) -> CaseNames<'a> {
        self.retain(|field| !field.text)
    }

    fn retain(mut self, is_kept: fn(&Field<'a>) -> bool) -> CaseNames<'a> {
        self.0.retain(is_kept);
        self
    }

    /// For a legend: `max_tokens=256, vllm:8000`. Empty if the case has none of the keys.
    pub fn legend(&self, case: &CaseReport) -> String {
        self.format_values(case, |field| last_segment(field.path).to_owned())
            .join(", ")
    }

    /// For the title of a small panel: `concurrency=96 · max_num_seqs=8`, or with short keys where that is too long
    /// for one.
    pub fn title(&self, case: &CaseReport) -> String {
        if self.longest() <= MAX_TITLE {
            let full = self.format_values(case, |field| last_segment(field.path).to_owned());
            return full.join(" · ");
        }
        let shortened = |field: &Field| {
            let short = short_key(field.path);
            let is_unique = self
                .0
                .iter()
                .filter(|other| short_key(other.path) == short)
                .count()
                == 1;
            if is_unique && self.0.len() > 1 {
                short.to_owned()
            } else {
                last_segment(field.path).to_owned()
            }
        };
        self.format_values(case, shortened).join(" · ")
    }

    /// The length of the longest possible title, in characters.
    fn longest(&self) -> usize {
        let length = |field: &Field| {
            let values = field.values.iter().map(|(_, short)| short.chars().count());
            last_segment(field.path).chars().count() + 1 + values.max().unwrap_or(0)
        };
        self.0.iter().map(length).sum::<usize>() + 3 * self.0.len().saturating_sub(1)
    }

    fn format_values(&self, case: &CaseReport, key: impl Fn(&Field) -> String) -> Vec<String> {
        // A single name needs no key.
        let is_single_name = self.0.iter().filter(|field| field.text).count() == 1;
        let format = |field: &Field| {
            let value = case.labels.get(field.path)?;
            let short = field
                .values
                .iter()
                .find(|(known, _)| *known == value)
                .map(|(_, short)| short.as_str())?;
            Some(if field.text && is_single_name {
                short.to_owned()
            } else {
                format!("{}={short}", key(field))
            })
        };
        self.0.iter().filter_map(format).collect()
    }
}

impl<'a> Field<'a> {
    fn new(path: &'a str, cases: &[&'a CaseReport]) -> Option<Field<'a>> {
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
        let full: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let text = values
            .iter()
            .all(|value| matches!(value, Scalar::Text(_)) && value.number().is_none());
        let short = if text { distinct_parts(&full) } else { full };
        Some(Field {
            path,
            values: values.into_iter().zip(short).collect(),
            text,
        })
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// The last word of a key: `seqs` for `max_num_seqs`.
fn short_key(path: &str) -> &str {
    match last_segment(path) {
        "concurrency" => "c",
        key => key.rsplit('_').next().unwrap_or_default(),
    }
}

/// CaseNames without the path segments that all of them share.
fn distinct_parts(names: &[String]) -> Vec<String> {
    let bare = |name: &String| {
        name.split_once("://")
            .map_or(name.as_str(), |(_, rest)| rest)
            .trim_end_matches('/')
            .to_owned()
    };
    let bare: Vec<String> = names.iter().map(bare).collect();
    let parts: Vec<Vec<&str>> = bare.iter().map(|name| name.split('/').collect()).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    // At least one segment of each name stays.
    let is_shared = |segment: fn(&[&str], usize) -> Option<String>, index: usize| {
        parts
            .windows(2)
            .all(|pair| segment(&pair[0], index) == segment(&pair[1], index))
    };
    let from_start = |name: &[&str], index: usize| name.get(index).map(|part| (*part).to_owned());
    let from_end =
        |name: &[&str], index: usize| name.iter().rev().nth(index).map(|part| (*part).to_owned());
    let head = (0..shortest.saturating_sub(1))
        .take_while(|&index| is_shared(from_start, index))
        .count();
    let tail = (0..shortest.saturating_sub(1 + head))
        .take_while(|&index| is_shared(from_end, index))
        .count();
    let short: Vec<String> = parts
        .iter()
        .map(|name| name[head..name.len() - tail].join("/"))
        .collect();
    let is_unique = short
        .iter()
        .enumerate()
        .all(|(at, name)| !name.is_empty() && !short[..at].contains(name));
    if names.len() > 1 && is_unique {
        short
    } else {
        names.to_vec()
    }
}

#[cfg(test)]
mod tests;
