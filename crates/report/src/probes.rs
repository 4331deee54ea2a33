//! The tables and the JSON of a search.

use crate::ViewError;
use crate::escape::{code, prose};
use crate::format::{ABSENT, against, number, percent, title, unit_of};
use crate::json::slo;
use crate::search::{Outcome, axis, outcome, sentence, verdict};
use crate::sheet::Sheet;
use crate::table::{Cell, Column, Screen, Tint, render};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{Report, RunVerdict};
use llmscen_core::search::{ProbeReport, SearchReport};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One search on a page.
#[derive(Serialize)]
pub struct Told {
    sentence: String,
    probes: Sheet,
    pareto: Sheet,
}

/// Every search of a report.
pub fn told(report: &Report) -> Vec<Told> {
    let one = |search| Told { sentence: prose(&sentence(report, search)), probes: probes(search), pareto: pareto(search) };
    report.searches.iter().map(one).collect()
}

/// The probes of every search, a table each.
pub fn sheets(report: &Report) -> Vec<Sheet> {
    report.searches.iter().map(probes).collect()
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), number)
}

/// Every probe in order, and each limit's value there.
fn probes(search: &SearchReport) -> Sheet {
    let checks = search.probes.first().map(|probe| probe.verdicts.as_slice()).unwrap_or_default();
    let limits: Vec<String> = checks.iter().map(|verdict| format!(">{}", code(&title(&verdict.check)))).collect();
    let (name, unit) = axis(&search.spec);
    let load = format!(">{name}");
    let heads = [">#", &load, "For", ">n", "Verdict", ">Probability that all holds"].into_iter();
    let heads: Vec<&str> = heads.chain(limits.iter().map(String::as_str)).collect();
    let row = |(index, probe): (usize, &ProbeReport)| {
        let holds = probe.holds.map_or_else(|| ABSENT.to_owned(), likely);
        let load = format!("{}{unit}", probe.load);
        let first = [(index + 1).to_string(), load, probe.purpose.name().to_owned(), probe.requests.to_string()];
        let cells = first.into_iter().chain([verdict(probe), holds]);
        cells.chain(probe.verdicts.iter().map(observed)).collect()
    };
    Sheet::new(&heads, search.probes.iter().enumerate().map(row).collect())
}

fn observed(verdict: &Verdict) -> String {
    let mark = if verdict.ruling == Ruling::Fail { " ❌" } else { "" };
    format!("{}{mark}", against(verdict.observed, verdict.check.limit, unit_of(verdict)))
}

const COLUMNS: [Column; 7] = [
    Column::numbers("#", 3),
    Column::numbers("LOAD", 0),
    Column::words("FOR", 4),
    Column::numbers("N", 1),
    Column::words("PROBE", 0),
    Column::numbers("P(HOLDS)", 2),
    Column::words("LIMITS", 0),
];

/// Every probe of every search, one a line; before those of each search what it found, where the verdict's line does not say so
/// of it alone. `width`: columns of the terminal, None where there is none.
pub fn probe_table(report: &Report, width: Option<usize>, color: bool) -> String {
    let alone = report.searches.len() == 1 && report.verdict != RunVerdict::Error;
    let one = |search: &SearchReport| {
        let found = if alone { String::new() } else { sentence(report, search) + "\n" };
        let unit = axis(&search.spec).1;
        let rows = search.probes.iter().enumerate().map(|(index, probe)| line(index, probe, unit));
        found + &render(&COLUMNS, &rows.collect::<Vec<_>>(), Screen { width, color })
    };
    report.searches.iter().map(one).collect()
}

fn line(index: usize, probe: &ProbeReport, unit: &str) -> Vec<Cell> {
    let tint = match outcome(probe) {
        Outcome::Held => Tint::Green,
        Outcome::Failed => Tint::Red,
        Outcome::Open | Outcome::Invalid => Tint::Yellow,
    };
    let seen = |own: &Verdict| format!("{}: {}", title(&own.check), against(own.observed, own.check.limit, unit_of(own)));
    let holds = probe.holds.map_or_else(|| ABSENT.to_owned(), likely);
    let plain = |text: String| (text, Tint::None);
    vec![
        plain((index + 1).to_string()),
        plain(format!("{}{unit}", probe.load)),
        plain(probe.purpose.name().to_owned()),
        plain(probe.requests.to_string()),
        (verdict(probe), tint),
        plain(holds),
        plain(probe.verdicts.iter().map(seen).collect::<Vec<_>>().join("; ")),
    ]
}

