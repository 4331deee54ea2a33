//! The top-level keys, and `audit`.

use crate::draft::Draft;
use crate::schema_table::{Block, Default, Field, Kind, field};
use crate::sections::patch::PATCH;
use crate::sections::{
    baseline, dataset, hooks, load, mix, reference, remote_data, report, request, search, slo,
    target, telemetry,
};
use crate::values::number::{SEED, SHARE, share};
use crate::values::text::NAME;
use crate::values::time::{DURATION, SPAN, duration};
use llmscen_core::plan::AuditLimits;

const REPEATS: Kind = Kind::Choice(
    &[
        (
            "compared",
            "Objectives on latency and throughput are INVALID where repeated prompts are answered \
            much faster than first ones",
        ),
        (
            "wanted",
            "Answers from a cache are a part of what is measured",
        ),
    ],
    &[],
);

/// The top-level keys.
pub(crate) static SCENARIO: Block = Block {
    doc: "An llmscen scenario: a versioned plan for one benchmark of an LLM inference server.",
    short: None,
    fields: &[
        field("version", Kind::Whole(1, 1), "Version of this format.")
            .required()
            .example("1"),
        field("name", Kind::Leaf(&NAME), "Name of the run folder.")
            .required()
            .example("chat"),
        field(
            "description",
            Kind::Text,
            "One line for the top of the report.",
        )
        .example("Nightly gate"),
        field(
            "labels",
            Kind::Map(&Kind::Text),
            "What the run measures, such as the commit and \
        the image: shown in reports, in `compare` and in `history`, and never part of the plan \
        hash. A variable with the name of a secret is stored by its name.",
        )
        .example("{ commit: \"${GIT_COMMIT:-unknown}\", image: vllm-openai, gpu: H200 }"),
        field(
            "extends",
            Kind::Text,
            "A base scenario: this one is merged into it, mappings are \
        merged, lists are replaced; `presets` can add limits.",
        )
        .example("base.yaml"),
        field(
            "vars",
            Kind::Map(&Kind::Json),
            "Values for `{{ vars.x }}` in any text of the file.",
        )
        .example("{ url: \"${LLM_URL}\" }"),
        field(
            "seed",
            Kind::Leaf(&SEED),
            "Seed of all random choices. `run` draws a new one for each run; the run's \
            `plan.yaml` and report contain it, and `--seed N` repeats it.",
        )
        .default("42")
        .example("run"),
        field(
            "cache_seed",
            Kind::Leaf(&SEED),
            "Seed of `dataset.cache_bust`. `run` draws a new one for each run, so that no cache \
            contains the prompts of an earlier run; a number repeats them. The run's `plan.yaml` \
            contains the number.",
        )
        .default("run")
        .example("7"),
        field(
            "target",
            Kind::Block(&target::TARGET),
            "The server under test.",
        )
        .required()
        .example("{ url: simulator }"),
        field(
            "request",
            Kind::Block(&request::REQUEST),
            "The content of requests.",
        )
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
            "Several traffic classes under one load, each with its own request and dataset; \
            reported separately and together. If each has a `dataset`, the scenario needs none.",
        )
        .example("[{ name: chat, weight: 3 }, { name: summarize, request: { max_tokens: 512 } }]"),
        field(
            "load",
            Kind::Block(&load::LOAD),
            "Type and length of the load.",
        )
        .required()
        .example("{ concurrency: 8, requests: 100 }"),
        field(
            "variants",
            Kind::Map(&Kind::Over(&PATCH)),
            "Named variants of the server or of any \
        other part: name → what it changes. The matrix has an axis `variant`; by default it has \
        all of them.",
        )
        .example("{ base: {}, mtp3: { target.server.args: { speculative_tokens: 3 } } }"),
        field(
            "workloads",
            Kind::Map(&Kind::Over(&PATCH)),
            "Named workloads: name → dataset, \
        request and what else belongs to it. The matrix has an axis `workload`; by default it has \
        all of them.",
        )
        .example(
            "{ chat: { dataset: openqa }, long: { dataset: { kind: random, tokens: 8000 } } }",
        ),
        field(
            "matrix",
            Kind::Matrix,
            "Lists of values for any path, or ladders such as `{ \
        doubling: [1, 64] }`; the cases are their product.",
        )
        .example("{ load.concurrency: [1, 8, 64] }"),
        field(
            "rounds",
            Kind::Whole(1, 1000),
            "Number of rounds per case, interleaved. \
        `target.server.restart` says whether a managed server is restarted between the rounds.",
        )
        .default("1")
        .example("5"),
        field(
            "compare",
            Kind::Choice(
                &[(
                    "interleave",
                    "Every second round runs the cases in \
        reverse order",
                )],
                &[],
            ),
            "`interleave`: the cases alternate in short rounds and are \
        compared in pairs, the sharpest test on a machine that drifts. Limits such as `output_tps \
        >= 1.05 * case(variant=base)` use the pairs.",
        )
        .example("interleave"),
        field("pause", Kind::Leaf(&DURATION), "Pause between cases.")
            .default("0s")
            .example("5s"),
        field(
            "slo",
            Kind::List(&Kind::Block(&slo::SLO)),
            "The objectives of the run.",
        )
        .example("[\"ttft.p95 < 500ms\"]"),
        field(
            "slo_defaults",
            Kind::Block(&slo::default_limit::SLO_DEFAULTS),
            "The default \
        objective: a limit on failures where no objective of a case limits them.",
        )
        .defaults(Default::With("slo", "{}"))
        .example("{ error_rate: 5% }"),
        field(
            "search",
            Kind::Block(&search::SEARCH),
            "Finds the largest load that meets all limits.",
        )
        .example("{ vary: load.concurrency, range: [1, 1024] }"),
        field(
            "hooks",
            Kind::Block(&hooks::HOOKS),
            "Actions around the load: reset a cache, load \
        an adapter, profile, run a command.",
        )
        .example("{ before_case: [{ action: reset_cache }], after_case: [{ run: ./collect.sh }] }"),
        field(
            "then",
            Kind::List(&Kind::Block(&hooks::THEN)),
            "Commands against the still running \
        server after its last round, such as an accuracy test; an exit status other than 0 fails \
        the run.",
        )
        .example("[{ name: gsm8k, run: \"lm_eval --model local-completions --tasks gsm8k\" }]"),
        field(
            "report",
            Kind::Block(&report::REPORT),
            "Output formats and folder.",
        )
        .defaults(Default::Empty)
        .example("{ formats: [md, junit] }"),
        field(
            "audit",
            Kind::Block(&AUDIT),
            "Thresholds of the load-generator self-audit.",
        )
        .defaults(Default::Empty)
        .example("{ lag_p99: 10ms }"),
        field(
            "telemetry",
            Kind::Block(&telemetry::TELEMETRY),
            "What is sampled during the run: \
        GPUs, and the resources of llmscen, a managed server and the host.",
        )
        .defaults(Default::Empty)
        .example("{ interval: 500ms }"),
        field(
            "presets",
            Kind::Map(&Kind::List(&Kind::Block(&slo::SLO))),
            "Named limits for `{ \
        preset: name }` in `slo`: because mappings are merged, a file adds them to those of its \
        base.",
        )
        .example("{ own/chat: [{ expr: ttft.p95 < 500ms }, { expr: error_rate < 1% }] }"),
        field(
            "baseline",
            Kind::Leaf(&baseline::BASELINE),
            "The earlier run for limits such as \
        `<= 1.10 * baseline`: a file from `llmscen baseline update`, or a run folder; `none` if \
        there is none yet. `{ path, if_missing: inconclusive }` also runs without the file; `{ \
        path: reports/chat, runs: 10, of: median }` takes the newest ten runs of a folder.",
        )
        .example("baselines/chat.json"),
        field(
            "reference",
            Kind::Leaf(&reference::REFERENCE),
            "Values for limits such as `>= 0.95 \
        * reference`: metric → a value, or values per case; a value may be `{ value, low, high }` \
        or `{ value, sd }`.",
        )
        .example("{ output_tps: { \"load.concurrency=1\": 420, \"load.concurrency=16\": 3100 } }"),
        remote_data::FIELD,
    ],
};

