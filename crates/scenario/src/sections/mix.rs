//! `mix`: several traffic classes under one load.

use crate::draft::{Draft, headers};
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field, one_of, requires};
use crate::sections::{dataset, load, request, slo};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node};
use crate::values::load::{ARRIVALS, RATE, Rate, arrivals, rate};
use crate::values::text::NAME;
use crate::{defaults, rules, tree};
use llmscen_core::api::Api;
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::mix::{EntryLoad, MixEntry};
use std::collections::BTreeSet;

pub(crate) static MIX: Block = Block {
    doc: "Traffic classes that share one load. With `weight` each request is drawn \
    from the seed, and `load` can have any shape; with `rate` or `stages` each entry \
    has its own arrivals, and `load` has the rest. In a limit, `group=NAME` selects \
    the requests of one entry; if its dataset has groups, they are `NAME/GROUP`. The \
    requests of an entry do not depend on the others: each has its own seed, and `{{ \
    seq }}` counts per entry; entries with the same dataset share its rows. In a \
    matrix or `--set`, `mix.NAME.weight` is a path.",
    short: None,
    fields: &[
        field(
            "name",
            Kind::Leaf(&NAME),
            "Name of this traffic class; used as the `group` tag in results.",
        )
        .required()
        .example("chat"),
        field(
            "weight",
            Kind::Number(0.0, 1e9),
            "Its share of the requests, relative to the sum of all weights. The default is 1, \
            unless entries have arrivals.",
        )
        .example("3"),
        field(
            "rate",
            Kind::Leaf(&RATE),
            "Arrival rate of this entry (open loop); then every entry needs a `rate` \
            or `stages`, and `load` has no shape.",
        )
        .example("5/s")
        .rules(&[one_of(&ARRIVAL_KEYS, "arrivals here").help("Keep one of them.")]),
        field(
            "stages",
            Kind::List(&Kind::Block(&load::STAGE)),
            "Arrivals of this entry in stages with a `rate`; the entry ends with its last stage.",
        )
        .example("[{ rate: 1/s -> 5/s, for: 1m }]")
        .rules(&[one_of(&ARRIVAL_KEYS, "arrivals here").help("Keep one of them.")]),
        field(
            "arrivals",
            Kind::Leaf(&ARRIVALS),
            "Arrival process of this entry; by default `load.arrivals`.",
        )
        .example("{ gamma: 0.5 }")
        .rules(&[requires(&["rate", "stages"])
            .reason("no arrivals here")
            .help("With `weight`, `load.arrivals` is that of all entries.")]),
        field(
            "headers",
            Kind::Map(&Kind::Secret),
            "Further headers of its requests, such as the \
        priority or the objective for a gateway; they override those of `target.headers`. An API \
        key among them replaces that of the target.",
        )
        .example("{ x-priority: high }"),
        field(
            "slo",
            Kind::List(&Kind::Block(&slo::SLO)),
            "Objectives of this entry: as in `slo`, \
        with the tag `group=NAME`.",
        )
        .example("[\"ttft.p95 < 200ms\"]"),
        field(
            "request",
            Kind::Over(&request::REQUEST),
            "Keys that override those of `request`.",
        )
        .example("{ max_tokens: 64 }"),
        field(
            "dataset",
            Kind::Block(&dataset::DATASET),
            "Replaces `dataset`.",
        )
        .example("{ kind: prompt, text: Hi }"),
    ],
};

fn mix_items(root: &Node) -> &[Node] {
    root.items_at("mix")
}

/// The keys with the arrivals of an entry.
const ARRIVAL_KEYS: [&str; 2] = ["rate", "stages"];

fn arrival_entry(item: &Node) -> Option<&Entry> {
    ARRIVAL_KEYS.iter().find_map(|key| item.entry(key))
}

/// Whether an entry has its own arrivals.
pub(crate) fn has_arrivals(root: &Node) -> bool {
    mix_items(root)
        .iter()
        .any(|item| arrival_entry(item).is_some())
}

/// The arrivals of the entries. Reports stages without requests. None where an entry has none.
pub(crate) fn shapes(draft: &Draft<'_>, review: &mut Review) -> Option<Vec<Shape>> {
    mix_items(draft.root)
        .iter()
        .map(|item| shape(draft, item, review))
        .collect()
}

fn shape(draft: &Draft<'_>, item: &Node, review: &mut Review) -> Option<Shape> {
    let own = item.get("arrivals").or(draft.get("load.arrivals"));
    let arrival = own.map_or(Some(Arrival::Poisson), arrivals);
    if let Some(list) = item.entry("stages") {
        return load::decode_stages(list, arrival, review);
    }
    match item.get("rate").and_then(rate)? {
        Rate::PerSecond(rate) => Some(Shape::Open {
            rate,
            arrival: arrival?,
        }),
        Rate::Burst => None,
    }
}

