//! Seeds: a whole number, or `run` for a new one in each run.

use crate::fault::Review;
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::expect;
use serde_json::json;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};

const EXPECTED: &str = "a whole number, 0 or more, or `run`";
/// The word for a new seed in each run.
const RUN: &str = "run";
/// Drawn seeds are below this: as short as can be without coming twice.
const DRAWN: u64 = 1_000_000_000_000;

/// What random choices derive from.
pub(crate) static SEED: Leaf = Leaf { expected: EXPECTED, sweepable: false, schema, check };

/// The number that a node holds; None for `run`.
pub(crate) fn seed(node: &Node) -> Option<u64> {
    u64::try_from(node.whole()?).ok()
}

fn is_run(node: &Node) -> bool {
    node.text().is_some_and(|text| text == RUN)
}

fn check(node: &Node, review: &mut Review) {
    if seed(node).is_none() && !is_run(node) {
        expect(node, EXPECTED, "", review);
    }
}

fn schema() -> serde_json::Value {
    json!({ "anyOf": [{ "type": "integer", "minimum": 0, "maximum": i64::MAX }, { "const": RUN }] })
}

/// Draws each seed that is new in each run and that something uses, so that the resolved plan repeats this run.
pub(crate) fn draw(root: &mut Node, swept: &BTreeSet<String>) {
    let entries = root.get("mix").map_or(0, |mix| mix.items().len());
    let paths = (0..entries).map(|index| format!("mix.{index}.dataset.cache_bust")).chain(["dataset.cache_bust".to_owned()]);
    let busts = |path: String| swept.contains(&path) || root.get(&path).is_some_and(|node| node.data == Data::Bool(true));
    let used = if paths.into_iter().any(busts) { &["seed", "cache_seed"][..] } else { &["seed"] };
    for path in used {
        if let Some(entry) = root.entry_at(path).filter(|entry| is_run(&entry.value)).cloned() {
            let drawn = RandomState::new().build_hasher().finish() % DRAWN;
            root.set(path, entry.key_at, Node::new(entry.value.at, Data::Int(drawn as i64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn plan(dataset: &str, more: &str) -> llmscen_core::plan::Plan {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: http://h/v1/chat/completions, model: m }}\ndataset: {dataset}\n\
             load: {{ concurrency: 1, requests: 1 }}\n{more}"
        );
        load(&Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] }).unwrap().plan
    }

    #[test]
    fn a_seed_of_the_run_is_drawn_once_and_stored() {
        let random = "{ kind: random, tokens: 8 }";
        let (one, other) = (plan(random, "seed: run\n"), plan(random, "seed: run\n"));
        assert_ne!(one.seed, other.seed);
        assert!(
            one.resolved.contains(&format!("seed: {}\n", one.seed.0)) && !one.resolved.contains("\nseed: run"),
            "{}",
            one.resolved
        );
        assert_eq!(plan(random, "").seed.0, 42);
        assert_eq!(plan(random, "seed: 7\n").seed.0, 7);
    }

    #[test]
    fn a_cache_seed_is_drawn_only_where_it_is_used() {
        let bust = "{ kind: random, tokens: 8, cache_bust: true }";
        let seed = |dataset: &str, more: &str| plan(dataset, more).cases.remove(0).dataset.cache_seed;
        assert!(seed(bust, "").is_some() && seed(bust, "") != seed(bust, ""));
        assert_eq!(seed(bust, "cache_seed: 7\n").map(|seed| seed.0), Some(7));
        let unused = plan("{ kind: random, tokens: 8 }", "");
        assert!(
            unused.resolved.contains("cache_seed: run") && unused.cases[0].dataset.cache_seed.is_none(),
            "{}",
            unused.resolved
        );
        let swept = plan("{ kind: random, tokens: 8 }", "matrix: { dataset.cache_bust: [false, true] }\n");
        assert!(swept.cases.iter().all(|case| case.dataset.cache_seed.is_some()));
    }
}
