//! What strikes the secrets of a scenario from everything that leaves this program.

use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_report::prose;

/// Knows the secrets of a plan, also as reports in Markdown spell them.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().spelled(prose)
}