/// Writes the defaults: weights of 1, or Poisson arrivals.
pub(crate) fn normalize(root: &mut Node, swept: &dyn Fn(&str) -> bool) {
    if has_arrivals(root) {
        if root.get("load.arrivals").is_none()
            && !swept("load.arrivals")
            && root.get("load").is_some()
        {
            let at = root.at.before();
            root.set(
                "load.arrivals",
                at,
                Node::new(at, Data::Text("poisson".to_owned())),
            );
        }
        return;
    }
    for index in 0..mix_items(root).len() {
        let at = root.at;
        let at = at.before();
        if root.get(&format!("mix.{index}.weight")).is_none() {
            root.set(
                &format!("mix.{index}.weight"),
                at,
                Node::new(at, Data::Int(1)),
            );
        }
    }
}

/// The entries of a case; empty without a mix. Reports contradictions; None where there is an error.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Vec<MixEntry>> {
    let Some(mix) = draft.entry("mix") else {
        return Some(Vec::new());
    };
    let items = mix.value.items();
    let before = review.count();
    if items.is_empty() {
        let mistake = Mistake::new(mix.value.at, "a mix without entries", "is empty");
        review.push(mistake.help(
            "For example `mix: [{ name: chat, weight: 3 }, { name: summarize \
        }]`, or leave `mix` out.",
        ));
    }
    check_names(items, review);
    check_weights(items, review);
    warn_unused_dataset(draft, review);
    let entries: Vec<Option<MixEntry>> = items
        .iter()
        .map(|item| decode_entry(draft, item, review))
        .collect();
    let entries: Option<Vec<MixEntry>> = entries.into_iter().collect();
    (review.count() == before)
        .then_some(entries)
        .flatten()
        .inspect(|entries| check_streams(draft, entries, review))
}

fn check_names(items: &[Node], review: &mut Review) {
    let mut names: Vec<(String, tree::Span)> = Vec::new();
    for node in items.iter().filter_map(|item| item.get("name")) {
        let name = node.text().unwrap_or_default().into_owned();
        match names.iter().find(|(other, _)| *other == name) {
            Some((_, first)) => {
                let mistake = Mistake::new(
                    node.at,
                    format!("two entries have the name `{name}`"),
                    "the second one",
                );
                review.push(
                    mistake
                        .also(*first, "the first one")
                        .help("Each `mix` entry needs a unique `name`; results are grouped by it."),
                );
            }
            None => names.push((name, node.at)),
        }
    }
}

/// Reports weights combined with arrivals, bursts, stages with users, and weights that are all 0.
fn check_weights(items: &[Node], review: &mut Review) {
    let with_arrivals = items.iter().find_map(arrival_entry);
    let weighed = |item: &'_ Node| item.entry_at("weight").map(|entry| entry.key_at);
    let Some(with_arrivals) = with_arrivals else {
        let weights = items.iter().filter_map(|item| item.get("weight"));
        let at = weights.clone().next().map(|node| node.at);
        if let Some(at) = at.filter(|_| weights.filter_map(Node::number).sum::<f64>() <= 0.0) {
            let mistake = Mistake::new(at, "all weights are 0", "no request would be sent");
            review.push(mistake.help("At least one entry needs a weight above 0."));
        }
        return;
    };
    for item in items {
        let odd = weighed(item).or_else(|| {
            arrival_entry(item)
                .is_none()
                .then_some(item.get("name").map_or(item.at, |name| name.at))
        });
        if let Some(at) = odd {
            let label = if weighed(item).is_some() {
                "a weight"
            } else {
                "no arrivals"
            };
            let mistake = Mistake::new(at, "a mix needs either weights or arrivals", label)
                .also(with_arrivals.key_at, "arrivals here");
            review.push(mistake.help(
                "Give every entry a `rate` or `stages`, or every entry a `weight` \
                    and `load` the rate.",
            ));
        } else if let Some(node) = item
            .get("rate")
            .filter(|node| rate(node) == Some(Rate::Burst))
        {
            let mistake = Mistake::new(
                node.at,
                "an entry cannot be a burst",
                "needs a rate such as `5/s`",
            );
            review.push(
                mistake.help(
                    "`load: { rate: burst }` with weights sends all requests of a mix at once.",
                ),
            );
        }
        let stages = item.items_at("stages");
        if let Some(users) = stages.iter().find_map(|stage| stage.entry("concurrency")) {
            let mistake = Mistake::new(
                users.key_at,
                "stages of an entry have rates",
                "a closed loop here",
            );
            review.push(mistake.help(
                "Write a `rate`, or `load.stages` with users and a `weight` for each entry.",
            ));
        }
    }
}

