//! Capacity searches: what they found, in words, as tables and in results.json.

use crate::ViewError;
use crate::format::{ABSENT, against, code, percent, title};
use crate::json::slo;
use crate::table::{Cell, Column, Emphasis, Row, Screen, Table};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{Report, RunVerdict};
use llmscen_core::search::{CapacitySearch, Extent, Goal, ProbeReport, SearchReport, SearchSpec};
use serde_json::{Map, Value, json};

/// The varied field in short, with the entry of a mix that it belongs to, and the unit of its values.
pub fn axis(spec: &SearchSpec) -> (String, &'static str) {
    let parts: Vec<&str> = spec.vary.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let name = match parts.as_slice() {
        ["mix", entry, _, ..] if entry.bytes().all(|byte| byte.is_ascii_digit()) => format!("mix.{entry} {last}"),
        ["mix", entry, _, ..] => format!("{entry} {last}"),
        _ => last.to_owned(),
    };
    (name, if last == "rate" { "/s" } else { "" })
}

/// A search before it runs, in a line.
pub fn planned(quest: &CapacitySearch, searches: usize) -> String {
    let (spec, values) = (&quest.spec, quest.grid.len());
    let SearchSpec { vary, low, high, start, confirm, .. } = spec;
    let goal = match spec.goal {
        Goal::Slo => "the largest value at which every limit holds",
        Goal::Goodput => "the value of the highest goodput",
    };
    let each = if searches > 1 { format!("{searches} searches, each for") } else { "search for".to_owned() };
    let precision = percent(spec.precision);
    format!(
        "{each} {goal}: {vary} from {low} to {high} ({values} values), first {start}, within {precision}, confirmed {confirm} times\n"
    )
}

/// How far a search came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// To its answer.
    Settled,
    /// To the end of what it may probe, without being sure.
    Open,
    /// The run ended before it.
    CutShort,
    /// Nowhere: no probe measured the server.
    Unsound,
}

/// How far this search of a report came.
pub fn standing(report: &Report, search: &SearchReport) -> Standing {
    match search.probes.iter().any(|probe| probe.holds.is_some()) {
        true if search.finding.settled => Standing::Settled,
        _ if report.manifest.interrupted || report.manifest.error.is_some() || search.probes.is_empty() => Standing::CutShort,
        true => Standing::Open,
        false => Standing::Unsound,
    }
}

/// The answer, where it may be told as one: a search that was cut short or saw nothing has none.
pub fn answer(report: &Report, search: &SearchReport) -> Option<f64> {
    let told = matches!(standing(report, search), Standing::Settled | Standing::Open);
    search.finding.answer.filter(|_| told)
}

/// The values that tell this search from the others, with a colon; empty where it is the only one.
pub fn place(search: &SearchReport) -> String {
    let labels: Vec<String> = search.labels.0.iter().map(|(path, value)| format!("{path}={value}")).collect();
    if labels.is_empty() { String::new() } else { format!("{}: ", labels.join(", ")) }
}

/// What was found, in a sentence.
pub fn sentence(report: &Report, search: &SearchReport) -> String {
    let at = place(search);
    let requests: u64 = search.probes.iter().map(|probe| probe.requests).sum();
    let behind = format!("{} probes, {requests} requests", search.probes.len());
    let (found, interval, contrary) = (found(search), interval(search), contrary(search));
    match standing(report, search) {
        Standing::Settled => format!("{at}{found} ({interval}, {behind}){contrary}"),
        Standing::Open => format!("{at}NOT SETTLED, {}; nearest so far: {found} ({interval}, {behind}){contrary}", doubt(search)),
        Standing::Unsound => {
            format!(
                "{at}NO ANSWER: the load generator was the bottleneck, not the server; no probe passed its self-audit ({behind})"
            )
        }
        Standing::CutShort if search.probes.is_empty() => format!("{at}NO ANSWER: the run ended before the first probe"),
        Standing::CutShort => {
            let sound = search.probes.iter().any(|probe| probe.holds.is_some());
            let so_far = search.finding.mass.filter(|_| sound).map(|_| format!("so far {interval}, ")).unwrap_or_default();
            format!("{at}NO ANSWER: the search was interrupted ({so_far}{behind}){contrary}")
        }
    }
}

fn found(search: &SearchReport) -> String {
    let (name, unit) = axis(&search.spec);
    let (finding, range) = (&search.finding, &search.spec);
    match (finding.answer, finding.extent, range.goal) {
        (Some(answer), Extent::AtLeast, Goal::Slo) => format!("{name} at least {answer}{unit}, the end of the range"),
        (Some(answer), _, Goal::Slo) => format!("{name} {answer}{unit}"),
        (Some(answer), _, Goal::Goodput) => format!("the highest goodput is at {name} {answer}{unit}"),
        (None, ..) => format!("nothing holds, not even {name} {}{unit}", range.low),
    }
}

