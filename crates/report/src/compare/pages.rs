//! compare.md and compare.html, which shares its style and scripts with report.html.

use crate::compare::{labels, notes, summary, tables};
use crate::format::{code, counted, prose};
use crate::html::lead::Tile;
use crate::html::matrix::Matrix;
use crate::html::{BASE_SCRIPT, STYLE, render};
use crate::table::{case_anchor, prose_html};
use crate::{Chart, ReportError, markdown as report_markdown};
use llmscen_core::compare::{Comparison, Contrast, Finding};
use serde::Serialize;

/// With more cases, their tables are folded.
const MAX_UNFOLDED_CASES: usize = 4;

const TEMPLATE: &str = include_str!("page.html");

/// compare.md with links to the charts as `charts/<name>.png`.
pub fn markdown(comparison: &Comparison, charts: &[Chart]) -> String {
    let name = comparison
        .runs
        .first()
        .map(|run| prose(&run.report.manifest.name))
        .unwrap_or_default();
    let mut text = format!(
        "# {}: {name}\n\n{}.\n\n{}\n\n",
        labels::verdict(comparison),
        labels::counts(comparison),
        tables::runs(comparison).markdown()
    );
    text += &match tables::contrasts(comparison, &significant(comparison), true).markdown() {
        changes if changes.is_empty() => "No significant difference.\n\n".to_owned(),
        changes => format!("## Significant changes\n\n{changes}\n\n"),
    };
    let notes = notes::notes(comparison);
    if !notes.is_empty() {
        text += "## Notes\n\n";
        notes
            .iter()
            .for_each(|note| text += &format!("- {}\n", prose(note)));
        text += "\n";
    }
    if !charts.is_empty() {
        text += "## Charts\n\n";
        charts.iter().for_each(|chart| {
            text += &format!("![{}](charts/{}.png)\n\n", prose(&chart.title), chart.name)
        });
    }
    text += "## All metrics by case\n\n";
    let ids = compared_cases(comparison);
    let folded = ids.len() > MAX_UNFOLDED_CASES;
    ids.into_iter()
        .for_each(|id| text += &case_markdown(comparison, id, folded));
    let signals = tables::signals(comparison).markdown();
    if !signals.is_empty() {
        text += "## Server and GPU\n\nMeans over the measured windows, without a test: telemetry \
        samples are correlated.\n\n";
        text += &format!("{signals}\n\n");
    }
    text + &format!("## Method\n\n{}\n", explanation(comparison))
}

fn case_markdown(comparison: &Comparison, id: &str, folded: bool) -> String {
    let scope = describe_case_by_run(comparison, id);
    let contrasts = contrasts_of_case(comparison, id);
    let regressions = contrasts
        .iter()
        .filter(|contrast| contrast.finding == Finding::Regression)
        .count();
    let flag = if regressions > 0 {
        format!(": {}", counted(regressions, "regression"))
    } else {
        String::new()
    };
    let table = tables::contrasts(comparison, &contrasts, false).markdown();
    let html = id
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    match folded {
        true => format!(
            "<details><summary><code>{html}</code>{flag}</summary>\n\n{scope}\n\n{table}\n\n</details>\n\n"
        ),
        false => format!("### {}{flag}\n\n{scope}\n\n{table}\n\n", code(id)),
    }
}

fn contrasts_of_case<'a>(comparison: &'a Comparison, id: &str) -> Vec<&'a Contrast> {
    comparison
        .contrasts
        .iter()
        .filter(|contrast| contrast.case == id)
        .collect()
}

/// The significant changes: regressions first, then by size.
fn significant(comparison: &Comparison) -> Vec<&Contrast> {
    let is_significant =
        |contrast: &&Contrast| !matches!(contrast.finding, Finding::Noise | Finding::Unknown);
    let mut changes: Vec<&Contrast> = comparison.contrasts.iter().filter(is_significant).collect();
    let is_regression = |contrast: &Contrast| contrast.finding == Finding::Regression;
    let size = |contrast: &Contrast| contrast.worsening().unwrap_or(0.0).abs();
    changes.sort_by(|a, b| {
        is_regression(b)
            .cmp(&is_regression(a))
            .then(size(b).total_cmp(&size(a)))
    });
    changes
}

/// The ids of the compared cases, in their order.
pub(super) fn compared_cases(comparison: &Comparison) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for contrast in &comparison.contrasts {
        if !ids.contains(&contrast.case.as_str()) {
            ids.push(&contrast.case);
        }
    }
    ids
}

/// What a case measured in each run: `A: 300 of 300 ok, 12.4 req/s · B: …`.
fn describe_case_by_run(comparison: &Comparison, id: &str) -> String {
    let descriptions = comparison.runs.iter().filter_map(|run| {
        let case = run.report.cases.iter().find(|case| case.id == id)?;
        Some(format!("{}: {}", run.label, notes::describe_case(case)))
    });
    descriptions.collect::<Vec<_>>().join(" · ")
}

/// The tests, and how to read the columns.
fn explanation(comparison: &Comparison) -> String {
    format!(
        "↓ lower is better, ↑ higher is better. {}. Effect sizes: Cliff's δ of values of requests \
         or gaps (negligible below 0.147, small below 0.33, medium below 0.474: Romano and \
         others, 2006) and Cohen's h of shares (0.2, 0.5, 0.8: Cohen, 1988). They are positive if \
         the candidate has the greater values. A change of a share is in percentage points (pp).",
        labels::rule(comparison)
    )
}

