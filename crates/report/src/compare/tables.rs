//! The tables of a comparison: runs, contrasts, and telemetry of server and GPU.

use crate::compare::labels;
use crate::format::{counted, optional, percent};
use crate::table::{Cell, Column, Emphasis, Row, Screen, Table};
use llmscen_core::compare::{Comparison, Contrast, Finding, Run, Span};
use llmscen_core::report::CaseReport;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};

/// The table of the runs.
pub(super) fn runs(comparison: &Comparison) -> Table {
    let columns = vec![
        Column::text().documents("Run").terminal("RUN", 0),
        Column::text()
            .documents("Folder")
            .terminal("FOLDER", 0)
            .at_least(24),
        Column::text().documents("Started").terminal("STARTED", 2),
        Column::text().documents("Verdict").terminal("VERDICT", 0),
        Column::text().terminal("SCENARIO", 1),
        Column::text().documents("Version"),
        Column::text().documents("Host"),
    ];
    let row = |run: &Run| {
        let manifest = &run.report.manifest;
        Row::new(vec![
            Cell::prose(&run.label),
            Cell::code(&run.folder),
            Cell::prose(&manifest.started_at),
            Cell::prose(labels::run_verdict(run)).emphasized(run_emphasis(run)),
            Cell::prose(&manifest.name),
            Cell::prose(&manifest.tool_version),
            Cell::prose(&manifest.machine.host),
        ])
    };
    Table::new(columns, comparison.runs.iter().map(row).collect())
}

fn run_emphasis(run: &Run) -> Emphasis {
    match run.report.verdict {
        _ if run.is_invalid() => Emphasis::Invalid,
        verdict => verdict.into(),
    }
}

/// The table of contrasts. `with_case`: whether Markdown and HTML show the case, which is otherwise above the table.
pub(super) fn contrasts(
    comparison: &Comparison,
    contrasts: &[&Contrast],
    with_case: bool,
) -> Table {
    // With two sides every row has the same run, so a narrow terminal drops the column.
    let has_several_runs = comparison.sides.len() > 2;
    let interval = format!("{} interval", percent(comparison.confidence));
    let case = Column::text().terminal("CASE", 0).key("case");
    let run = Column::text()
        .terminal("RUN", if has_several_runs { 0 } else { 3 })
        .key("run");
    let columns = vec![
        Column::text().terminal("FINDING", 0),
        if with_case {
            case.documents("Case")
        } else {
            case
        },
        Column::text()
            .documents("Metric")
            .terminal("METRIC", 0)
            .at_least(14),
        Column::text().key("metric"),
        Column::text().key("unit"),
        Column::text().key("better"),
        if has_several_runs {
            run.documents("Run")
        } else {
            run
        },
        Column::number()
            .documents("Base")
            .terminal("BASE", 0)
            .key("base"),
        Column::number().key("base_low"),
        Column::number().key("base_high"),
        Column::number().key("base_n"),
        Column::number()
            .documents("Candidate")
            .terminal("CANDIDATE", 0)
            .key("value"),
        Column::number().key("low"),
        Column::number().key("high"),
        Column::number().key("n"),
        Column::number()
            .documents("Change")
            .terminal("CHANGE", 0)
            .key("ratio"),
        Column::number().key("ratio_low"),
        Column::number().key("ratio_high"),
        Column::number().key("difference"),
        Column::number().key("difference_low"),
        Column::number().key("difference_high"),
        Column::number()
            .documents(&interval)
            .terminal("INTERVAL", 1),
        Column::number().key("p"),
        Column::number()
            .documents("p adjusted")
            .terminal("P ADJ.", 4)
            .key("p_adjusted"),
        Column::text()
            .documents("Effect")
            .terminal("EFFECT", 2)
            .key("effect"),
        Column::text().key("magnitude"),
        Column::text().documents("Finding").key("finding"),
    ];
    Table::new(
        columns,
        contrasts
            .iter()
            .map(|contrast| contrast_row(comparison, contrast))
            .collect(),
    )
    .sortable()
}