fn interval(search: &SearchReport) -> String {
    let ((low, high), (_, unit)) = (search.finding.interval, axis(&search.spec));
    let least = low.map_or_else(|| format!("below {}", search.spec.low), |low| low.to_string());
    match search.finding.mass {
        Some(mass) => format!("{} interval {least} to {high}{unit}", percent(mass)),
        None => format!("between {least} and {high}{unit}"),
    }
}

fn contrary(search: &SearchReport) -> String {
    let unit = axis(&search.spec).1;
    search.finding.contrary.map_or_else(String::new, |(fails, holds)| {
        format!("; NOT MONOTONE: {fails}{unit} fails and {holds}{unit} holds, so there is more than one edge")
    })
}

/// Why a search that was not cut short is not settled.
fn doubt(search: &SearchReport) -> String {
    match search.probes.iter().filter(|probe| probe.holds.is_none()).count() {
        0 => "the probes did not suffice".to_owned(),
        unsound => format!("{unsound} of {} probes measured the load generator, not the server", search.probes.len()),
    }
}

/// What a probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every limit holds.
    Held,
    /// Some limit does not.
    Failed,
    /// Too little to say.
    Open,
    /// Its self-audit failed.
    Invalid,
}

/// What a probe came to.
pub fn outcome(probe: &ProbeReport) -> Outcome {
    match probe.holds {
        None => Outcome::Invalid,
        Some(_) if probe.hopeless => Outcome::Failed,
        Some(holds) if holds >= 0.95 => Outcome::Held,
        Some(holds) if holds <= 0.05 => Outcome::Failed,
        Some(_) => Outcome::Open,
    }
}

/// The same in words.
pub fn verdict(probe: &ProbeReport) -> String {
    let word = match outcome(probe) {
        Outcome::Held => "pass",
        Outcome::Failed => "fail",
        Outcome::Open => "open",
        Outcome::Invalid => "invalid",
    };
    if probe.hopeless { format!("{word}, stopped early") } else { word.to_owned() }
}

impl From<Outcome> for Emphasis {
    fn from(outcome: Outcome) -> Emphasis {
        match outcome {
            Outcome::Held => Emphasis::Pass,
            Outcome::Failed => Emphasis::Fail,
            Outcome::Open => Emphasis::Inconclusive,
            Outcome::Invalid => Emphasis::Invalid,
        }
    }
}

/// The probes of these searches with their indexes, in order, and the value of each objective there.
pub(crate) fn probes(report: &Report, searches: &[(usize, &SearchReport)]) -> Table {
    let first = searches.first().map(|(_, search)| *search);
    let checks = first.and_then(|search| search.probes.first()).map(|probe| probe.verdicts.as_slice()).unwrap_or_default();
    let load = first.map(|search| axis(&search.spec).0).unwrap_or_default();
    let limit = |verdict: &Verdict| {
        let title = title(&verdict.check);
        Column::number().markdown(&code(&title)).html(&title)
    };
    let mut columns = vec![
        Column::text().key("scenario"),
        Column::number().key("search"),
        Column::text().key("vary"),
        Column::number().documents("#").terminal("#", 3).key("probe"),
        Column::text().key("case"),
        Column::number().documents(&load).terminal("LOAD", 0).key("load"),
        Column::text().documents("For").terminal("FOR", 4).key("purpose"),
        Column::number().documents("n").terminal("N", 1).key("n"),
        Column::text().documents("Verdict").terminal("PROBE", 0).key("verdict"),
        Column::number().markdown("Probability that all holds").html("P(all hold)").terminal("P(HOLDS)", 2).key("holds_share"),
        Column::text().terminal("LIMITS", 0),
    ];
    columns.extend(checks.iter().map(limit));
    columns.extend([
        Column::number().html("Decode tok/s per user"),
        Column::number().html("Output tok/s in all").key("output_tokens_per_s"),
        Column::number().html("Goodput, req/s").key("goodput_requests_per_s"),
        Column::text().html("Note"),
    ]);
    let rows = searches.iter().flat_map(|(number, search)| {
        let rows = search.probes.iter().enumerate();
        rows.map(|(index, probe)| probe_row(report, (*number, search), (index, probe), checks.len()))
    });
    Table::new(columns, rows.collect()).sortable()
}

