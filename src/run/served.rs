//! Which models a target serves, asked for where it does not know one.

use crate::run::bench::{Bench, engine};
use llmscen_core::plan::Case;
use llmscen_core::redact::Redactor;
use llmscen_core::target::Place;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::task::LocalSet;

/// Notes which models the target of a case serves, where one of its requests was answered with 404 and it was not asked before.
pub fn list_models(case: &Case, bench: &Bench, not_found: bool, served: &mut BTreeMap<String, Vec<String>>) {
    let (Place::Url(url), Some(route)) = (&case.target.place, &bench.route) else { return };
    let url = Redactor::of(&case.target).clean(url);
    if served.contains_key(&url) || !not_found {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let asked = async { engine(&case.target, bench, route, Instant::now()).ok()?.served_models().await };
    let names = LocalSet::new().block_on(&runtime, asked);
    runtime.shutdown_background();
    // An empty list is kept too: the target is asked once.
    served.insert(url, names.unwrap_or_default());
}