fn contrast_row(comparison: &Comparison, contrast: &Contrast) -> Row {
    let emphasis = match contrast.finding {
        Finding::Regression => Emphasis::Fail,
        Finding::Within | Finding::Unknown => Emphasis::Inconclusive,
        Finding::Better => Emphasis::Pass,
        Finding::Noise => Emphasis::Muted,
    };
    let metric = contrast.measure.metric;
    let [base, other] = labels::values(contrast);
    let bound =
        |bounds: Option<(f64, f64)>, end: fn((f64, f64)) -> f64| Cell::number(bounds.map(end));
    let span = |span: Option<Span>, value: fn(Span) -> f64| Cell::number(span.map(value));
    let finding = Cell::prose(contrast.finding.name()).emphasized(emphasis);
    let p_adjusted = labels::probability(contrast.p_adjusted);
    let cells = vec![
        finding.clone(),
        Cell::code(&contrast.case),
        Cell::code(&labels::measure(contrast)),
        Cell::raw(json!(contrast.measure.to_string())),
        Cell::raw(json!(metric.unit().symbol().replace('%', "share"))),
        Cell::raw(json!(if metric.higher_is_better() {
            "higher"
        } else {
            "lower"
        })),
        Cell::prose(labels::label(comparison, contrast.run)),
        Cell::figure(base, contrast.base.value).with_stat("", "base"),
        bound(contrast.base.bounds, |bounds| bounds.0),
        bound(contrast.base.bounds, |bounds| bounds.1),
        Cell::count(contrast.base.n),
        Cell::figure(other, contrast.other.value).with_stat("", "other"),
        bound(contrast.other.bounds, |bounds| bounds.0),
        bound(contrast.other.bounds, |bounds| bounds.1),
        Cell::count(contrast.other.n),
        Cell::figure(
            labels::change(contrast),
            contrast.ratio.map(|span| span.value),
        )
        .with_stat("", "ratio")
        .emphasized(emphasis),
        span(contrast.ratio, |span| span.low),
        span(contrast.ratio, |span| span.high),
        span(contrast.difference, |span| span.value),
        span(contrast.difference, |span| span.low),
        span(contrast.difference, |span| span.high),
        Cell::figure(labels::interval(contrast), None::<f64>),
        Cell::number(contrast.p),
        Cell::figure(p_adjusted.clone(), contrast.p_adjusted)
            .with_stat("", "p_adjusted")
            .in_markdown(p_adjusted.replace('<', "&lt;")),
        Cell::prose(&labels::effect(contrast.effect))
            .with_value(contrast.effect.map(|effect| effect.value())),
        Cell::raw(json!(
            contrast.effect.map(|effect| effect.magnitude().name())
        )),
        match contrast.finding {
            Finding::Regression => finding.in_markdown("**regression**".to_owned()),
            _ => finding,
        }
        .with_value(contrast.finding.name().to_lowercase().as_str()),
    ];
    Row::new(cells)
        .case(&contrast.case)
        .metric(&contrast.measure.to_string())
}

/// With more contrasts, a terminal shows only those with a change.
const MAX_ROWS: usize = 24;

/// The runs, the verdict and the rule, and the measures of every case. `width`: of the terminal in characters; None:
/// not a terminal.
pub fn table(comparison: &Comparison, width: Option<usize>, color: bool) -> String {
    let screen = Screen { width, color };
    let verdict = labels::verdict(comparison);
    let emphasis = match verdict {
        "NO REGRESSION" => Emphasis::Pass,
        "INVALID" | "INCONCLUSIVE" => Emphasis::Inconclusive,
        _ => Emphasis::Fail,
    };
    let verdict = if color {
        emphasis.paint(verdict)
    } else {
        verdict.to_owned()
    };
    let has_change =
        |contrast: &&Contrast| !matches!(contrast.finding, Finding::Noise | Finding::Unknown);
    let is_folded = width.is_some()
        && comparison.contrasts.len() > MAX_ROWS
        && comparison.contrasts.iter().any(|one| has_change(&one));
    let is_listed = |contrast: &&Contrast| !is_folded || has_change(contrast);
    let listed: Vec<&Contrast> = comparison.contrasts.iter().filter(is_listed).collect();
    let rows = match listed.as_slice() {
        [] => String::new(),
        listed => format!("\n{}", contrasts(comparison, listed, true).terminal(screen)),
    };
    let rest = match comparison.contrasts.len() - listed.len() {
        0 => String::new(),
        rest => format!(
            "\nNot listed: {} without a significant change, or without a test; `--format md` has all.\n",
            counted(rest, "row")
        ),
    };
    format!(
        "{}\n{verdict}: {}.\n{}.\n{rows}{rest}",
        runs(comparison).terminal(screen),
        labels::counts(comparison),
        labels::rule(comparison)
    )
}

/// One row per contrast; `delimiter` is a comma or a tab. Missing values are empty.
pub fn separated(comparison: &Comparison, delimiter: u8) -> String {
    let all: Vec<&Contrast> = comparison.contrasts.iter().collect();
    // Writing into memory cannot fail.
    contrasts(comparison, &all, true)
        .csv(delimiter)
        .unwrap_or_default()
}

