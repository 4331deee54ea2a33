//! `target.hardware`: what a token costs the target's hardware, and what that could do at the most.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::values::quantity_with_unit::{BANDWIDTH, FLOPS, PARAMETERS, SIZE, bandwidth, flops, parameters, size};
use llmscen_core::telemetry::Hardware;

/// The keys of `target.hardware`.
pub(crate) static HARDWARE: Block = Block {
    doc: "What a token costs the hardware, and what that could do at the most: for `mfu` and `mbu`, with `target.gpus`.",
    short: None,
    fields: &[
        field("parameters", Kind::Leaf(&PARAMETERS), "Parameters that work on each token; of a mixture of experts, the active ones.")
            .required()
            .example("8B"),
        field("weight_bytes", Kind::Leaf(&SIZE), "Bytes of weights that a decoding step reads: parameters times the size of one.")
            .required()
            .example("16 GB"),
        field("kv_bytes_per_token", Kind::Leaf(&SIZE), "Bytes of KV cache that a token of context holds: 2 × layers × KV heads × head size × size of a value. Left out of `mbu` unless told.")
            .example("128 KiB"),
        field("peak_flops", Kind::Leaf(&FLOPS), "Operations per second of one GPU at the most, dense, in the precision of the model; for `mfu`.")
            .example("989 TFLOPS"),
        field("peak_bandwidth", Kind::Leaf(&BANDWIDTH), "Bytes per second that one GPU reads from its memory at the most; for `mbu`.")
            .example("3.35 TB/s"),
    ],
};

/// The hardware of a case. Files one without a number of GPUs: its figures are shares of what all of them could do.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Hardware> {
    let node = draft.get("target.hardware")?;
    if draft.get("target.gpus").is_none() {
        let mistake = Mistake::new(draft.place("target.hardware"), "`hardware` without `gpus`", "of how many GPUs?");
        review.push(
            mistake.help("Its figures are shares of what all GPUs could do: write `target.gpus: 1`, or how many there are."),
        );
    }
    Some(Hardware {
        parameters: node.get("parameters").and_then(parameters)?,
        weight_bytes: node.get("weight_bytes").and_then(size)?,
        kv_bytes_per_token: node.get("kv_bytes_per_token").and_then(size).unwrap_or(0.0),
        peak_flops: node.get("peak_flops").and_then(flops),
        peak_bandwidth: node.get("peak_bandwidth").and_then(bandwidth),
    })
}
