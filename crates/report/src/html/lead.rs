//! What the page begins with: the subject of the test, and a tile for each main figure.

use crate::dimensions::dimensions;
use crate::findings::{excess, limit_ratio};
use crate::format::{against, check_title, counted, number, optional, percent, value};
use crate::html::sparkline;
use crate::objectives::{severity, subject_mark, titles};
use crate::search::{found_load, label_prefix, varied_key};
use crate::table::{Emphasis, case_anchor};
use llmscen_core::check::Verdict;
use llmscen_core::endpoint::UrlParts;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::units::Unit;
use serde::Serialize;

/// The most tiles for objectives.
const MAX_TILES: usize = 6;

/// A main figure.
#[derive(Serialize)]
pub struct Tile {
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) detail: String,
    pub(crate) tone: &'static str,
    pub(crate) symbol: &'static str,
    /// The case it belongs to, as a URL fragment.
    pub(crate) anchor: Option<String>,
    /// The values over load or time as SVG; may be empty.
    pub(crate) sparkline: String,
}

/// What was tested: model, server, host of the load generator, time and duration.
pub fn subject(report: &Report, plan: &str) -> Vec<String> {
    let manifest = &report.manifest;
    let swept = dimensions(report);
    let swept = swept
        .iter()
        .find(|it| it.name.split(", ").any(|name| name == "model"));
    let model = match swept {
        Some(models) => Some(counted(models.values.len(), "model")),
        None => planned_model(plan),
    };
    let server = match manifest.targets.iter().collect::<Vec<_>>().as_slice() {
        [] => None,
        [(url, server)] => {
            let host = UrlParts::of(url).authority;
            Some(
                [server.as_str(), host]
                    .into_iter()
                    .filter(|it| !it.is_empty())
                    .collect::<Vec<_>>()
                    .join(" at "),
            )
        }
        several => Some(counted(several.len(), "server")),
    };
    let machine = &manifest.machine;
    let cores = (machine.cores > 0).then(|| {
        format!(
            "load from {} ({})",
            machine.host,
            counted(machine.cores, "core")
        )
    });
    let started = manifest
        .started_at
        .get(..16)
        .map(|it| it.replace('T', " ") + " UTC");
    let elapsed = manifest.elapsed_s.map(|secs| value(secs, Unit::Seconds));
    let single = match report.cases.as_slice() {
        [only] => Some(only.load.clone()),
        cases => Some(counted(cases.len(), "case")),
    };
    let labels = manifest.labels.iter();
    let labels = labels.map(|(name, value)| Some(format!("{name} {value}")));
    [model, server, single, cores, started, elapsed]
        .into_iter()
        .chain(labels)
        .flatten()
        .filter(|it| !it.is_empty())
        .collect()
}

