//! The whole file.

use crate::schema_table::{Block, Default, Field, Kind, field};
use crate::sections::{audit, baseline, dataset, load, mix, reference, report, request, rounds, search, slo, target, telemetry};
use crate::values::duration::DURATION;
use crate::values::seed::SEED;
use crate::values::word::NAME;

/// The keys of a scenario.
pub(crate) static SCENARIO: Block = Block {
    doc: "An llmscen scenario: a versioned plan for one benchmark of an LLM inference server.",
    short: None,
    fields: &[
        field("version", Kind::Whole(1, 1), "Version of this format.").required().example("1"),
        field("name", Kind::Leaf(&NAME), "Names the run folder.").required().example("chat"),
        field("description", Kind::Text, "A line for the report's head.").example("Nightly gate"),
        field("extends", Kind::Text, "A scenario that this one is merged over: mappings merge, lists replace; limits are appended by `presets`.")
            .example("base.yaml"),
        field("vars", Kind::Map(&Kind::Json), "Values for `{{ vars.x }}` in any text of the file.")
            .example("{ url: \"${LLM_URL}\" }"),
        field(
            "seed",
            Kind::Leaf(&SEED),
            "Every random choice of the run derives from it. `run` draws a new one for each run; the run's `plan.yaml` and report have it, and `--seed N` repeats it.",
        )
        .default("42")
        .example("run"),
        field(
            "cache_seed",
            Kind::Leaf(&SEED),
            "What `dataset.cache_bust` draws from. `run` draws a new one for each run, so that no cache knows the prompts of an earlier run; a number repeats them. The run's `plan.yaml` has the number.",
        )
        .default("run")
        .example("7"),
        field("target", Kind::Block(&target::TARGET), "The server under test.").required().example("{ url: simulator }"),
        field("request", Kind::Block(&request::REQUEST), "What each request says.")
            .defaults(Default::Empty)
            .example("{ max_tokens: 256 }"),
        field(
            "dataset",
            Kind::Block(&dataset::DATASET),
            "Where the prompts come from.",
        )
        .required_unless("mix")
        .example("openqa"),
        field(
            "mix",
            Kind::List(&Kind::Block(&mix::MIX)),
            "Several kinds of requests under one load, each with its own request and data; reported each and together. Where each has a `dataset`, the scenario needs none.",
        )
        .example("[{ name: chat, weight: 3 }, { name: summarise, request: { max_tokens: 512 } }]"),
        field("load", Kind::Block(&load::LOAD), "How hard to push, and for how long.")
            .required()
            .example("{ concurrency: 8, requests: 100 }"),
        field("matrix", Kind::Matrix, "Lists of values for any path; their product is the list of cases.")
            .example("{ load.concurrency: [1, 8, 64] }"),
        field("rounds", Kind::Leaf(&rounds::ROUNDS), "Times that each case runs, interleaved. `{ count: 5, restart: true }` restarts a managed server between the rounds, so that the rounds also differ by what differs from start to start.")
            .default("1")
            .example("{ count: 5, restart: true }"),
        field("pause", Kind::Leaf(&DURATION), "Rest between cases.").default("0s").example("5s"),
        field("slo", Kind::List(&Kind::Block(&slo::SLO)), "The limits that the run is judged by.")
            .example("[\"ttft.p95 < 500ms\"]"),
        field("search", Kind::Block(&search::SEARCH), "Finds the largest load at which every limit holds.")
            .example("{ vary: load.concurrency, range: [1, 1024] }"),
        field("report", Kind::Block(&report::REPORT), "What is written, and where.")
            .defaults(Default::Empty)
            .example("{ formats: [md, junit] }"),
        field("audit", Kind::Block(&audit::AUDIT), "When the load generator, not the server, was measured.")
            .defaults(Default::Empty)
            .example("{ lag_p99: 10ms }"),
        field("telemetry", Kind::Block(&telemetry::TELEMETRY), "What is sampled beside the requests: GPUs, and what this tool, a managed server and the machine use.")
            .defaults(Default::Empty)
            .example("{ interval: 500ms }"),
        field("presets", Kind::Map(&Kind::List(&Kind::Block(&slo::SLO))), "Limits under names of your own, for `{ preset: name }` in `slo`: as mappings merge, a file adds them to what a file that extends it has.")
            .example("{ own/chat: [{ expr: ttft.p95 < 500ms }, { expr: error_rate < 1% }] }"),
        field("baseline", Kind::Leaf(&baseline::BASELINE), "The earlier run that `<= 1.10 * baseline` is relative to: a file that `llmscen baseline update` wrote, or a run folder; `none` while there is none yet. `{ path, if_missing: inconclusive }` runs without the file too.")
            .example("baselines/chat.json"),
        field("reference", Kind::Leaf(&reference::REFERENCE), "Figures that `>= 0.95 * reference` is relative to: metric → a value, or values by case; a value may be `{ value, low, high }` or `{ value, sd }`.")
            .example("{ output_tps: { \"load.concurrency=1\": 420, \"load.concurrency=16\": 3100 } }"),
    ],
};

/// The section whose keys a block holds.
pub(crate) fn section_of(block: &'static Block) -> Option<&'static str> {
    let own = |field: &&Field| matches!(field.kind, Kind::Block(section) if std::ptr::eq(section, block));
    SCENARIO.fields.iter().find(own).map(|field| field.name)
}
