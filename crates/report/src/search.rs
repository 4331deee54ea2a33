//! Capacity searches: their results in a sentence, in tables and in results.json.

use crate::ReportError;
use crate::findings::distance;
use crate::format::{ABSENT, against, capitalize, check_title, code, counted, number, percent};
use crate::objectives::slo_json;
use crate::table::{Cell, Column, Columns, Emphasis, Screen, Table};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::label::{Labels, describe};
use llmscen_core::report::Report;
use llmscen_core::schedule::search::PASSES;
use llmscen_core::search::{
    Candidacy, CapacitySearch, Extent, Fate, Goal, LoadVerdict, ProbeReport, Score, SearchReport,
    SearchSpec, Standing,
};
use serde_json::{Map, Value, json};

/// The short name of the varied key, with its traffic class if it belongs to a mix, and the unit of its values.
pub fn varied_key(spec: &SearchSpec) -> (String, &'static str) {
    let parts: Vec<&str> = spec.vary.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let name = match parts.as_slice() {
        ["mix", entry, _, ..] if entry.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("mix.{entry} {last}")
        }
        ["mix", entry, _, ..] => format!("{entry} {last}"),
        _ => last.to_owned(),
    };
    (name, if last == "rate" { "/s" } else { "" })
}

/// A search before it runs, in one line.
pub fn describe_search(search: &CapacitySearch, searches: usize) -> String {
    let SearchSpec {
        vary,
        low,
        high,
        start,
        confirm,
        ..
    } = &search.spec;
    let values = search.grid.len();
    let goal = match search.spec.goal {
        Goal::Slo => "the largest value that meets every objective",
        Goal::Goodput => "the value with the highest goodput",
    };
    let each = if searches > 1 {
        format!("{searches} searches, each for")
    } else {
        "search for".to_owned()
    };
    let precision = percent(search.spec.precision);
    let confirmed = match confirm {
        0 => "not confirmed".to_owned(),
        1 => "confirmed once".to_owned(),
        many => format!("confirmed {many} times"),
    };
    format!(
        "{each} {goal}: {vary} from {low} to {high} ({values} values), starting at {start}, \
        precision {precision}, {confirmed}\n"
    )
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    /// It converged.
    Converged,
    /// It used up its probes before it converged.
    NotConverged,
    /// The run ended before the search.
    Interrupted,
    /// No probe passed its self-audit.
    Invalid,
    /// A candidate that could not be measured.
    Failed,
}

/// How a search of this report ended.
pub fn search_outcome(report: &Report, search: &SearchReport) -> SearchOutcome {
    let fate = search.candidacy.as_ref().and_then(|one| one.fate.as_ref());
    if matches!(fate, Some(Fate::Failed(_))) {
        return SearchOutcome::Failed;
    }
    match search
        .probes
        .iter()
        .any(|probe| probe.pass_probability.is_some())
    {
        true if search.finding.converged => SearchOutcome::Converged,
        _ if report.manifest.interrupted
            || report.manifest.error.is_some()
            || search.probes.is_empty() =>
        {
            SearchOutcome::Interrupted
        }
        true => SearchOutcome::NotConverged,
        false => SearchOutcome::Invalid,
    }
}

/// The load that the search found; None if it was interrupted or invalid.
pub fn found_load(report: &Report, search: &SearchReport) -> Option<f64> {
    let is_valid = matches!(
        search_outcome(report, search),
        SearchOutcome::Converged | SearchOutcome::NotConverged
    );
    search.finding.answer.filter(|_| is_valid)
}

/// The swept values of the search, with a colon; empty if there is only one search.
pub fn label_prefix(search: &SearchReport) -> String {
    let name = short_name(&search.labels);
    if name.is_empty() {
        String::new()
    } else {
        format!("{name}: ")
    }
}