/// Warns of a `dataset` that no entry uses.
fn warn_unused_dataset(draft: &Draft<'_>, review: &mut Review) {
    let unused = || {
        draft.written("dataset").filter(|_| {
            mix_items(draft.root)
                .iter()
                .all(|item| item.get("dataset").is_some())
        })
    };
    if let Some(entry) = unused() {
        review.warn(
            entry.key_at,
            "every entry of `mix` has a `dataset`: this one is not used",
        );
    }
}

/// Reports swept or searched paths of entries that do not exist.
pub(crate) fn check_axes(root: &Node, axes: &BTreeSet<String>, review: &mut Review) {
    let items = mix_items(root);
    let names: Vec<String> = items
        .iter()
        .filter_map(|item| item.get("name")?.string())
        .collect();
    let names = || names.iter().map(String::as_str);
    for path in axes {
        let Some((name, _)) = path
            .strip_prefix("mix.")
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        let index = name.parse().is_ok_and(|index: usize| index < items.len());
        if index || names().any(|known| known == name) {
            continue;
        }
        let label = meant_or(nearest(name, names()), "has no such entry");
        let section = if root.get("search.vary").and_then(Node::text).as_deref() == Some(path) {
            "search"
        } else {
            "matrix"
        };
        let at = root.entry_at(section).map_or(root.at, |entry| entry.key_at);
        let mistake = Mistake::new(
            at,
            format!("`{path}` does not refer to an entry of `mix`"),
            label,
        );
        let exist = if items.is_empty() {
            "There is no `mix`.".to_owned()
        } else {
            format!("Entries are {}.", list(names(), "and"))
        };
        review.section = section.to_owned();
        review.push(mistake.help(exist));
    }
}

/// Decodes an entry, which inherits from the scenario.
fn decode_entry(draft: &Draft<'_>, item: &Node, review: &mut Review) -> Option<MixEntry> {
    let name = item.get("name")?.string()?;
    if item.get("dataset").or(draft.get("dataset.kind")).is_none() {
        let mistake = Mistake::new(
            item.get("name")?.at,
            format!("`{name}` has no dataset"),
            "needs a dataset",
        );
        review
            .push(mistake.help("Give it a `dataset`, or set one for all entries that have none."));
        return None;
    }
    for (key, message) in [
        ("extract", "entries of a mix share `extract`"),
        ("keep", "entries of a mix share `keep`"),
    ] {
        if let Some(entry) = item.entry_at(&format!("request.{key}")) {
            let mistake = Mistake::new(entry.key_at, message, "cannot differ");
            review.push(mistake.help(format!(
                "Write `{key}` into the top-level `request`: it applies to all entries."
            )));
        }
    }
    let root = scenario_of_entry(draft, item);
    let line = Draft {
        root: &root,
        ..*draft
    };
    rules::check(&line, "dataset", true, review);
    let dataset = dataset::decode(&line, review);
    rules::check(&line, "request", true, review);
    let request = request::decode(&line, review);
    let load = match arrival_entry(item) {
        Some(_) => EntryLoad::Arrivals(shape(draft, item, review)?),
        None => EntryLoad::Weight(item.get("weight").and_then(Node::number)?),
    };
    let headers = headers(item.entries_at("headers"), review);
    Some(MixEntry {
        name,
        load,
        headers,
        request: request?,
        dataset: dataset?,
    })
}

/// The scenario with this entry alone.
fn scenario_of_entry(draft: &Draft<'_>, item: &Node) -> Node {
    let mut root = draft.root.clone();
    root.remove("mix");
    if let Some(data) = item.entry_at("dataset") {
        root.set_key("dataset", data.key_at, data.value.clone());
    }
    for entry in item.get("request").map(Node::entries).unwrap_or_default() {
        root.set(
            &format!("request.{}", entry.key),
            entry.key_at,
            entry.value.clone(),
        );
    }
    let axes: &BTreeSet<String> = draft.axes;
    defaults::fill(&mut root, draft.table, &|path| axes.contains(path));
    root
}

/// Reports entries that differ in `stream` where the protocol's path depends on it.
fn check_streams(draft: &Draft<'_>, entries: &[MixEntry], review: &mut Review) {
    let differs_by_stream = |api: &Api| api.path(true) != api.path(false);
    let Some(api) = draft.api().filter(differs_by_stream) else {
        return;
    };
    let mut streams = entries.iter().map(|entry| entry.request.stream);
    let first = streams.next();
    if streams.any(|stream| Some(stream) != first) {
        let mistake = Mistake::new(
            draft.key_span("mix"),
            "entries of a mix share one path",
            "some are streamed, some are not",
        );
        review.push(mistake.help(format!(
            "The path of {api} depends on streaming: set the same `stream` for all entries."
        )));
    }
}

#[cfg(test)]
mod tests;