/// The name of the section with this block.
pub(crate) fn section_of(block: &'static Block) -> Option<&'static str> {
    let has_block =
        |field: &&Field| matches!(field.kind, Kind::Block(section) if std::ptr::eq(section, block));
    SCENARIO
        .fields
        .iter()
        .find(has_block)
        .map(|field| field.name)
}

pub(crate) static AUDIT: Block = Block {
    doc: "Thresholds of the self-audit. A verdict that delays and stalls of the load generator \
    could have changed is INVALID.",
    short: None,
    fields: &[
        field(
            "achieved",
            Kind::Leaf(&SHARE),
            "Open loop: minimum achieved rate as a share of the offered rate.",
        )
        .default("98%")
        .example("95%"),
        field(
            "idle",
            Kind::Leaf(&SHARE),
            "Closed loop: maximum share of time that users wait for the load generator.",
        )
        .default("10%")
        .example("20%"),
        field(
            "stalled",
            Kind::Leaf(&SHARE),
            "Maximum share of time that a worker thread is stalled.",
        )
        .default("5%")
        .example("10%"),
        field(
            "cpu",
            Kind::Leaf(&SHARE),
            "Maximum CPU use of a worker thread, as a share of one core.",
        )
        .default("90%")
        .example("80%"),
        field(
            "cache",
            Kind::Leaf(&SHARE),
            "Maximum share of unique prompts that come from the server's prefix cache.",
        )
        .default("1%")
        .example("5%"),
        field(
            "repeats",
            REPEATS,
            "Prompts that the run sends more than once, with `dataset.cache_bust: false`.",
        )
        .default("compared")
        .example("wanted"),
        field(
            "lag_p99",
            Kind::Leaf(&SPAN),
            "Send delays of at most this are ignored, unless their p99 is above it.",
        )
        .default("1ms")
        .example("10ms"),
        field(
            "stall_p99",
            Kind::Leaf(&SPAN),
            "Stalls of a worker thread that are at most this long are ignored.",
        )
        .default("1ms")
        .example("10ms"),
        field(
            "skew",
            Kind::Leaf(&SPAN),
            "Several shards: maximum clock skew between them. If it may be exceeded, open loops \
            with constant arrivals or bursts are INVALID, other loads get a note. Without it, the \
            skew is reported only.",
        )
        .example("50ms"),
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
        skew: draft.read("audit.skew", duration),
        repeats_wanted: draft.text("audit.repeats")? == "wanted",
    })
}