/// Swept values by the last segments of their paths, or by the paths where two end alike.
pub(crate) fn short_name(labels: &Labels) -> String {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let name = |path: &String| {
        let alike = labels
            .0
            .iter()
            .filter(|(other, _)| last(other) == last(path));
        match alike.count() {
            1 => last(path),
            _ => path.clone(),
        }
    };
    let names = labels
        .0
        .iter()
        .map(|(path, value)| describe(&name(path), value));
    names.collect::<Vec<_>>().join(", ")
}

/// The results of a report's searches, a sentence each; of a successive halving, that of its best candidate.
pub(crate) fn results(report: &Report) -> Vec<String> {
    let mut sentences = Vec::new();
    for group in by_group(report) {
        let Some(first) = group.first().filter(|first| first.candidacy.is_some()) else {
            sentences.extend(group.iter().map(|search| sentence(report, search)));
            continue;
        };
        let best = group.iter().find(|search| search.is_result());
        sentences.push(match best {
            Some(best) => format!(
                "best of {}: {}",
                counted(group.len(), "candidate"),
                sentence(report, best)
            ),
            None => {
                let why = |search: &&SearchReport| match search.candidacy.as_ref()?.fate.as_ref()? {
                    Fate::Failed(why) => Some(why.clone()),
                    _ => None,
                };
                let failed: Vec<String> = group.iter().filter_map(why).collect();
                match failed.first() {
                    Some(why) if failed.len() == group.len() => {
                        format!(
                            "no candidate could be measured: {}{why}",
                            label_prefix(first)
                        )
                    }
                    _ => "no best candidate: the run ended before the last rung".to_owned(),
                }
            }
        });
    }
    sentences
}

/// The searches of a report by the halving that they are part of; without one, a single group.
pub(crate) fn by_group(report: &Report) -> Vec<Vec<&SearchReport>> {
    let group = |search: &SearchReport| search.candidacy.as_ref().map(|one| one.group);
    let mut groups: Vec<Vec<&SearchReport>> = Vec::new();
    for search in &report.searches {
        match groups.last_mut() {
            Some(last)
                if last
                    .first()
                    .is_some_and(|first| group(first) == group(search)) =>
            {
                last.push(search);
            }
            _ => groups.push(vec![search]),
        }
    }
    groups
}

/// How a candidate left its halving; empty for a search without `over`.
pub(crate) fn fate(search: &SearchReport) -> String {
    let Some(candidacy) = &search.candidacy else {
        return String::new();
    };
    let rung = candidacy.standings.last().map_or(0, |last| last.rung);
    let (name, unit) = varied_key(&search.spec);
    let unit = match search.spec.goal {
        Goal::Slo => unit,
        Goal::Goodput => " req/s",
    };
    let per_gpu = if candidacy.gpus.is_some() {
        " per GPU"
    } else {
        ""
    };
    let what = match search.spec.goal {
        Goal::Slo => format!("maximum {name}{per_gpu}"),
        Goal::Goodput => format!("goodput{per_gpu}"),
    };
    let between = |score: &Score| {
        let ends = [score.low, score.high].map(plain_number);
        format!("{} to {}{unit}", ends[0], ends[1])
    };
    match &candidacy.fate {
        None => "not finished: the run ended".to_owned(),
        Some(Fate::Best) if is_confirmed(search) => "best, confirmed".to_owned(),
        Some(Fate::Best) if search.finding.converged => "best, without confirmation".to_owned(),
        Some(Fate::Best) => "best, not converged: the budget was used up".to_owned(),
        Some(Fate::NotBest { tied: false }) => "in the last rung, not the best".to_owned(),
        Some(Fate::NotBest { tied: true }) => {
            "tied with the best: the intervals overlap".to_owned()
        }
        Some(Fate::Dropped { tied, kept }) => {
            let own = candidacy.standings.last().map(|last| between(&last.score));
            let own = own.unwrap_or_default();
            match tied {
                true => format!(
                    "dropped by the budget after rung {rung}: its interval overlaps ({what} \
                    {own}; the last one kept by rank {})",
                    between(kept)
                ),
                false => format!(
                    "dropped after rung {rung}: {what} {own}, the last one kept by rank reaches {}{unit} or more",
                    plain_number(kept.low)
                ),
            }
        }
        Some(Fate::Failed(why)) => format!("failed: {why}"),
    }
}