#[derive(Serialize)]
struct Page {
    page_class: &'static str,
    subject: Vec<String>,
    tiles: Vec<Tile>,
    matrix: Matrix,
    name: String,
    verdict: &'static str,
    tone: &'static str,
    counts: String,
    changes: String,
    charts: Vec<ChartSvg>,
    cases: Vec<Section>,
    unfolded: bool,
    signals: String,
    notes: Vec<String>,
    explanation: String,
    runs: String,
    environments: Vec<Environment>,
    styles: [&'static str; 1],
    script: &'static str,
}

#[derive(Serialize)]
struct ChartSvg {
    title: String,
    svg: String,
}

#[derive(Serialize)]
struct Section {
    anchor: String,
    id: String,
    scope: String,
    regressions: usize,
    table: String,
}

#[derive(Serialize)]
struct Environment {
    run: String,
    table: String,
}

/// compare.html with the charts, which must have been drawn as SVG.
///
/// # Errors
/// [`ReportError::Template`] if the template cannot be rendered.
pub fn html(comparison: &Comparison, charts: &[Chart]) -> Result<String, ReportError> {
    let runs = || comparison.runs.iter();
    let section = |(index, id): (usize, &str)| {
        let contrasts = contrasts_of_case(comparison, id);
        Section {
            anchor: case_anchor(index),
            id: id.to_owned(),
            scope: describe_case_by_run(comparison, id),
            regressions: contrasts
                .iter()
                .filter(|contrast| contrast.finding == Finding::Regression)
                .count(),
            table: tables::contrasts(comparison, &contrasts, false).html("Metrics of the case"),
        }
    };
    let cases: Vec<Section> = compared_cases(comparison)
        .into_iter()
        .enumerate()
        .map(section)
        .collect();
    let environments = runs().map(|run| Environment {
        run: format!("{}: {}", run.label, run.folder),
        table: report_markdown::environment(&run.report).html("Environment of the run"),
    });
    let page = Page {
        page_class: "report",
        subject: summary::subject(comparison),
        tiles: summary::tiles(comparison),
        matrix: summary::matrix(comparison),
        name: runs()
            .next()
            .map(|run| run.report.manifest.name.clone())
            .unwrap_or_default(),
        verdict: labels::verdict(comparison),
        tone: tone(comparison),
        counts: labels::counts(comparison) + ".",
        changes: tables::contrasts(comparison, &significant(comparison), true)
            .html("Significant changes"),
        charts: charts
            .iter()
            .map(|chart| ChartSvg {
                title: chart.title.clone(),
                svg: chart.svg.clone(),
            })
            .collect(),
        unfolded: cases.len() <= MAX_UNFOLDED_CASES,
        cases,
        signals: tables::signals(comparison).html("Server and GPU"),
        notes: notes::notes(comparison)
            .iter()
            .map(|note| prose_html(note))
            .collect(),
        explanation: explanation(comparison),
        runs: tables::runs(comparison).html("Runs"),
        environments: environments.collect(),
        styles: [STYLE],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::comparison_charts;
    use crate::fixture::comparison::{comparison, doubtful};

    fn page(comparison: &Comparison) -> String {
        html(comparison, &comparison_charts(comparison).unwrap()).unwrap()
    }

    #[test]
    fn the_verdict_is_followed_by_the_changes() {
        let html = page(&comparison(2, 2));
        assert!(
            html.contains("<span class=\"badge fail\">REGRESSION</span>"),
            "{}",
            &html[..400]
        );
        let order = [
            "badge fail",
            "class=\"tiles\"",
            "id=\"matrix\"",
            "id=\"charts\"",
            "id=\"changes\"",
            "id=\"cases\"",
            "id=\"notes\"",
            "id=\"environment\"",
        ];
        let positions: Vec<usize> = order
            .iter()
            .map(|part| html.find(part).unwrap_or_else(|| panic!("{part}")))
            .collect();
        assert!(
            positions.windows(2).all(|pair| pair[0] < pair[1]),
            "{positions:?}"
        );
        assert_eq!(
            html.matches("<svg ").count(),
            comparison_charts(&comparison(2, 2)).unwrap().len()
        );
        let changes = &html[positions[4]..positions[5]];
        assert_eq!(
            changes.matches("<tr data-case=").count(),
            18,
            "16 regressions and 2 improvements"
        );
    }

    #[test]
    fn the_page_loads_nothing_and_text_never_becomes_script() {
        let mut comparison = doubtful();
        let attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
        comparison.runs[1].folder = attack.into();
        comparison.runs[1].report.manifest.machine.host = attack.into();
        comparison.notes.push(attack.into());
        for contrast in &mut comparison.contrasts {
            contrast.case = attack.into();
        }
        let html = page(&comparison);
        assert!(html.contains(
            "default-src 'none'; style-src 'unsafe-inline'; script-src \
        'unsafe-inline'; img-src data:"
        ));
        for foreign in [
            " src=",
            "<link",
            "@import",
            "url(",
            "fetch(",
            "<script>alert",
            "<img",
        ] {
            assert!(!html.replace(" src=x", "").contains(foreign), "{foreign}");
        }
        assert!(html.contains("badge invalid") && html.contains("&lt;script&gt;alert(1)"));
    }

    #[test]
    fn the_same_comparison_gives_the_same_bytes_and_many_cases_are_folded() {
        let many = page(&comparison(12, 3));
        assert_eq!(many, page(&comparison(12, 3)));
        assert_eq!(
            (
                many.matches("<details id=").count(),
                many.matches(" open><summary>").count()
            ),
            (12, 0)
        );
        assert_eq!(
            page(&comparison(2, 2)).matches(" open><summary>").count(),
            2
        );
    }
}
