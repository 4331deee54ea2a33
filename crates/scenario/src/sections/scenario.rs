//! The top-level keys; `audit` and `rounds`.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Default, Field, Kind, Leaf, field};
use crate::sections::{Draft, baseline, dataset, load, mix, reference, report, request, search, slo, target, telemetry};
use crate::tree::{Data, Node};
use crate::values::number::{SEED, SHARE, share};
use crate::values::text::NAME;
use crate::values::time::{DURATION, SPAN, duration};
use crate::values::{expect, object_schema};
use llmscen_core::plan::{AuditLimits, Case};

/// The top-level keys.
pub(crate) static SCENARIO: Block = Block {
    doc: "An llmscen scenario: a versioned plan for one benchmark of an LLM inference server.",
    short: None,
    fields: &[
        field("version", Kind::Whole(1, 1), "Version of this format.").required().example("1"),
        field("name", Kind::Leaf(&NAME), "Name of the run folder.").required().example("chat"),
        field("description", Kind::Text, "One line for the top of the report.").example("Nightly gate"),
        field("extends", Kind::Text, "A base scenario: this one is merged into it, mappings are merged, lists are replaced; `presets` can add limits.")
            .example("base.yaml"),
        field("vars", Kind::Map(&Kind::Json), "Values for `{{ vars.x }}` in any text of the file.")
            .example("{ url: \"${LLM_URL}\" }"),
        field(
            "seed",
            Kind::Leaf(&SEED),
            "Seed of all random choices. `run` draws a new one for each run; the run's `plan.yaml` and report contain it, and `--seed N` repeats it.",
        )
        .default("42")
        .example("run"),
        field(
            "cache_seed",
            Kind::Leaf(&SEED),
            "Seed of `dataset.cache_bust`. `run` draws a new one for each run, so that no cache contains the prompts of an earlier run; a number repeats them. The run's `plan.yaml` contains the number.",
        )
        .default("run")
        .example("7"),
        field("target", Kind::Block(&target::TARGET), "The server under test.").required().example("{ url: simulator }"),
        field("request", Kind::Block(&request::REQUEST), "The content of requests.")
            .defaults(Default::Empty)
            .example("{ max_tokens: 256 }"),
        field(
            "dataset",
            Kind::Block(&dataset::DATASET),
            "The source of the prompts.",
        )
        .required_unless("mix")
        .example("openqa"),
        field(
            "mix",
            Kind::List(&Kind::Block(&mix::MIX)),
            "Several traffic classes under one load, each with its own request and dataset; reported separately and together. If each has a `dataset`, the scenario needs none.",
        )
        .example("[{ name: chat, weight: 3 }, { name: summarise, request: { max_tokens: 512 } }]"),
        field("load", Kind::Block(&load::LOAD), "Type and length of the load.")
            .required()
            .example("{ concurrency: 8, requests: 100 }"),
        field("matrix", Kind::Matrix, "Lists of values for any path; the cases are their product.")
            .example("{ load.concurrency: [1, 8, 64] }"),
        field("rounds", Kind::Leaf(&ROUNDS), "Number of rounds per case, interleaved. `{ count: 5, restart: true }` restarts a managed server between the rounds, so that rounds include the variation between server starts.")
            .default("1")
            .example("{ count: 5, restart: true }"),
        field("pause", Kind::Leaf(&DURATION), "Pause between cases.").default("0s").example("5s"),
        field("slo", Kind::List(&Kind::Block(&slo::SLO)), "The objectives of the run.")
            .example("[\"ttft.p95 < 500ms\"]"),
        field("search", Kind::Block(&search::SEARCH), "Finds the largest load that meets all limits.")
            .example("{ vary: load.concurrency, range: [1, 1024] }"),
        field("report", Kind::Block(&report::REPORT), "Output formats and folder.")
            .defaults(Default::Empty)
            .example("{ formats: [md, junit] }"),
        field("audit", Kind::Block(&AUDIT), "Thresholds of the load-generator self-audit.")
            .defaults(Default::Empty)
            .example("{ lag_p99: 10ms }"),
        field("telemetry", Kind::Block(&telemetry::TELEMETRY), "What is sampled during the run: GPUs, and the resources of llmscen, a managed server and the host.")
            .defaults(Default::Empty)
            .example("{ interval: 500ms }"),
        field("presets", Kind::Map(&Kind::List(&Kind::Block(&slo::SLO))), "Named limits for `{ preset: name }` in `slo`: because mappings are merged, a file adds them to those of its base.")
            .example("{ own/chat: [{ expr: ttft.p95 < 500ms }, { expr: error_rate < 1% }] }"),
        field("baseline", Kind::Leaf(&baseline::BASELINE), "The earlier run for limits such as `<= 1.10 * baseline`: a file from `llmscen baseline update`, or a run folder; `none` if there is none yet. `{ path, if_missing: inconclusive }` also runs without the file.")
            .example("baselines/chat.json"),
        field("reference", Kind::Leaf(&reference::REFERENCE), "Values for limits such as `>= 0.95 * reference`: metric → a value, or values per case; a value may be `{ value, low, high }` or `{ value, sd }`.")
            .example("{ output_tps: { \"load.concurrency=1\": 420, \"load.concurrency=16\": 3100 } }"),
    ],
};