/// Whether probes confirmed the result.
pub(crate) fn is_confirmed(search: &SearchReport) -> bool {
    search.finding.converged && search.finding.confirmed > 0
}

/// A whole number as it is, others with three digits.
pub(crate) fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 {
        value.to_string()
    } else {
        number(value)
    }
}

/// The result in a sentence.
pub fn sentence(report: &Report, search: &SearchReport) -> String {
    let prefix = label_prefix(search);
    let requests: u64 = search.probes.iter().map(|probe| probe.requests).sum();
    let limited_by = found_load(report, search)
        .and_then(|_| limiting_objective(search))
        .map(|objective| format!("limited by `{objective}`, "))
        .unwrap_or_default();
    let effort = format!(
        "{limited_by}{} probes, {requests} requests",
        search.probes.len()
    );
    let found = result(search);
    let interval = interval(search);
    let contrary = contrary(search);
    let costs = costs(search);
    match search_outcome(report, search) {
        SearchOutcome::Converged => {
            format!("{prefix}{found} ({interval}, {effort}){costs}{contrary}")
        }
        SearchOutcome::NotConverged => {
            format!(
                "{prefix}not converged: {}. {} ({interval}, {effort}){costs}{contrary}",
                doubt(search),
                capitalize(&found)
            )
        }
        SearchOutcome::Invalid => {
            format!(
                "{prefix}no result: the load generator was the bottleneck; no probe passed its self-audit ({effort})"
            )
        }
        SearchOutcome::Failed => format!("{prefix}no result: {} ({effort})", fate(search)),
        SearchOutcome::Interrupted if search.probes.is_empty() => {
            format!("{prefix}no result: the run ended before the first probe")
        }
        SearchOutcome::Interrupted => {
            let has_valid_probe = search
                .probes
                .iter()
                .any(|probe| probe.pass_probability.is_some());
            let so_far = search
                .finding
                .mass
                .filter(|_| has_valid_probe)
                .map(|_| format!("{interval} so far, "))
                .unwrap_or_default();
            format!("{prefix}no result: the search was interrupted ({so_far}{effort}){contrary}")
        }
    }
}

/// The result in a few words: `maximum concurrency 19 (97% CI 19 to 20)`; `no result` if there is none.
pub(crate) fn short_result(report: &Report, search: &SearchReport) -> String {
    let Some(load) = found_load(report, search) else {
        return "no result".to_owned();
    };
    let (name, unit) = varied_key(&search.spec);
    let what = match (search.spec.goal, search.finding.extent) {
        (Goal::Goodput, _) => format!("highest goodput at {name} {load}{unit}"),
        (Goal::Slo, Extent::AtLeast) => format!("maximum {name} at least {load}{unit}"),
        (Goal::Slo, _) => format!("maximum {name} {load}{unit}"),
    };
    let doubt = match search_outcome(report, search) {
        SearchOutcome::NotConverged => {
            let above = above(search).map(|above| format!(": {above}"));
            format!(", not converged{}", above.unwrap_or_default())
        }
        _ => String::new(),
    };
    format!("{what} ({}{doubt})", interval(search))
}

/// The objective that fails by most at the lowest load above the result.
fn limiting_objective(search: &SearchReport) -> Option<String> {
    let answer = search.finding.answer.unwrap_or(f64::NEG_INFINITY);
    let failed = |probe: &ProbeReport| {
        let failed = probe
            .verdicts
            .iter()
            .filter(|verdict| verdict.ruling == Ruling::Fail)
            .filter(|verdict| !verdict.check.is_easier_with_load());
        let worst = failed.max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        Some((probe.load, check_title(&worst.check)))
    };
    let above = search.probes.iter().filter(|probe| {
        probe.load > answer && probe.pass_probability.is_some() && search.spec.goal == Goal::Slo
    });
    above
        .filter_map(failed)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, objective)| objective)
}

