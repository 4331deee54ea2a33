//! `audit`: what the self-audit accepts.

use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::values::duration::{SPAN, duration};
use crate::values::share::{SHARE, share};
use llmscen_core::plan::AuditLimits;

/// The keys of `audit`.
pub(crate) static AUDIT: Block = Block {
    doc: "What the self-audit accepts. A verdict that the load generator's own stalls and delays could have flipped is INVALID.",
    short: None,
    fields: &[
        field("achieved", Kind::Leaf(&SHARE), "Open loop: least share of the offered rate that must be sent.")
            .default("98%")
            .example("95%"),
        field(
            "idle",
            Kind::Leaf(&SHARE),
            "Closed loop: greatest share of their time that users may wait for the load generator.",
        )
        .default("10%")
        .example("20%"),
        field("stalled", Kind::Leaf(&SHARE), "Greatest share of the time in which a worker thread may be stalled.")
            .default("5%")
            .example("10%"),
        field("cpu", Kind::Leaf(&SHARE), "Greatest share of its core that a worker thread may use.")
            .default("90%")
            .example("80%"),
        field("cache", Kind::Leaf(&SHARE), "Greatest share of unique prompts that may come from the server's prefix cache.")
            .default("1%")
            .example("5%"),
        field("lag_p99", Kind::Leaf(&SPAN), "Send delays do not count where their p99 is at most this.")
            .default("1ms")
            .example("10ms"),
        field("stall_p99", Kind::Leaf(&SPAN), "Stalls of a worker thread that are at most this long do not count.")
            .default("1ms")
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
        idle: draft.get("audit.idle").and_then(share)?,
        stalled: draft.get("audit.stalled").and_then(share)?,
        cache: draft.get("audit.cache").and_then(share)?,
    })
}
