//! compare.md.

use crate::Chart;
use crate::compare::{labels, notes::notes, notes::scope, signals};
use crate::escape::{code, prose};
use crate::format::percent;
use llmscen_core::compare::{Comparison, Contrast, Finding};

/// Cases whose tables stand open.
pub(super) const OPEN: usize = 4;

/// compare.md, with links to these charts as `charts/<name>.png`.
pub fn markdown(comparison: &Comparison, charts: &[Chart]) -> String {
    let name = comparison.runs.first().map(|run| prose(&run.report.manifest.name)).unwrap_or_default();
    let mut text =
        format!("# {}: {name}\n\n{}.\n\n{}", labels::verdict(comparison), labels::counts(comparison), runs(comparison));
    text += &changes(comparison);
    let told = notes(comparison);
    if !told.is_empty() {
        text += "## To be known\n\n";
        told.iter().for_each(|note| text += &format!("- {}\n", prose(note)));
        text += "\n";
    }
    if !charts.is_empty() {
        text += "## Charts\n\n";
        charts.iter().for_each(|chart| text += &format!("![{}](charts/{}.png)\n\n", prose(&chart.title), chart.name));
    }
    text += &cases(comparison);
    text += &signals::markdown(comparison);
    text + &how(comparison)
}

fn runs(comparison: &Comparison) -> String {
    let mut text = "| run | folder | started | verdict | version | machine |\n|---|---|---|---|---|---|\n".to_owned();
    for run in &comparison.runs {
        let manifest = &run.report.manifest;
        text += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            run.label,
            code(&run.folder),
            prose(&manifest.started_at),
            labels::of_run(run),
            prose(&manifest.tool_version),
            prose(&manifest.machine.host)
        );
    }
    text + "\n"
}

/// What is more than noise: regressions first, the greatest change first.
pub(super) fn significant(comparison: &Comparison) -> Vec<&Contrast> {
    let sure = |own: &&Contrast| !matches!(own.finding, Finding::Noise | Finding::Unknown);
    let mut own: Vec<&Contrast> = comparison.contrasts.iter().filter(sure).collect();
    let size = |own: &Contrast| (own.finding != Finding::Regression, -own.worsening().unwrap_or(0.0).abs());
    own.sort_by(|a, b| size(a).0.cmp(&size(b).0).then(size(a).1.total_cmp(&size(b).1)));
    own
}

fn changes(comparison: &Comparison) -> String {
    let own = significant(comparison);
    if own.is_empty() {
        return "Nothing is more than noise.\n\n".to_owned();
    }
    let mut text = "## What is more than noise\n\n".to_owned() + &head(comparison, true);
    own.iter().for_each(|own| text += &row(comparison, own, true));
    text + "\n"
}

/// The cases that were compared, in their order.
pub(super) fn compared(comparison: &Comparison) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for own in &comparison.contrasts {
        if !ids.contains(&own.case.as_str()) {
            ids.push(&own.case);
        }
    }
    ids
}

/// What a case measured in each run: `A: 300 of 300 ok, 12.4 req/s · B: …`.
pub(super) fn scopes(comparison: &Comparison, id: &str) -> String {
    let of = comparison.runs.iter().filter_map(|run| {
        let case = run.report.cases.iter().find(|case| case.id == id)?;
        Some(format!("{}: {}", run.label, scope(case)))
    });
    of.collect::<Vec<_>>().join(" · ")
}

fn cases(comparison: &Comparison) -> String {
    let mut text = "## Every case\n\n".to_owned();
    let ids = compared(comparison);
    let folded = ids.len() > OPEN;
    for id in ids {
        let of = scopes(comparison, id);
        let own: Vec<&Contrast> = comparison.contrasts.iter().filter(|own| own.case == id).collect();
        let regressions = own.iter().filter(|own| own.finding == Finding::Regression).count();
        let flag = if regressions > 0 { format!(" — regressions: {regressions}") } else { String::new() };
        let html = id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        text += &match folded {
            true => format!("<details><summary><code>{html}</code>{flag}</summary>\n\n{of}\n\n"),
            false => format!("### {}{flag}\n\n{of}\n\n", code(id)),
        };
        text += &head(comparison, false);
        own.iter().for_each(|own| text += &row(comparison, own, false));
        text += if folded { "\n</details>\n\n" } else { "\n" };
    }
    text
}

fn head(comparison: &Comparison, with_case: bool) -> String {
    let case = if with_case { "| case " } else { "" };
    let run = if comparison.sides.len() > 2 { "| run " } else { "" };
    let level = percent(comparison.confidence);
    let columns = 8 + usize::from(with_case) + usize::from(comparison.sides.len() > 2);
    let left = 1 + columns - 8;
    let rule: String = (0..columns).map(|at| if at < left || at >= columns - 2 { "|---" } else { "|--:" }).collect();
    format!("{case}| metric {run}| base | run's | change | {level} interval | p adjusted | effect | finding |\n{rule}|\n")
}

fn row(comparison: &Comparison, own: &Contrast, with_case: bool) -> String {
    let case = if with_case { format!("| {} ", code(&own.case)) } else { String::new() };
    let run = if comparison.sides.len() > 2 { format!("| {} ", labels::label(comparison, own.run)) } else { String::new() };
    let [base, other] = labels::values(own);
    let finding = if own.finding == Finding::Regression { "**regression**" } else { own.finding.name() };
    format!(
        "{case}| {} {run}| {base} | {other} | {} | {} | {} | {} | {finding} |\n",
        labels::measure(own),
        labels::change(own),
        labels::interval(own),
        labels::probability(own.p_adjusted).replace('<', "&lt;"),
        labels::effect(own.effect)
    )
}

fn how(comparison: &Comparison) -> String {
    format!("## How to read it\n\n{}\n", explanation(comparison))
}

/// By what it was decided, and how its figures read.
pub(super) fn explanation(comparison: &Comparison) -> String {
    format!(
        "↓ less is better, ↑ more is better. {}. Effect sizes: Cliff's δ of the requests' or gaps' values (negligible under 0.147, \
         small under 0.33, medium under 0.474: Romano and others, 2006) and Cohen's h of shares (0.2, 0.5, 0.8: Cohen, 1988); positive \
         where the base has less. A change of a share is in percentage points (pp).",
        labels::rule(comparison)
    )
}