fn result(search: &SearchReport) -> String {
    let (name, unit) = varied_key(&search.spec);
    let (finding, range) = (&search.finding, &search.spec);
    let is_met = |verdict: &&Verdict| verdict.ruling == Ruling::Pass;
    let every = match search.easier_objectives().iter().all(is_met) {
        true => "every",
        false => "every other",
    };
    match (finding.answer, finding.extent, range.goal) {
        (Some(load), Extent::AtLeast, Goal::Slo) => {
            format!(
                "maximum {name} that meets {every} objective: at least {load}{unit}, the end of the range"
            )
        }
        (Some(load), _, Goal::Slo) if finding.converged => {
            format!("maximum {name} that meets {every} objective: {load}{unit}")
        }
        (Some(load), _, Goal::Slo) => {
            let above = above(search).map(|above| format!(", {above}"));
            format!("{name} {load}{unit} passes{}", above.unwrap_or_default())
        }
        (Some(load), _, Goal::Goodput) => {
            let estimate = if finding.converged {
                ""
            } else {
                "Best estimate: "
            };
            format!("{estimate}{name} with the highest goodput: {load}{unit}")
        }
        (None, Extent::Nothing, _) => format!(
            "no load in the range meets the objectives; {name} {}{unit}, the lowest, already fails",
            range.low
        ),
        (None, ..) => {
            let above = above(search).map(|above| format!("; {name} {above}"));
            format!("no probe passed{}", above.unwrap_or_default())
        }
    }
}

/// `8 failed`: what is known of the next load above the result.
fn above(search: &SearchReport) -> Option<String> {
    let unit = varied_key(&search.spec).1;
    let (load, verdict) = search.finding.above?;
    let verdict = match verdict {
        LoadVerdict::Failed => "failed",
        LoadVerdict::Inconclusive => "was inconclusive",
        LoadVerdict::NotMeasured => "was not measured",
    };
    Some(format!("{load}{unit} {verdict}"))
}

pub(crate) fn interval(search: &SearchReport) -> String {
    let ((low, high), (_, unit)) = (search.finding.interval, varied_key(&search.spec));
    let lower = low.map_or_else(
        || format!("below {}", search.spec.low),
        |low| low.to_string(),
    );
    match search.finding.mass {
        Some(mass) => format!("{} CI {lower} to {high}{unit}", percent(mass)),
        None => format!("between {lower} and {high}{unit}"),
    }
}

/// The objectives that more load makes easier to meet, at the result.
fn costs(search: &SearchReport) -> String {
    let cost = |verdict: &&Verdict| {
        let title = check_title(&verdict.check);
        let observed = against(
            verdict.observed,
            verdict.check.limit,
            verdict.check.subject.unit(),
        );
        match verdict.ruling {
            Ruling::Pass => format!("; there `{title}` is met: {observed}"),
            Ruling::Fail => {
                format!("; but `{title}` is not met there, nor at less load: {observed}")
            }
            Ruling::Inconclusive => format!("; `{title}` is undecided there: {observed}"),
            Ruling::Invalid => format!("; `{title}` is invalid there"),
        }
    };
    search.easier_objectives().iter().map(cost).collect()
}

fn contrary(search: &SearchReport) -> String {
    let unit = varied_key(&search.spec).1;
    search.finding.non_monotone.map_or_else(String::new, |(fails, holds)| {
        format!("; not monotonic: {fails}{unit} fails but {holds}{unit} passes, so there is more than one boundary")
    })
}

/// Why a search did not converge.
fn doubt(search: &SearchReport) -> String {
    if let Some(Candidacy {
        fate: Some(Fate::Dropped { .. }),
        standings,
        ..
    }) = &search.candidacy
    {
        let rung = standings.last().map_or(0, |last| last.rung);
        return format!("it was dropped after rung {rung}");
    }
    match search
        .probes
        .iter()
        .filter(|probe| probe.pass_probability.is_none())
        .count()
    {
        0 => "the probe budget was used up".to_owned(),
        invalid => format!(
            "{invalid} of {} probes measured the load generator, not the server",
            search.probes.len()
        ),
    }
}