/// The means of a signal in a case by run; None if a run has none.
struct SignalMeans<'a> {
    case: &'a str,
    signal: Signal,
    means: Vec<Option<f64>>,
}

/// The signals of server and GPU that the base and at least one other run have.
fn signal_means(comparison: &Comparison) -> Vec<SignalMeans<'_>> {
    let Some((base, others)) = comparison.runs.split_first() else {
        return Vec::new();
    };
    let mean = |case: &CaseReport, signal| {
        case.telemetry
            .signals
            .get(&signal)
            .and_then(|values| values.mean)
    };
    let means_by_run = |case: &'_ CaseReport, signal| {
        let other_mean = |run: &Run| {
            mean(
                run.report.cases.iter().find(|other| other.id == case.id)?,
                signal,
            )
        };
        let means: Vec<Option<f64>> = [mean(case, signal)]
            .into_iter()
            .chain(others.iter().map(other_mean))
            .collect();
        (means.first()?.is_some() && means.iter().flatten().count() > 1).then_some(means)
    };
    let compared = || {
        Signal::ALL
            .iter()
            .copied()
            .filter(|signal| ["server", "gpu"].contains(&signal.scope()))
    };
    let cases = base
        .report
        .cases
        .iter()
        .flat_map(|case| compared().map(move |signal| (case, signal)));
    cases
        .filter_map(|(case, signal)| {
            Some(SignalMeans {
                case: &case.id,
                signal,
                means: means_by_run(case, signal)?,
            })
        })
        .collect()
}

/// The means as JSON; shares are 0..=1.
pub(super) fn signals_json(comparison: &Comparison) -> Value {
    let object = |row: SignalMeans<'_>| {
        let labels = comparison.runs.iter().map(|run| run.label.clone());
        let means: Map<String, Value> = labels
            .zip(row.means)
            .map(|(label, mean)| (label, json!(mean)))
            .collect();
        let unit = if row.signal.unit() == Unit::Share {
            "share"
        } else {
            row.signal.unit().symbol()
        };
        json!({ "case": row.case, "signal": row.signal.name(), "unit": unit, "means": means })
    };
    signal_means(comparison).into_iter().map(object).collect()
}

/// The table of the means by run.
pub(super) fn signals(comparison: &Comparison) -> Table {
    let means = comparison
        .runs
        .iter()
        .map(|run| Column::number().documents(&run.label));
    let columns = ["Case", "Signal"]
        .map(|head| Column::text().documents(head))
        .into_iter()
        .chain(means)
        .collect();
    let row = |signal_means: SignalMeans<'_>| {
        let SignalMeans {
            case,
            signal,
            means,
        } = signal_means;
        let means = means
            .iter()
            .map(|mean| Cell::figure(optional(*mean, signal.unit()), *mean));
        Row::new(
            [Cell::code(case), Cell::code(signal.name())]
                .into_iter()
                .chain(means)
                .collect(),
        )
    };
    Table::new(
        columns,
        signal_means(comparison).into_iter().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::comparison::comparison;
    use llmscen_core::telemetry::SignalStat;

    #[test]
    fn signals_of_both_runs_are_compared() {
        let mut both = comparison(1, 2);
        assert_eq!(
            (signals(&both).rows.len(), signals_json(&both)),
            (0, json!([]))
        );
        let stat = |mean| SignalStat {
            n: 1,
            mean: Some(mean),
            ..SignalStat::default()
        };
        let id = both.runs[0].report.cases[0].id.clone();
        for (run, mean) in [(0, 0.25), (1, 0.5)] {
            let case = both.runs[run]
                .report
                .cases
                .iter_mut()
                .find(|case| case.id == id)
                .unwrap();
            case.telemetry
                .signals
                .insert(Signal::ServerKvCacheUsage, stat(mean));
            case.telemetry.signals.insert(Signal::HostCpu, stat(mean));
        }
        both.runs[0].report.cases[0]
            .telemetry
            .signals
            .insert(Signal::GpuPower, stat(300.0));
        let json = signals_json(&both);
        let [row] = json.as_array().unwrap().as_slice() else {
            panic!("{json}")
        };
        assert_eq!(
            (&row["case"], &row["signal"], &row["unit"]),
            (&json!(id), &json!("server.kv_cache_usage"), &json!("share"))
        );
        assert_eq!(
            (&row["means"]["A"], &row["means"]["B"]),
            (&json!(0.25), &json!(0.5))
        );
        assert!(
            signals(&both)
                .markdown()
                .contains(&format!("| `{id}` | `server.kv_cache_usage` | 25% | 50% |"))
        );
    }
}