/// The name of the section with this block.
pub(crate) fn section_of(block: &'static Block) -> Option<&'static str> {
    let has_block = |field: &&Field| matches!(field.kind, Kind::Block(section) if std::ptr::eq(section, block));
    SCENARIO.fields.iter().find(has_block).map(|field| field.name)
}

pub(crate) static AUDIT: Block = Block {
    doc: "Thresholds of the self-audit. A verdict that delays and stalls of the load generator could have changed is INVALID.",
    short: None,
    fields: &[
        field("achieved", Kind::Leaf(&SHARE), "Open loop: minimum achieved rate as a share of the offered rate.")
            .default("98%")
            .example("95%"),
        field("idle", Kind::Leaf(&SHARE), "Closed loop: maximum share of time that users wait for the load generator.")
            .default("10%")
            .example("20%"),
        field("stalled", Kind::Leaf(&SHARE), "Maximum share of time that a worker thread is stalled.")
            .default("5%")
            .example("10%"),
        field("cpu", Kind::Leaf(&SHARE), "Maximum CPU use of a worker thread, as a share of one core.")
            .default("90%")
            .example("80%"),
        field("cache", Kind::Leaf(&SHARE), "Maximum share of unique prompts that come from the server's prefix cache.")
            .default("1%")
            .example("5%"),
        field("lag_p99", Kind::Leaf(&SPAN), "Send delays whose p99 is at most this are ignored.").default("1ms").example("10ms"),
        field("stall_p99", Kind::Leaf(&SPAN), "Stalls of a worker thread that are at most this long are ignored.")
            .default("1ms")
            .example("10ms"),
    ],
};

pub(crate) fn decode_audit(draft: &Draft<'_>) -> Option<AuditLimits> {
    Some(AuditLimits {
        lag_p99: draft.read("audit.lag_p99", duration)?,
        achieved: draft.read("audit.achieved", share)?,
        cpu: draft.read("audit.cpu", share)?,
        stall_p99: draft.read("audit.stall_p99", duration)?,
        idle: draft.read("audit.idle", share)?,
        stalled: draft.read("audit.stalled", share)?,
        cache: draft.read("audit.cache", share)?,
    })
}

const EXPECTED: &str = "a whole number from 1 to 1000";
const EXAMPLE: &str = "`rounds: 3`, or `rounds: { count: 5, restart: true }`";
const KEYS: [&str; 2] = ["count", "restart"];
const MOST: i64 = 1000;

/// A number, or a number with `restart`.
pub(crate) static ROUNDS: Leaf = Leaf {
    expected: "a whole number from 1 to 1000, or `{ count, restart }`",
    sweepable: true,
    schema: || {
        let count = serde_json::json!({ "type": "integer", "minimum": 1, "maximum": MOST });
        let keys = serde_json::json!({ "count": count, "restart": { "type": "boolean" } });
        serde_json::json!({ "anyOf": [count, object_schema(keys, &["count"])] })
    },
    check: check_rounds,
};

/// The rounds of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    /// Number of rounds per case.
    pub count: u32,
    /// Whether the server is restarted before each round after the first.
    pub restart: bool,
}

fn check_rounds(node: &Node, review: &mut Review) {
    if !matches!(node.data, Data::Map(_)) {
        if read_count(node).is_none() {
            expect(node, EXPECTED, EXAMPLE, review);
        }
        return;
    }
    for entry in node.entries().iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
        let mistake = Mistake::new(entry.key_at, format!("unknown key `{}`", entry.key), "not a key of `rounds`");
        review.push(mistake.help("Keys of `rounds` are `count` and `restart`."));
    }
    let Some(count) = node.get("count") else {
        review
            .push(Mistake::new(node.at, "`rounds` needs `count`", "`count` is missing").help(format!("For example {EXAMPLE}.")));
        return;
    };
    if !count.is_open() && read_count(count).is_none() {
        "count".clone_into(&mut review.key);
        expect(count, EXPECTED, EXAMPLE, review);
    }
    if let Some(restart) = node.get("restart").filter(|node| !node.is_open() && !matches!(node.data, Data::Bool(_))) {
        "restart".clone_into(&mut review.key);
        expect(restart, "`true` or `false`", EXAMPLE, review);
    }
}