/// The verdict of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Every objective is met.
    Pass,
    /// Some objective is not.
    Fail,
    /// Not enough samples.
    Inconclusive,
    /// Its self-audit failed.
    Invalid,
}

/// The verdict of a probe.
pub fn probe_verdict(probe: &ProbeReport) -> ProbeVerdict {
    match probe.pass_probability {
        None => ProbeVerdict::Invalid,
        Some(_) if probe.futile => ProbeVerdict::Fail,
        Some(holds) if holds >= PASSES => ProbeVerdict::Pass,
        Some(holds) if holds <= 1.0 - PASSES => ProbeVerdict::Fail,
        Some(_) => ProbeVerdict::Inconclusive,
    }
}

/// The verdict of a probe as text: `fail, stopped early`.
fn verdict_text(probe: &ProbeReport) -> String {
    let word = match probe_verdict(probe) {
        ProbeVerdict::Pass => "pass",
        ProbeVerdict::Fail => "fail",
        ProbeVerdict::Inconclusive => "inconclusive",
        ProbeVerdict::Invalid => "invalid",
    };
    if probe.futile {
        format!("{word}, stopped early")
    } else {
        word.to_owned()
    }
}

impl From<ProbeVerdict> for Emphasis {
    fn from(verdict: ProbeVerdict) -> Emphasis {
        match verdict {
            ProbeVerdict::Pass => Emphasis::Pass,
            ProbeVerdict::Fail => Emphasis::Fail,
            ProbeVerdict::Inconclusive => Emphasis::Inconclusive,
            ProbeVerdict::Invalid => Emphasis::Invalid,
        }
    }
}

/// A probe, with the index of its search and its index in it.
struct ProbeRow<'a> {
    search: &'a SearchReport,
    search_index: usize,
    probe: &'a ProbeReport,
    index: usize,
}