/// `target.model` of the resolved scenario, which is written one key per line.
fn planned_model(plan: &str) -> Option<String> {
    let mut target = plan.lines().skip_while(|line| *line != "target:").skip(1);
    let line = target
        .by_ref()
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| line.strip_prefix("  model: "))?;
    let name = line.trim().trim_matches(['"', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// The verdict that decides most: failed, then invalid, then inconclusive, then passed; among equals the farthest
/// beyond its limit.
fn worst(
    report: &Report,
    is_asked: impl Fn(&Verdict) -> bool,
) -> Option<(usize, &CaseReport, &Verdict)> {
    let ratio = |verdict: &Verdict| {
        let missing = if verdict.observed.is_none() {
            f64::INFINITY
        } else {
            0.0
        };
        limit_ratio(verdict).unwrap_or(missing)
    };
    let all = report
        .cases
        .iter()
        .enumerate()
        .flat_map(|(index, case)| case.verdicts.iter().map(move |it| (index, case, it)));
    // The first of equal ones.
    all.filter(|(.., verdict)| is_asked(verdict))
        .reduce(|best, next| {
            let order = severity(best.2.ruling)
                .cmp(&severity(next.2.ruling))
                .then(ratio(next.2).total_cmp(&ratio(best.2)));
            if order.is_gt() { next } else { best }
        })
}

/// The results of the searches, the objectives, the highest throughput, and the errors.
pub fn tiles(report: &Report) -> Vec<Tile> {
    let mut objectives: Vec<(usize, &CaseReport, &Verdict)> = titles(report)
        .iter()
        .filter_map(|title| worst(report, |verdict| check_title(&verdict.check) == *title))
        .collect();
    // The probes of a search are expected to fail, so its result comes in their place.
    let mut tiles = search_tiles(report);
    if !tiles.is_empty() {
        objectives.clear();
    }
    objectives.sort_by_key(|(.., verdict)| severity(verdict.ruling));
    let all = objectives.len();
    tiles.extend(
        objectives
            .into_iter()
            .take(MAX_TILES)
            .map(|it| objective_tile(report, it)),
    );
    if all > MAX_TILES {
        let more = counted(all - MAX_TILES, "more objective");
        tiles.push(plain(more, String::new(), "see the matrix".to_owned()));
    }
    tiles.extend(throughput(report));
    tiles.extend(errors(report));
    tiles
}

fn plain(label: String, value: String, detail: String) -> Tile {
    Tile {
        label,
        value,
        detail,
        tone: "",
        symbol: "",
        anchor: None,
        sparkline: String::new(),
    }
}

fn objective_tile(report: &Report, (index, case, verdict): (usize, &CaseReport, &Verdict)) -> Tile {
    let tone = Emphasis::from(verdict.ruling);
    let seen = against(
        verdict.observed,
        verdict.check.limit,
        verdict.check.subject.unit(),
    );
    let mark = verdict.observed.map_or("", |_| subject_mark(case, verdict));
    // A value of zero, as of errors, is that of many cases.
    let excess = excess(verdict).filter(|_| verdict.observed != Some(0.0));
    let has_place = report.cases.len() > 1 && verdict.observed != Some(0.0);
    let place = has_place.then(|| format!("worst in {}", case.id));
    let detail = [excess, place];
    Tile {
        label: check_title(&verdict.check),
        value: format!("{mark}{seen}"),
        detail: detail.into_iter().flatten().collect::<Vec<_>>().join(", "),
        tone: tone.class(),
        symbol: tone.symbol(),
        anchor: Some(case_anchor(index)),
        sparkline: sparkline::of_objective(report, verdict),
    }
}

fn search_tiles(report: &Report) -> Vec<Tile> {
    let tile = |search| {
        let (name, unit) = varied_key(&(search as &llmscen_core::search::SearchReport).spec);
        let found = found_load(report, search);
        let (low, high) = search.finding.interval;
        let interval = low.map(|low| {
            format!(
                "{} interval {} to {}",
                search.finding.mass.map_or("95%".to_owned(), percent),
                number(low),
                number(high)
            )
        });
        Tile {
            label: format!("{}maximum {name}", label_prefix(search)),
            value: found.map_or_else(
                || "none".to_owned(),
                |load| format!("{}{unit}", number(load)),
            ),
            detail: interval.filter(|_| found.is_some()).unwrap_or_default(),
            tone: "",
            symbol: "",
            anchor: Some("search".to_owned()),
            sparkline: String::new(),
        }
    };
    let results = report.searches.iter().filter(|search| search.is_result());
    results.take(MAX_TILES).map(tile).collect()
}

/// The highest throughput of a case, in tokens if they are known.
fn throughput(report: &Report) -> Option<Tile> {
    let best = |metric: Metric| {
        let cases = report
            .cases
            .iter()
            .enumerate()
            .filter(|(_, case)| !case.is_stage());
        cases
            .filter_map(|(index, case)| Some((index, case, *case.scalars.get(&metric)?)))
            .filter(|(.., rate)| rate.is_finite())
            .max_by(|a, b| a.2.total_cmp(&b.2))
            .map(|found| (metric, found))
    };
    let (metric, (index, case, rate)) =
        best(Metric::OutputTps).or_else(|| best(Metric::RequestThroughput))?;
    let requests = case
        .scalars
        .get(&Metric::RequestThroughput)
        .filter(|_| metric == Metric::OutputTps);
    let requests = requests.map(|rate| optional(Some(*rate), Unit::RequestsPerSecond));
    let place = (report.cases.len() > 1).then(|| format!("highest, in {}", case.id));
    Some(Tile {
        anchor: Some(case_anchor(index)),
        sparkline: sparkline::of_metric(report, metric),
        ..plain(
            "Throughput".to_owned(),
            format!(
                "{}{}",
                crate::cases::mark(case, metric),
                value(rate, metric.unit())
            ),
            requests
                .into_iter()
                .chain(place)
                .collect::<Vec<_>>()
                .join(", "),
        )
    })
}

/// Failed requests of all cases.
fn errors(report: &Report) -> Option<Tile> {
    let cases = || report.cases.iter().filter(|case| !case.is_stage());
    let failed: u64 = cases()
        .map(|case| case.counts.failures.values().sum::<u64>())
        .sum();
    let scheduled: u64 = cases().map(|case| case.counts.scheduled).sum();
    (scheduled > 0).then(|| Tile {
        anchor: (failed > 0).then(|| "failures".to_owned()),
        tone: if failed > 0 {
            Emphasis::Fail.class()
        } else {
            ""
        },
        sparkline: sparkline::of_metric(report, Metric::ErrorRate),
        ..plain(
            "Failed requests".to_owned(),
            percent(failed as f64 / scheduled as f64),
            format!("{failed} of {scheduled}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{searched, sweep};

    #[test]
    fn a_tile_shows_the_worst_value_of_its_objective() {
        let tiles = tiles(&sweep(12));
        let texts: Vec<(&str, &str)> = tiles
            .iter()
            .map(|it| (it.label.as_str(), it.symbol))
            .collect();
        assert_eq!(
            texts,
            [
                ("ttft.p99 < 500ms", "✗"),
                ("error_rate < 1%", "?"),
                ("Throughput", ""),
                ("Failed requests", "")
            ]
        );
        assert!(
            tiles[0]
                .detail
                .contains("x the limit, worst in concurrency=128"),
            "{}",
            tiles[0].detail
        );
        assert_eq!(tiles[3].value, "0%");
    }

    #[test]
    fn the_result_of_a_search_is_its_first_tile() {
        let tiles = tiles(&searched());
        assert!(tiles[0].label.starts_with("maximum "), "{}", tiles[0].label);
        assert!(tiles.iter().all(|it| !it.label.contains(" < ")));
    }

    #[test]
    fn the_subject_names_model_server_and_load() {
        let plan =
            "version: 1\ntarget:\n  api: openai-chat\n  model: \"qwen2.5\"\nrequest:\n  model: x\n";
        assert_eq!(
            subject(&sweep(1), plan),
            [
                "qwen2.5",
                "uvicorn at 127.0.0.1:8000",
                "concurrency 1",
                "load from bench-1 (16 cores)",
                "2026-01-02 03:04 UTC",
                "83.2 s"
            ]
        );
        assert_eq!(planned_model("request:\n  model: x\n"), None);
    }
}
