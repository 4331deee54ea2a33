//! What strikes the secrets of a scenario from everything that leaves this program.

use crate::model::plan::Plan;
use crate::model::redact::Redactor;
use crate::view::prose;

/// Knows the secrets of a plan, also as reports in Markdown spell them.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().spelled(prose)
}