/// Speed of one user against that of all, fastest for the user first; what another probe dominates is marked.
fn pareto(search: &SearchReport) -> Sheet {
    let (name, unit) = axis(&search.spec);
    let load = format!(">{name}");
    let mut known: Vec<&ProbeReport> =
        search.probes.iter().filter(|probe| probe.per_user_tps.is_some() && probe.total_tps.is_some()).collect();
    known.sort_by(|a, b| b.per_user_tps.unwrap_or_default().total_cmp(&a.per_user_tps.unwrap_or_default()));
    let row = |probe: &&ProbeReport| {
        let note = if probe.dominated { "dominated" } else { "" };
        let speeds = [probe.per_user_tps, probe.total_tps, probe.goodput].map(figure);
        [format!("{}{unit}", probe.load)].into_iter().chain(speeds).chain([note.to_owned()]).collect()
    };
    let heads = [load.as_str(), ">Decode tok/s per user", ">Output tok/s in all", ">Goodput, req/s", "Note"];
    Sheet::new(&heads, known.iter().map(row).collect())
}

/// The value of `search` in results.json: null where there was none.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn json(report: &Report) -> Result<Value, ViewError> {
    if report.searches.is_empty() {
        return Ok(Value::Null);
    }
    report.searches.iter().map(search).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn search(search: &SearchReport) -> Result<Value, ViewError> {
    let (spec, finding) = (&search.spec, &search.finding);
    let labels = search.labels.0.iter().map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)));
    Ok(json!({
        "vary": spec.vary,
        "labels": labels.collect::<Result<Map<String, Value>, ViewError>>()?,
        "goal": spec.goal,
        "range": [spec.low, spec.high],
        "precision": spec.precision,
        "answer": finding.answer,
        "extent": finding.extent,
        "interval": { "low": finding.interval.0, "high": finding.interval.1, "mass": finding.mass },
        "settled": finding.settled,
        "confirmed": finding.confirmed,
        "monotone": finding.monotone(),
        "contrary": finding.contrary.map(|(fails, holds)| json!({ "fails": fails, "holds": holds })),
        "requests": search.probes.iter().map(|probe| probe.requests).sum::<u64>(),
        "probes": search.probes.iter().map(probe).collect::<Vec<_>>(),
    }))
}

fn probe(probe: &ProbeReport) -> Value {
    json!({
        "case": probe.case,
        "round": probe.round,
        "load": probe.load,
        "purpose": probe.purpose,
        "holds": probe.holds,
        "n": probe.requests,
        "stopped_early": probe.hopeless,
        "per_user_tps": probe.per_user_tps,
        "total_tps": probe.total_tps,
        "goodput": probe.goodput,
        "dominated": probe.dominated,
        "slo": probe.verdicts.iter().map(slo).collect::<Vec<_>>(),
    })
}

