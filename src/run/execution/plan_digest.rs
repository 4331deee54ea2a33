//! The digest by which shards recognize that they run the same plan on the same data.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::traffic_class::strided_prompts;
use crate::run::requests::{RequestGenerator, render_numbers};
use crate::run::sharding::{ComparedRequest, PlanDigest, compared_numbers};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::shard::Shard;

/// The digest of a plan and of some requests of each prepared case, rendered by every shard whoever sends them. It
/// differs for another file, tokenizer, template, seed or version.
///
/// # Errors
/// A request cannot be rendered, or the run was stopped.
pub fn digest_plan<'a>(
    plan: &Plan,
    prepared_cases: impl IntoIterator<Item = (&'a Case, &'a PreparedCase)>,
    context: &Context,
) -> Result<PlanDigest, RunError> {
    let mut digest = PlanDigest::new(&plan.id, env!("CARGO_PKG_VERSION"));
    for (case, prepared) in prepared_cases {
        digest.add_case(&case.id);
        let seed = plan.seed.child(case.id.as_str()).child(0);
        let strides = RowUsage::default().strides(case, prepared);
        let prompts = strided_prompts(&prepared.classes, &strides);
        let mut generator = RequestGenerator::new(case, prepared, &prompts, seed, Shard::default());
        let numbers = compared_numbers(prepared.extent(case, seed).sessions);
        for request in render_numbers(&mut generator, &numbers, &context.stop)? {
            digest.add_request(&ComparedRequest {
                seq: request.seq,
                due: request.due.map(|(due, _)| due),
                body: &request.body,
            });
        }
    }
    Ok(digest)
}
