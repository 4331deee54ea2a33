//! compare.html: one file that asks nothing of any network, in the look of report.html.

use crate::compare::{labels, markdown, notes, signals};
use crate::format::percent;
use crate::html::cells::{Cell, Piece, Row, Table, rich};
use crate::html::{BASE_SCRIPT, STYLE, render, tables};
use crate::{Chart, ViewError};
use llmscen_core::compare::{Comparison, Contrast, Finding};
use serde::Serialize;

const TEMPLATE: &str = concat!(include_str!("../html/macros.html"), include_str!("page.html"));

#[derive(Serialize)]
struct Page {
    name: String,
    verdict: &'static str,
    tone: &'static str,
    counts: String,
    changes: Table,
    pictures: Vec<Picture>,
    cases: Vec<Section>,
    open: bool,
    signals: Table,
    notes: Vec<Vec<Piece>>,
    explanation: String,
    runs: Table,
    environments: Vec<(String, Table)>,
    style: &'static str,
    script: &'static str,
}

#[derive(Serialize)]
struct Picture {
    title: String,
    svg: String,
}

#[derive(Serialize)]
struct Section {
    id: String,
    scope: String,
    regressions: usize,
    table: Table,
}

/// compare.html with these charts, which must have been drawn as SVG.
///
/// # Errors
/// [`ViewError::Template`] where the template cannot be rendered.
pub fn html(comparison: &Comparison, charts: &[Chart]) -> Result<String, ViewError> {
    let runs = || comparison.runs.iter();
    let cases: Vec<Section> = markdown::compared(comparison).into_iter().map(|id| section(comparison, id)).collect();
    let page = Page {
        name: runs().next().map(|run| run.report.manifest.name.clone()).unwrap_or_default(),
        verdict: labels::verdict(comparison),
        tone: tone(comparison),
        counts: labels::counts(comparison) + ".",
        changes: table(comparison, &markdown::significant(comparison), true),
        pictures: charts.iter().map(|chart| Picture { title: chart.title.clone(), svg: chart.svg.clone() }).collect(),
        open: cases.len() <= markdown::OPEN,
        cases,
        signals: signals::table(comparison),
        notes: notes(comparison).iter().map(|note| rich(note)).collect(),
        explanation: markdown::explanation(comparison),
        runs: of_runs(comparison),
        environments: runs().map(|run| (format!("{}: {}", run.label, run.folder), tables::environment(&run.report))).collect(),
        style: STYLE,
        script: BASE_SCRIPT,
    };
    render(TEMPLATE, page)
}

fn tone(comparison: &Comparison) -> &'static str {
    match labels::verdict(comparison) {
        "REGRESSION" => "fail",
        "INVALID" => "invalid",
        "INCONCLUSIVE" => "inconclusive",
        _ => "pass",
    }
}

fn of_runs(comparison: &Comparison) -> Table {
    let row = |run: &llmscen_core::compare::Run| {
        let manifest = &run.report.manifest;
        let verdict = labels::of_run(run);
        let cells = vec![
            Cell::prose(&run.label),
            Cell::code(&run.folder),
            Cell::prose(&manifest.started_at),
            Cell::prose(verdict).toned(verdict),
            Cell::prose(&manifest.tool_version),
            Cell::prose(&manifest.machine.host),
        ];
        Row { cells, ..Row::default() }
    };
    let heads = ["Run", "Folder", "Started", "Verdict", "Version", "Host"];
    Table::new(&heads, comparison.runs.iter().map(row).collect())
}

fn section(comparison: &Comparison, id: &str) -> Section {
    let own: Vec<&Contrast> = comparison.contrasts.iter().filter(|own| own.case == id).collect();
    Section {
        id: id.to_owned(),
        scope: markdown::scopes(comparison, id),
        regressions: own.iter().filter(|own| own.finding == Finding::Regression).count(),
        table: table(comparison, &own, false),
    }
}