/// The probes of the searches (each with its index) in order, with the value of each objective.
pub(crate) fn probes(report: &Report, searches: &[(usize, &SearchReport)]) -> Table {
    let first = searches.first().map(|(_, search)| *search);
    let checks = first
        .and_then(|search| search.probes.first())
        .map(|probe| probe.verdicts.as_slice())
        .unwrap_or_default();
    let load = first.map(|search| varied_key(&search.spec).0);
    let observed = |verdict: &Verdict| {
        against(
            verdict.observed,
            verdict.check.limit,
            verdict.check.subject.unit(),
        )
    };
    let text = Column::text;
    let number = Column::number;
    let mut columns = Columns::new()
        .add(text().key("scenario"), |_| {
            Cell::prose(&report.manifest.name)
        })
        .add(number().key("search"), |row: &ProbeRow<'_>| {
            Cell::count(row.search_index as u64 + 1)
        })
        .add(text().key("vary"), |row| Cell::prose(&row.search.spec.vary))
        .add(
            number().documents("#").terminal("#", 3).key("probe"),
            |row| Cell::count(row.index as u64 + 1),
        )
        .add(text().key("case"), |row| Cell::code(&row.probe.case))
        .add(
            number()
                .documents(&load.unwrap_or_default())
                .terminal("LOAD", 0)
                .key("load"),
            |row| {
                let load = row.probe.load;
                let unit = varied_key(&row.search.spec).1;
                Cell::figure(format!("{load}{unit}"), load).with_stat("probe", "load")
            },
        )
        .add(
            text()
                .documents("Phase")
                .terminal("PHASE", 4)
                .key("purpose"),
            |row| Cell::prose(row.probe.purpose.name()),
        )
        .add(number().documents("n").terminal("N", 1).key("n"), |row| {
            Cell::count(row.probe.requests).with_stat("probe", "n")
        })
        .add(
            text()
                .documents("Verdict")
                .terminal("PROBE", 0)
                .key("verdict"),
            |row| Cell::prose(&verdict_text(row.probe)).emphasized(probe_verdict(row.probe).into()),
        )
        .add(
            number()
                .documents("P(all objectives pass)")
                .terminal("P(PASS)", 2)
                .key("holds_share"),
            |row| {
                let chance = row.probe.pass_probability;
                let text = chance.map_or_else(|| ABSENT.to_owned(), format_probability);
                Cell::figure(text, chance).with_stat("probe", "holds")
            },
        )
        .add(text().terminal("OBJECTIVES", 0), move |row| {
            let listed = row.probe.verdicts.iter().map(|verdict| {
                let title = check_title(&verdict.check);
                format!("{title}: {}", observed(verdict))
            });
            Cell::prose(&listed.collect::<Vec<_>>().join("; "))
        });
    for (position, verdict) in checks.iter().enumerate() {
        let title = check_title(&verdict.check);
        let column = number().markdown(&code(&title)).html(&title);
        columns = columns.add(column, move |row| {
            let Some(verdict) = row.probe.verdicts.get(position) else {
                return Cell::number(None);
            };
            let cell = Cell::figure(observed(verdict), verdict.observed);
            match verdict.ruling {
                Ruling::Fail => cell
                    .emphasized(Emphasis::Fail)
                    .in_markdown(format!("{} ❌", observed(verdict))),
                _ => cell,
            }
        });
    }
    let columns = columns
        .add(number().html("Decode tok/s per user"), |row| {
            Cell::number(row.probe.per_user_tps)
        })
        .add(
            number()
                .html("Total output tok/s")
                .key("output_tokens_per_s"),
            |row| Cell::number(row.probe.total_tps),
        )
        .add(
            number()
                .html("Goodput, req/s")
                .key("goodput_requests_per_s"),
            |row| Cell::number(row.probe.goodput),
        )
        .add(text().html("Note"), |row| note_dominated(row.probe));
    let rows = searches.iter().flat_map(|&(search_index, search)| {
        let probes = search.probes.iter().enumerate();
        probes.map(move |(index, probe)| ProbeRow {
            search,
            search_index,
            probe,
            index,
        })
    });
    columns.table(rows).sortable()
}

fn note_dominated(probe: &ProbeReport) -> Cell {
    Cell::prose(if probe.dominated { "dominated" } else { "" })
}

/// Every probe of every search, one per line. The result of each of several searches precedes its probes.
/// `width`: of the terminal in characters; None: not a terminal.
pub fn probe_table(report: &Report, width: Option<usize>, color: bool) -> String {
    let section = |(index, search): (usize, &SearchReport)| {
        let result = match report.searches.len() {
            1 => String::new(),
            _ => sentence(report, search) + "\n",
        };
        result + &probes(report, &[(index, search)]).terminal(Screen { width, color })
    };
    // The candidates have a table; the report has the probes of all.
    let shown = report.searches.iter().enumerate();
    let shown = shown.filter(|(_, search)| search.is_result());
    shown.map(section).collect()
}

/// Per-user and total throughput of each probe, the highest per-user throughput first; dominated probes are marked.
pub(crate) fn pareto(search: &SearchReport) -> Table {
    let (name, unit) = varied_key(&search.spec);
    let mut measured: Vec<&ProbeReport> = search
        .probes
        .iter()
        .filter(|probe| probe.per_user_tps.is_some() && probe.total_tps.is_some())
        .collect();
    measured.sort_by(|a, b| {
        b.per_user_tps
            .unwrap_or_default()
            .total_cmp(&a.per_user_tps.unwrap_or_default())
    });
    let number = |head: &str| Column::number().markdown(head);
    Columns::new()
        .add(number(&name), |probe: &&ProbeReport| {
            Cell::figure(format!("{}{unit}", probe.load), probe.load)
        })
        .add(number("Decode tok/s per user"), |probe| {
            Cell::number(probe.per_user_tps)
        })
        .add(number("Total output tok/s"), |probe| {
            Cell::number(probe.total_tps)
        })
        .add(number("Goodput, req/s"), |probe| {
            Cell::number(probe.goodput)
        })
        .add(Column::text().markdown("Note"), |probe| {
            note_dominated(probe)
        })
        .table(measured)
}