/// A probability; nobody needs the digits of what is all but certain.
pub(super) fn likely(chance: f64) -> String {
    match chance {
        tiny if tiny < 0.001 => "<0.1%".to_owned(),
        sure if sure > 0.999 => ">99.9%".to_owned(),
        other => percent(other),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::fixture::{report_of, sweep};
    use crate::search::answer;
    use llmscen_core::labels::Labels;
    use llmscen_core::search::{Extent, Finding, Goal, Purpose, SearchSpec};
    use llmscen_core::units::Nanos;

    /// A search that found 16 users: `ttft.p99 < 500ms` at 8 (half of it), twice at 16, and at 32 (twice as much).
    pub fn searched() -> Report {
        let one = sweep(1).cases[0].verdicts[0].clone();
        let probe = |(load, observed, purpose): (f64, f64, Purpose)| {
            let ruling = if observed > 500.0 { Ruling::Fail } else { Ruling::Pass };
            ProbeReport {
                case: format!("concurrency={load}"),
                round: 0,
                load,
                purpose,
                holds: Some(if observed > 500.0 { 0.0 } else { 0.99 }),
                requests: 100,
                hopeless: observed > 500.0,
                verdicts: vec![Verdict { ruling, observed: Some(observed), ..one.clone() }],
                per_user_tps: Some(1000.0 / load),
                total_tps: Some(if load > 16.0 { 500.0 } else { 900.0 }),
                goodput: None,
                dominated: load > 16.0,
            }
        };
        use Purpose::{Bracket, Confirm, Narrow};
        let probes = [(8.0, 250.0, Bracket), (32.0, 1000.0, Bracket), (16.0, 350.0, Narrow), (16.0, 400.0, Confirm)];
        let (vary, goal, drain, precision) = ("load.concurrency".to_owned(), Goal::Slo, Nanos::ZERO, 0.05);
        let spec = SearchSpec { vary, low: 1.0, high: 64.0, start: 8.0, whole: true, precision, confirm: 1, goal, drain };
        let (answer, interval, extent) = (Some(16.0), (Some(15.0), 17.0), Extent::Within);
        let finding = Finding { answer, interval, mass: Some(0.97), extent, settled: true, confirmed: 1, contrary: None };
        let search = SearchReport { spec, labels: Labels::default(), finding, probes: probes.map(probe).to_vec() };
        Report { searches: vec![search], ..report_of(sweep(3).cases, RunVerdict::Pass, 0) }
    }

    #[test]
    fn a_search_is_told_in_a_sentence_and_every_probe_in_a_line() {
        let report = searched();
        let known = "concurrency 16 (97% interval 15 to 17, 4 probes, 400 requests)";
        assert_eq!(sentence(&report, &report.searches[0]), known);
        let told = &told(&report)[0];
        let last = ["4", "16", "confirm", "100", "pass", "99%", "400 ms"].map(str::to_owned);
        assert_eq!((told.probes.rows.len(), &told.probes.rows[3]), (4, &last.to_vec()));
        assert_eq!(told.probes.rows[1][4..], ["fail, stopped early", "<0.1%", "1 s ❌"]);
        let slowest = told.pareto.rows.last().unwrap();
        assert_eq!((slowest[0].as_str(), slowest[4].as_str()), ("32", "dominated"));
    }

    #[test]
    fn a_terminal_shows_every_probe_and_each_of_several_answers() {
        let mut report = searched();
        report.searches[0].finding.settled = false;
        report.searches[0].probes.truncate(2);
        insta::assert_snapshot!(probe_table(&report, None, false), @r"
        #  LOAD  FOR        N  PROBE                P(HOLDS)  LIMITS
        1     8  bracket  100  pass                      99%  ttft.p99 < 500ms: 250 ms
        2    32  bracket  100  fail, stopped early     <0.1%  ttft.p99 < 500ms: 1 s
        ");
        report.searches.push(report.searches[0].clone());
        let said = probe_table(&report, Some(80), false);
        assert_eq!(said.matches("NOT SETTLED").count(), 2, "{said}");
        assert!(said.lines().skip(1).all(|line| line.starts_with("NOT SETTLED") || line.chars().count() <= 80), "{said}");
    }

    #[test]
    fn what_is_odd_about_an_answer_is_said_with_it() {
        let mut report = searched();
        let said = |report: &Report| sentence(report, &report.searches[0]);
        let found = report.searches[0].finding.clone();
        report.searches[0].finding.contrary = Some((8.0, 32.0));
        assert!(
            said(&report).ends_with("; NOT MONOTONE: 8 fails and 32 holds, so there is more than one edge"),
            "{}",
            said(&report)
        );
        report.searches[0].finding = Finding { answer: None, interval: (None, 1.0), extent: Extent::Nothing, ..found.clone() };
        assert!(said(&report).starts_with("nothing holds, not even concurrency 1 (97% interval below 1 to 1,"));
        report.searches[0].finding = Finding { answer: Some(64.0), extent: Extent::AtLeast, ..found };
        assert!(said(&report).starts_with("concurrency at least 64, the end of the range"));
    }

    #[test]
    fn a_search_without_an_answer_gives_no_number_as_one() {
        let mut report = searched();
        report.searches[0].finding.settled = false;
        let said = |report: &Report| sentence(report, &report.searches[0]);
        let behind = "4 probes, 400 requests)";
        let near = "nearest so far: concurrency 16 (97% interval 15 to 17,";
        assert_eq!(said(&report), format!("NOT SETTLED, the probes did not suffice; {near} {behind}"));
        report.manifest.interrupted = true;
        let cut = "NO ANSWER: the search was interrupted (so far 97% interval 15 to 17,";
        assert_eq!((said(&report), answer(&report, &report.searches[0])), (format!("{cut} {behind}"), None));
        report.manifest.interrupted = false;
        report.searches[0].probes[1].holds = None;
        assert!(said(&report).starts_with("NOT SETTLED, 1 of 4 probes measured the load generator, not the server; nearest"));
        report.searches[0].probes.iter_mut().for_each(|probe| probe.holds = None);
        let unsound = "NO ANSWER: the load generator was the bottleneck, not the server; no probe passed its self-audit (";
        assert_eq!((said(&report), answer(&report, &report.searches[0])), (format!("{unsound}{behind}"), None));
        assert_eq!(verdict(&report.searches[0].probes[1]), "invalid, stopped early");
        report.searches[0].probes.clear();
        assert_eq!(said(&report), "NO ANSWER: the run ended before the first probe");
    }

    #[test]
    fn the_field_of_a_mix_is_told_with_its_entry_and_every_rate_with_its_unit() {
        let of = |vary: &str| axis(&SearchSpec { vary: vary.to_owned(), ..searched().searches.remove(0).spec });
        assert_eq!(of("mix.chat.rate"), ("chat rate".to_owned(), "/s"));
        assert_eq!(of("mix.1.request.max_tokens"), ("mix.1 max_tokens".to_owned(), ""));
        assert_eq!((of("load.rate"), of("load.concurrency")), (("rate".into(), "/s"), ("concurrency".into(), "")));
    }
}
