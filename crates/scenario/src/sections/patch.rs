//! The patches of `variants` and `workloads`.

use crate::schema_table::{Block, Kind, field};
use crate::sections::{dataset, load, mix, request, slo, target};

/// The sections that a patch may change.
pub(crate) static PATCH: Block = Block {
    doc: "A part of a scenario that is merged into it: mappings are merged, lists are replaced, \
    `null` removes a key. A key may be a path such as `target.server.args`.",
    short: None,
    fields: &[
        field(
            "target",
            Kind::Over(&target::TARGET),
            "Merged into `target`.",
        )
        .example("{ server: { args: { speculative_tokens: 3 } }, gpus: 8 }"),
        field(
            "request",
            Kind::Over(&request::REQUEST),
            "Merged into `request`.",
        )
        .example("{ max_tokens: 256 }"),
        field(
            "dataset",
            Kind::Over(&dataset::DATASET),
            "Merged into `dataset`.",
        )
        .example("{ kind: random, tokens: 1024 }"),
        field(
            "mix",
            Kind::List(&Kind::Block(&mix::MIX)),
            "Replaces `mix`.",
        )
        .example("[{ name: chat, weight: 3 }, { name: batch, weight: 1 }]"),
        field("load", Kind::Over(&load::LOAD), "Merged into `load`.").example("{ requests: 10x }"),
        field(
            "slo",
            Kind::List(&Kind::Block(&slo::SLO)),
            "Added to `slo`, for the cells of this variant or workload.",
        )
        .example("[\"ttft.p95 < 2s\"]"),
    ],
};
