//! `presets`: named limits, the tool's own and those of a scenario. Each is replaced by what it stands for.

use crate::fault::{Mistake, Review};
use crate::suggest::{list, near};
use crate::tree::{Data, Entry, Node, Span};

/// Limits on TTFT and TPOT at p99, milliseconds: the server and the interactive scenario of MLPerf Inference's language models.
const MLPERF: [(&str, u32, u32); 11] = [
    ("mlperf/llama2-70b-server", 2000, 200),
    ("mlperf/llama2-70b-interactive", 450, 40),
    ("mlperf/llama3.1-405b-server", 6000, 175),
    ("mlperf/llama3.1-405b-interactive", 4500, 80),
    ("mlperf/llama3.1-8b-server", 2000, 100),
    ("mlperf/llama3.1-8b-interactive", 500, 30),
    ("mlperf/mixtral-8x7b-server", 2000, 200),
    ("mlperf/deepseek-r1-server", 2000, 80),
    ("mlperf/deepseek-r1-interactive", 1500, 15),
    ("mlperf/gpt-oss-120b-server", 3000, 80),
    ("mlperf/gpt-oss-120b-interactive", 2000, 15),
];

/// Words per minute that a person takes in; no token may come later than they need it.
const READING: [(&str, f64); 3] = [("reading/silent", 250.0), ("reading/listening", 450.0), ("reading/visual", 700.0)];
/// Tokens of an English word, unless told.
const TOKENS_PER_WORD: f64 = 1.5;
/// The keys that only reading speeds have.
const PACE: [&str; 2] = ["words_per_minute", "tokens_per_word"];

/// Replaces every preset in `slo` by its limits, and takes `presets` away: what it said stands there now.
pub(crate) fn expand(root: &mut Node, review: &mut Review) {
    let own = root.remove("presets");
    let own = own.as_ref().map(|entry| entry.value.entries()).unwrap_or_default();
    let Some(slo) = root.entry_at("slo").cloned() else { return };
    if !matches!(slo.value.data, Data::List(_)) {
        return;
    }
    review.section = "slo".to_owned();
    let items = slo.value.items().iter().flat_map(|item| limits(item, own, review)).collect();
    let value = Node { data: Data::List(items), ..slo.value };
    root.set("slo", slo.key_at, value);
    review.section.clear();
}

fn limits(item: &Node, own: &[Entry], review: &mut Review) -> Vec<Node> {
    let Some(preset) = item.entry_at("preset") else {
        if let Some(entry) = PACE.iter().find_map(|key| item.entry_at(key)) {
            paceless(entry, review);
        }
        return vec![item.clone()];
    };
    if let Some(expr) = item.entry_at("expr") {
        let mistake = Mistake::new(expr.key_at, "a limit is an `expr` or a `preset`", "both are here");
        review.push(mistake.also(preset.key_at, "the other one").help("Write two items."));
        return Vec::new();
    }
    let Some(name) = preset.value.text() else { return Vec::new() };
    let at = preset.value.at;
    let reading = READING.iter().find(|(own, _)| *own == name);
    if reading.is_none()
        && let Some(entry) = PACE.iter().find_map(|key| item.entry_at(key))
    {
        paceless(entry, review);
    }
    if let Some(user) = own.iter().find(|entry| entry.key == name) {
        return user.value.items().iter().filter_map(|limit| inherited(limit, item, review)).collect();
    }
    let mlperf = MLPERF.iter().find(|(own, ..)| *own == name);
    let exprs = match (mlperf, reading) {
        (Some((_, ttft, tpot)), _) => vec![format!("ttft.p99 <= {ttft}ms"), format!("tpot.p99 <= {tpot}ms")],
        (None, Some((_, words))) => vec![pace(item, *words)],
        (None, None) => {
            review.push(unknown(at, &name, own));
            return Vec::new();
        }
    };
    exprs.into_iter().map(|expr| with(item, expr, at)).collect()
}

/// TPOT = 60 s / (words per minute × tokens per word), in tenths of a millisecond.
fn pace(item: &Node, words: f64) -> String {
    let said = |key: &str, usual: f64| item.get(key).and_then(Node::number).unwrap_or(usual);
    let tpot = 60_000.0 / (said(PACE[0], words) * said(PACE[1], TOKENS_PER_WORD));
    format!("tpot.p95 <= {}ms", (tpot * 10.0).round() / 10.0)
}

/// The item with a limit in place of the preset.
fn with(item: &Node, expr: String, at: Span) -> Node {
    let keep = |entry: &&Entry| entry.key != "preset" && !PACE.contains(&entry.key.as_str());
    let expr = Entry { key: "expr".to_owned(), key_at: at, value: Node::new(at, Data::Text(expr)) };
    let entries = std::iter::once(expr).chain(item.entries().iter().filter(keep).cloned()).collect();
    Node { data: Data::Map(entries), ..item.clone() }
}

/// A limit of a user's preset; what the item itself says wins.
fn inherited(limit: &Node, item: &Node, review: &mut Review) -> Option<Node> {
    if let Some(inner) = limit.entry_at("preset") {
        let mistake = Mistake::new(inner.key_at, "a preset within a preset", "stands for limits only");
        review.push(mistake.help("Name both presets in `slo`, one item each."));
        return None;
    }
    let mut made = limit.clone();
    for entry in item.entries().iter().filter(|entry| entry.key != "preset" && !PACE.contains(&entry.key.as_str())) {
        made.put(&entry.key, entry.key_at, entry.value.clone());
    }
    Some(made)
}

fn paceless(entry: &Entry, review: &mut Review) {
    let mistake = Mistake::new(entry.key_at, format!("`{}` without a reading speed", entry.key), "goes with `preset: reading/…`");
    review.push(mistake.help(format!("Reading speeds are {}.", list(READING.iter().map(|(name, _)| *name), "and"))));
}

fn unknown(at: Span, name: &str, own: &[Entry]) -> Mistake {
    let tools = MLPERF.iter().map(|(name, ..)| *name).chain(READING.iter().map(|(name, _)| *name));
    let names: Vec<&str> = own.iter().map(|entry| entry.key.as_str()).chain(tools).collect();
    let label = near(name, names.iter().copied()).map_or("does not exist".to_owned(), |near| format!("did you mean `{near}`?"));
    let help = format!("Presets are {}. Your own stand in `presets`.", list(names.iter().copied(), "and"));
    Mistake::new(at, format!("unknown preset `{name}`"), label).help(help)
}