fn read_count(node: &Node) -> Option<u32> {
    node.integer().filter(|n| (1..=MOST).contains(n)).and_then(|n| u32::try_from(n).ok())
}

/// None where the value is invalid.
pub(crate) fn decode_rounds(node: &Node) -> Option<Rounds> {
    match node.get("count") {
        Some(count) => {
            let restart = node.get("restart").is_some_and(|restart| restart.data == Data::Bool(true));
            Some(Rounds { count: read_count(count)?, restart })
        }
        None => Some(Rounds { count: read_count(node)?, restart: false }),
    }
}

/// Reports `restart` for a server that the run does not start.
pub(crate) fn check_restart(root: &Node, cases: &[Case], review: &mut Review) {
    let restart = root
        .get("rounds")
        .filter(|rounds| decode_rounds(rounds).is_some_and(|rounds| rounds.restart))
        .and_then(|rounds| rounds.entry("restart"));
    // A `server` with errors counts too.
    let has_server = root.get("target").is_some_and(|target| target.entry("server").is_some());
    let Some(entry) = restart.filter(|_| !has_server && cases.iter().any(|case| case.target.server.is_none())) else { return };
    let label = "the run does not start this target";
    let mistake = Mistake::new(entry.key_at, "`rounds.restart` needs a managed server", label);
    let mistake = mistake.also_if(root.entry_at("target").map(|target| target.key_at), "has no `server`");
    review.push(mistake.help("Add `target.server`, for example `server: { preset: vllm }`, or remove `restart`."));
}

#[cfg(test)]
mod tests {
    use crate::tests::{load_with, messages, plan};

    const BASE: &str = "version: 1\nname: t\ndataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 2 }\n";
    const MANAGED: &str =
        "target: { url: \"http://127.0.0.1:9/v1/chat/completions\", model: m, server: { command: s, ready: { log: up } } }\n";

    fn rounds(text: &str) -> (u32, bool) {
        let plan = plan(&format!("{BASE}{MANAGED}{text}"));
        (plan.rounds, plan.restart)
    }

    #[test]
    fn rounds_are_a_number_or_a_mapping_with_restart() {
        assert_eq!((rounds(""), rounds("rounds: 3\n")), ((1, false), (3, false)));
        assert_eq!(rounds("rounds: { count: 5, restart: true }\n"), (5, true));
        assert_eq!(
            (rounds("rounds: { count: 5 }\n"), rounds("rounds: { count: 5, restart: false }\n")),
            ((5, false), (5, false))
        );
        let again = plan(&plan(&format!("{BASE}{MANAGED}rounds: {{ count: 5, restart: true }}\n")).resolved);
        assert_eq!((again.rounds, again.restart), (5, true), "a stored plan says it too");
    }

    #[test]
    fn restart_needs_a_managed_server() {
        let faults = |target: &str, text: &str| messages(load_with(&format!("{BASE}{target}{text}"), &[], &[]));
        let simulator = "target: { url: simulator, model: m }\n";
        assert_eq!(
            faults(simulator, "rounds: { count: 5, restart: true }\n"),
            ["t.yaml:6:21 `rounds.restart` needs a managed server"]
        );
        assert!(load_with(&format!("{BASE}{simulator}rounds: {{ count: 5, restart: false }}\n"), &[], &[]).is_ok());
        for (wrong, has_server) in [
            ("rounds: 0\n", "t.yaml:6:9 `rounds` must be a whole number from 1 to 1000"),
            ("rounds: { count: 0 }\n", "t.yaml:6:18 `count` must be a whole number from 1 to 1000"),
            ("rounds: { restart: true }\n", "t.yaml:6:9 `rounds` needs `count`"),
            ("rounds: { count: 2, restart: 1 }\n", "t.yaml:6:30 `restart` must be `true` or `false`"),
            ("rounds: { count: 2, anew: true }\n", "t.yaml:6:21 unknown key `anew`"),
        ] {
            assert_eq!(faults(MANAGED, wrong), [has_server]);
        }
    }
}