/// The value of `search` in results.json; null without a search.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn json(report: &Report) -> Result<Value, ReportError> {
    if report.searches.is_empty() {
        return Ok(Value::Null);
    }
    report
        .searches
        .iter()
        .map(search_json)
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

fn search_json(search: &SearchReport) -> Result<Value, ReportError> {
    let (spec, finding) = (&search.spec, &search.finding);
    let labels = search
        .labels
        .0
        .iter()
        .map(|(path, value)| Ok((path.clone(), serde_json::to_value(value)?)));
    Ok(json!({
        "vary": spec.vary,
        "labels": labels.collect::<Result<Map<String, Value>, ReportError>>()?,
        "goal": spec.goal,
        "range": [spec.low, spec.high],
        "precision": spec.precision,
        "answer": finding.answer,
        "above": finding.above.map(|(load, verdict)| json!({ "load": load, "verdict": verdict })),
        "extent": finding.extent,
        "interval": { "low": finding.interval.0, "high": finding.interval.1, "mass": finding.mass },
        "settled": finding.converged,
        "confirmed": finding.confirmed,
        "monotone": finding.monotone(),
        "contrary": finding.non_monotone.map(|(fails, holds)| json!({ "fails": fails, "holds": holds })),
        "requests": search.probes.iter().map(|probe| probe.requests).sum::<u64>(),
        "candidate": search.candidacy.as_ref().map(|candidacy| candidate_json(search, candidacy)),
        "probes": search.probes.iter().map(probe_json).collect::<Vec<_>>(),
    }))
}

fn candidate_json(search: &SearchReport, candidacy: &Candidacy) -> Value {
    let score =
        |score: &Score| json!({ "low": score.low, "value": score.value, "high": score.high });
    let rung = |standing: &Standing| {
        json!({
            "rung": standing.rung,
            "probes": standing.probes,
            "answer": standing.answer,
            "interval": { "low": standing.interval.0, "high": standing.interval.1 },
            "score": score(&standing.score),
        })
    };
    let outcome = candidacy.fate.as_ref().map(|fate| match fate {
        Fate::Best => "best",
        Fate::NotBest { tied: true } => "tied",
        Fate::NotBest { tied: false } => "not_best",
        Fate::Dropped { tied: true, .. } => "dropped_by_budget",
        Fate::Dropped { tied: false, .. } => "dropped",
        Fate::Failed(_) => "failed",
    });
    json!({
        "group": candidacy.group + 1,
        "gpus": candidacy.gpus,
        "outcome": outcome,
        "reason": fate(search),
        "rungs": candidacy.standings.iter().map(rung).collect::<Vec<_>>(),
    })
}

fn probe_json(probe: &ProbeReport) -> Value {
    json!({
        "case": probe.case,
        "round": probe.round,
        "load": probe.load,
        "purpose": probe.purpose,
        "holds": probe.pass_probability,
        "n": probe.requests,
        "stopped_early": probe.futile,
        "per_user_tps": probe.per_user_tps,
        "total_tps": probe.total_tps,
        "goodput": probe.goodput,
        "dominated": probe.dominated,
        "slo": probe.verdicts.iter().map(slo_json).collect::<Vec<_>>(),
    })
}

/// A probability in percent, cut at 0.1 % and 99.9 %.
fn format_probability(probability: f64) -> String {
    match probability {
        p if p < 0.001 => "<0.1%".to_owned(),
        p if p > 0.999 => ">99.9%".to_owned(),
        p => percent(p),
    }
}

#[cfg(test)]
mod tests;