fn table(comparison: &Comparison, own: &[&Contrast], with_case: bool) -> Table {
    let level = format!(">{} interval", percent(comparison.confidence));
    let several = comparison.sides.len() > 2;
    let first = [("Case", with_case), ("Metric", true), ("Run", several)].into_iter().filter(|own| own.1).map(|own| own.0);
    let rest = [">Base", ">Candidate", ">Change", &level, ">p adjusted", "Effect", "Finding"];
    let heads: Vec<&str> = first.chain(rest).collect();
    let row = |own: &&Contrast| {
        let [base, other] = labels::values(own);
        let first = [
            with_case.then(|| Cell::code(&own.case)),
            Some(Cell::code(&labels::measure(own))),
            several.then(|| Cell::prose(labels::label(comparison, own.run))),
        ];
        let rest = [
            Cell::figure(base, own.base.value).of("", "base"),
            Cell::figure(other, own.other.value).of("", "other"),
            Cell::figure(labels::change(own), own.ratio.map(|span| span.value)).of("", "ratio"),
            Cell::figure(labels::interval(own), None),
            Cell::figure(labels::probability(own.p_adjusted), own.p_adjusted).of("", "p_adjusted"),
            Cell::prose(&labels::effect(own.effect)),
            Cell::prose(own.finding.name()).toned(shade(own.finding)),
        ];
        let cells = first.into_iter().flatten().chain(rest).collect();
        Row { case: Some(own.case.clone()), metric: Some(own.measure.to_string()), cells, ..Row::default() }
    };
    Table::new(&heads, own.iter().map(row).collect()).sorting()
}

fn shade(finding: Finding) -> &'static str {
    match finding {
        Finding::Regression => "fail",
        Finding::Within => "inconclusive",
        Finding::Better => "pass",
        Finding::Noise | Finding::Unknown => "muted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::comparison_charts;
    use crate::compare::fixture::{comparison, doubtful};

    fn page(comparison: &Comparison) -> String {
        html(comparison, &comparison_charts(comparison).unwrap()).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_then_what_changed() {
        let seen = page(&comparison(2, 2));
        assert!(seen.contains("<span class=\"badge fail\">REGRESSION</span>"), "{}", &seen[..400]);
        let order = ["badge fail", "id=\"changes\"", "id=\"charts\"", "id=\"cases\"", "id=\"notes\"", "id=\"environment\""];
        let places: Vec<usize> = order.iter().map(|part| seen.find(part).unwrap_or_else(|| panic!("{part}"))).collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert_eq!(seen.matches("<svg ").count(), comparison_charts(&comparison(2, 2)).unwrap().len());
        let changes = &seen[places[1]..places[2]];
        assert_eq!(changes.matches("<tr data-case=").count(), 18, "16 regressions and 2 that are better");
    }

    #[test]
    fn the_page_asks_for_nothing_and_runs_no_foreign_word() {
        let mut own = doubtful();
        let attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
        own.runs[1].folder = attack.into();
        own.runs[1].report.manifest.machine.host = attack.into();
        own.notes.push(attack.into());
        for contrast in &mut own.contrasts {
            contrast.case = attack.into();
        }
        let seen = page(&own);
        assert!(seen.contains("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"));
        for foreign in [" src=", "<link", "@import", "url(", "fetch(", "<script>alert", "<img"] {
            assert!(!seen.replace(" src=x", "").contains(foreign), "{foreign}");
        }
        assert!(seen.contains("badge invalid") && seen.contains("&lt;script&gt;alert(1)"));
    }

    #[test]
    fn the_same_comparison_gives_the_same_bytes_and_many_cases_are_folded() {
        let many = page(&comparison(12, 3));
        assert_eq!(many, page(&comparison(12, 3)));
        assert_eq!((many.matches("<details>").count(), many.matches("<details open>").count()), (12, 0));
        assert_eq!(page(&comparison(2, 2)).matches("<details open>").count(), 2);
    }
}
