//! What was sampled of server and GPU, side by side: means without a test, since samples follow each other.

use crate::escape::code;
use crate::format::optional;
use crate::html::cells::{Cell, Row, Table};
use llmscen_core::compare::Comparison;
use llmscen_core::report::CaseReport;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use serde_json::{Map, Value, json};

/// The means of a signal in a case, run by run; None where a run has none.
struct Line<'a> {
    case: &'a str,
    signal: Signal,
    means: Vec<Option<f64>>,
}

/// Those that the base has, and at least one other run.
fn lines(comparison: &Comparison) -> Vec<Line<'_>> {
    let Some((base, others)) = comparison.runs.split_first() else { return Vec::new() };
    let mean = |case: &CaseReport, signal| case.telemetry.signals.get(&signal).and_then(|own| own.mean);
    let of = |case: &'_ CaseReport, signal| {
        let same = |run: &llmscen_core::compare::Run| mean(run.report.cases.iter().find(|own| own.id == case.id)?, signal);
        let means: Vec<Option<f64>> = [mean(case, signal)].into_iter().chain(others.iter().map(same)).collect();
        (means.first()?.is_some() && means.iter().flatten().count() > 1).then_some(means)
    };
    let told = || Signal::ALL.iter().copied().filter(|signal| ["server", "gpu"].contains(&signal.scope()));
    let cases = base.report.cases.iter().flat_map(|case| told().map(move |signal| (case, signal)));
    cases.filter_map(|(case, signal)| Some(Line { case: &case.id, signal, means: of(case, signal)? })).collect()
}

/// For programs; shares are 0..=1.
pub(super) fn json(comparison: &Comparison) -> Value {
    let line = |own: Line<'_>| {
        let labels = comparison.runs.iter().map(|run| run.label.clone());
        let means: Map<String, Value> = labels.zip(own.means).map(|(label, mean)| (label, json!(mean))).collect();
        let unit = if own.signal.unit() == Unit::Share { "share" } else { own.signal.unit().symbol() };
        json!({ "case": own.case, "signal": own.signal.name(), "unit": unit, "means": means })
    };
    lines(comparison).into_iter().map(line).collect()
}

/// The means for a page.
pub(super) fn table(comparison: &Comparison) -> Table {
    let labels = comparison.runs.iter().map(|run| format!(">{}", run.label));
    let heads: Vec<String> = ["Case".to_owned(), "Signal".to_owned()].into_iter().chain(labels).collect();
    let row = |own: Line<'_>| {
        let means = own.means.iter().map(|mean| Cell::figure(optional(*mean, own.signal.unit()), *mean));
        Row { cells: [Cell::code(own.case), Cell::code(own.signal.name())].into_iter().chain(means).collect(), ..Row::default() }
    };
    Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>(), lines(comparison).into_iter().map(row).collect())
}

/// A section; nothing where there are none.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let lines = lines(comparison);
    if lines.is_empty() {
        return String::new();
    }
    let labels: String = comparison.runs.iter().map(|run| format!("| {} ", run.label)).collect();
    let mut text =
        "## Server and GPU\n\nMeans over the measured windows, side by side and without a test: samples of a signal follow each \
                    other.\n\n"
            .to_owned();
    text += &format!("| case | signal {labels}|\n|---|---{}|\n", "|--:".repeat(comparison.runs.len()));
    for own in lines {
        let means: String = own.means.iter().map(|mean| format!("| {} ", optional(*mean, own.signal.unit()))).collect();
        text += &format!("| {} | {} {means}|\n", code(own.case), code(own.signal.name()));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::fixture::comparison;
    use llmscen_core::telemetry::SignalStat;

    #[test]
    fn signals_that_both_have_stand_side_by_side() {
        let mut both = comparison(1, 2);
        assert_eq!((markdown(&both).as_str(), json(&both)), ("", json!([])));
        let stat = |mean| SignalStat { n: 1, mean: Some(mean), ..SignalStat::default() };
        let id = both.runs[0].report.cases[0].id.clone();
        for (run, mean) in [(0, 0.25), (1, 0.5)] {
            let case = both.runs[run].report.cases.iter_mut().find(|case| case.id == id).unwrap();
            case.telemetry.signals.insert(Signal::ServerKvCacheUsage, stat(mean));
            case.telemetry.signals.insert(Signal::HostCpu, stat(mean));
        }
        both.runs[0].report.cases[0].telemetry.signals.insert(Signal::GpuPower, stat(300.0));
        let told = json(&both);
        let [line] = told.as_array().unwrap().as_slice() else { panic!("{told}") };
        assert_eq!(
            (&line["case"], &line["signal"], &line["unit"]),
            (&json!(id), &json!("server.kv_cache_usage"), &json!("share"))
        );
        assert_eq!((&line["means"]["A"], &line["means"]["B"]), (&json!(0.25), &json!(0.5)));
        assert!(markdown(&both).contains(&format!("| `{id}` | `server.kv_cache_usage` | 25% | 50% |")), "{}", markdown(&both));
    }
}
