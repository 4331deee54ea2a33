//! What the latest run of the same plan measured of the dependence between its requests.

use llmscen_core::check::Check;
use llmscen_core::plan::{Case, Plan};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The results of that run; none where there was none.
pub(super) struct Measured(Option<Value>);

impl Measured {
    pub(super) fn of(plan: &Plan) -> Measured {
        let file = Path::new(&plan.report.dir).join(&plan.name).join("latest/results.json");
        let stored: Option<Value> = fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Measured(stored.filter(|results| results.get("plan_id").and_then(Value::as_str) == Some(plan.id.as_str())))
    }

    /// Requests that carried the information of an independent one, for a check of a case.
    pub(super) fn effect(&self, case: &Case, check: &Check) -> Option<f64> {
        let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let named = |of: &Value, key: &str, name: &str| of.get(key).and_then(Value::as_str) == Some(name);
        let case = list(self.0.as_ref()?, "cases").into_iter().find(|own| named(own, "id", &case.id))?;
        let slo = list(&case, "slo").into_iter().find(|own| named(own, "expr", &check.expr))?;
        let number = |name: &str| slo.get(name).and_then(Value::as_f64).filter(|number| *number > 0.0);
        Some(number("n")? / number("effective_n")?)
    }
}
