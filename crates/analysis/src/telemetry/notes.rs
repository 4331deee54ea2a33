//! What a reader must know of the signals.

use llmscen_core::signal::Signal;
use llmscen_core::telemetry::{SignalStat, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Notes of several signals for one reason as one; and of which sources only one was believed.
pub(super) fn gathered(
    notes: Vec<String>,
    chosen: &BTreeMap<Signal, BTreeSet<Source>>,
    found: &BTreeMap<Signal, SignalStat>,
) -> Vec<String> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for note in notes {
        let lacks = note.starts_with("n/a: ");
        let plain = note.strip_prefix("n/a: ").unwrap_or(&note);
        let (signal, why) = plain.split_once(": ").unwrap_or((plain, ""));
        let why = if lacks { format!("n/a: {why}") } else { why.to_owned() };
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, signals)) => signals.push(signal.to_owned()),
            None => by_reason.push((why, vec![signal.to_owned()])),
        }
    }
    let told = by_reason.into_iter().map(|(why, signals)| match why.strip_prefix("n/a: ") {
        Some(why) => format!("n/a: {}: {why}", listed(&signals, chosen)),
        None => format!("{}: {why}.", listed(&signals, chosen)),
    });
    told.chain(several(chosen, found)).collect()
}

/// Their names; where they are all that were told of a scope, and several, that scope's.
fn listed(signals: &[String], chosen: &BTreeMap<Signal, BTreeSet<Source>>) -> String {
    let mut names: Vec<String> = Vec::new();
    for signal in signals {
        let scope = signal.split('.').next().unwrap_or_default();
        let told: Vec<&str> = chosen.keys().filter(|own| own.scope() == scope).map(|own| own.name()).collect();
        let whole = told.len() > 1 && told.iter().all(|own| signals.iter().any(|named| named == own));
        let name = if whole { format!("{scope}.*") } else { signal.clone() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn several(chosen: &BTreeMap<Signal, BTreeSet<Source>>, found: &BTreeMap<Signal, SignalStat>) -> Vec<String> {
    let mut by_sources: BTreeMap<&BTreeSet<Source>, Vec<&str>> = BTreeMap::new();
    for (signal, sources) in chosen.iter().filter(|(signal, sources)| sources.len() > 1 && found.contains_key(signal)) {
        by_sources.entry(sources).or_default().push(signal.name());
    }
    let line = |(sources, signals): (&BTreeSet<Source>, Vec<&str>)| {
        let names: Vec<&str> = sources.iter().map(|source| source.name()).collect();
        let first = names.first().copied().unwrap_or_default();
        format!("{}: told by {}; the values of {first} are taken.", signals.join(", "), names.join(" and "))
    };
    by_sources.into_iter().map(line).collect()
}
