//! `audit`: when a measurement is not sound.

use crate::model::plan::AuditLimits;
use crate::scenario::block::{Block, Kind, field};
use crate::scenario::leaf::duration::{SPAN, duration};
use crate::scenario::leaf::share::{SHARE, share};
use crate::scenario::sections::Draft;

/// The keys of `audit`.
pub(crate) static AUDIT: Block = Block {
    doc: "Limits of the self-audit. A case that breaks one is INVALID: the load generator, not the server, was measured.",
    short: None,
    fields: &[
        field("lag_p99", Kind::Leaf(&SPAN), "How late requests leave, at p99 at the most.").default("5ms").example("10ms"),
        field("achieved", Kind::Leaf(&SHARE), "Achieved over offered rate at the least.").default("98%").example("95%"),
        field("cpu", Kind::Leaf(&SHARE), "CPU of one worker thread at the most.").default("90%").example("80%"),
        field("stall_p99", Kind::Leaf(&SPAN), "Lateness of the worker threads' 10 ms ticker, at p99 at the most.")
            .default("5ms")
            .example("10ms"),
    ],
};

/// The limits of a checked scenario.
pub(crate) fn decode(draft: &Draft<'_>) -> Option<AuditLimits> {
    Some(AuditLimits {
        lag_p99: draft.get("audit.lag_p99").and_then(duration)?,
        achieved: draft.get("audit.achieved").and_then(share)?,
        cpu: draft.get("audit.cpu").and_then(share)?,
        stall_p99: draft.get("audit.stall_p99").and_then(duration)?,
    })
}