/// `limits`: objectives that have a column.
fn probe_row(
    report: &Report,
    (number, search): (usize, &SearchReport),
    (index, probe): (usize, &ProbeReport),
    limits: usize,
) -> Row {
    let observed = |verdict: &Verdict| against(verdict.observed, verdict.check.limit, verdict.check.subject.unit());
    let listed = probe.verdicts.iter().map(|verdict| format!("{}: {}", title(&verdict.check), observed(verdict)));
    let limit = |verdict: &Verdict| {
        let cell = Cell::figure(observed(verdict), verdict.observed);
        match verdict.ruling {
            Ruling::Fail => cell.emphasized(Emphasis::Fail).in_markdown(format!("{} ❌", observed(verdict))),
            _ => cell,
        }
    };
    let mut cells = vec![
        Cell::prose(&report.manifest.name),
        Cell::count(number as u64 + 1),
        Cell::prose(&search.spec.vary),
        Cell::count(index as u64 + 1),
        Cell::code(&probe.case),
        Cell::figure(format!("{}{}", probe.load, axis(&search.spec).1), probe.load).of("probe", "load"),
        Cell::prose(probe.purpose.name()),
        Cell::count(probe.requests).of("probe", "n"),
        Cell::prose(&verdict(probe)).emphasized(outcome(probe).into()),
        Cell::figure(probe.holds.map_or_else(|| ABSENT.to_owned(), likely), probe.holds).of("probe", "holds"),
        Cell::prose(&listed.collect::<Vec<_>>().join("; ")),
    ];
    let missing = limits.saturating_sub(probe.verdicts.len());
    cells.extend(probe.verdicts.iter().take(limits).map(limit));
    cells.extend((0..missing).map(|_| Cell::number(None)));
    cells.extend([probe.per_user_tps, probe.total_tps, probe.goodput].map(Cell::number));
    cells.push(Cell::prose(if probe.dominated { "dominated" } else { "" }));
    Row::new(cells)
}

/// Every probe of every search, one a line; before those of each search what it found, where the verdict's line does not say so
/// of it alone. `width`: columns of the terminal, None where there is none.
pub fn probe_table(report: &Report, width: Option<usize>, color: bool) -> String {
    let alone = report.searches.len() == 1 && report.verdict != RunVerdict::Error;
    let one = |(index, search): (usize, &SearchReport)| {
        let found = if alone { String::new() } else { sentence(report, search) + "\n" };
        found + &probes(report, &[(index, search)]).terminal(Screen { width, color })
    };
    report.searches.iter().enumerate().map(one).collect()
}

/// Per-user against total throughput, fastest for the user first; a probe that another one dominates is marked.
pub(crate) fn pareto(search: &SearchReport) -> Table {
    let (name, unit) = axis(&search.spec);
    let mut known: Vec<&ProbeReport> =
        search.probes.iter().filter(|probe| probe.per_user_tps.is_some() && probe.total_tps.is_some()).collect();
    known.sort_by(|a, b| b.per_user_tps.unwrap_or_default().total_cmp(&a.per_user_tps.unwrap_or_default()));
    let columns = vec![
        Column::number().markdown(&name),
        Column::number().markdown("Decode tok/s per user"),
        Column::number().markdown("Output tok/s in all"),
        Column::number().markdown("Goodput, req/s"),
        Column::text().markdown("Note"),
    ];
    let row = |probe: &&ProbeReport| {
        let mut cells = vec![Cell::figure(format!("{}{unit}", probe.load), probe.load)];
        cells.extend([probe.per_user_tps, probe.total_tps, probe.goodput].map(Cell::number));
        cells.push(Cell::prose(if probe.dominated { "dominated" } else { "" }));
        Row::new(cells)
    };
    Table::new(columns, known.iter().map(row).collect())
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
fn likely(chance: f64) -> String {
    match chance {
        tiny if tiny < 0.001 => "<0.1%".to_owned(),
        sure if sure > 0.999 => ">99.9%".to_owned(),
        other => percent(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::searched;
    use llmscen_core::search::{Extent, Finding, SearchSpec};

    #[test]
    fn a_search_is_told_in_a_sentence_and_every_probe_in_a_line() {
        let report = searched();
        let known = "concurrency 16 (97% interval 15 to 17, 4 probes, 400 requests)";
        assert_eq!(sentence(&report, &report.searches[0]), known);
        let rows = probes(&report, &[(0, &report.searches[0])]).markdown_rows();
        let last = ["4", "16", "confirm", "100", "pass", "99%", "400 ms"].map(str::to_owned);
        assert_eq!((rows.len(), &rows[3]), (4, &last.to_vec()));
        assert_eq!(rows[1][4..], ["fail, stopped early", "<0.1%", "1 s ❌"]);
        let pareto = pareto(&report.searches[0]).markdown_rows();
        let slowest = pareto.last().unwrap();
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
