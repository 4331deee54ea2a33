//! Limits on what is sampled beside the requests: whether anybody samples it.

use super::Limit;
use super::possible::{case_name, underline};
use crate::fault::{Mistake, Review};
use llmscen_core::plan::Case;
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::TelemetrySpec;

/// Files a limit on a signal that nobody tells of this case.
pub(super) fn told(limit: &Limit<'_>, signal: Signal, (case, spec): (&Case, &TelemetrySpec), review: &mut Review) {
    let Some((because, remedy)) = untold(signal, case, spec) else { return };
    let at = underline(limit, signal.name(), review);
    let mistake = Mistake::new(at, format!("`{signal}` cannot exist: {because}"), format!("{} has none", case_name(case)));
    review.push(mistake.help(format!("{remedy}, or restrict the limit with `when`.")));
}

/// Why nobody tells it, and what to do.
fn untold(signal: Signal, case: &Case, spec: &TelemetrySpec) -> Option<(&'static str, &'static str)> {
    let target = &case.target;
    match signal.scope() {
        "server" if target.metrics.is_none() => Some(("no metrics page is read", "Set `target.metrics`")),
        "process" if target.server.is_none() => Some(("no server is started for the run", "Set `target.server`")),
        "gpu" if signal == Signal::GpuMemoryServer && target.server.is_none() => {
            Some(("no server is started for the run", "Set `target.server`"))
        }
        "gpu" if signal == Signal::GpuMemoryServer && !(spec.gpu && spec.host && spec.dcgm.is_none() && on(spec)) => {
            Some(("NVIDIA's library tells it, of processes that are sampled", "Take `telemetry` as it is by default"))
        }
        "gpu" if !gpus(case, spec) => Some(("GPUs are not sampled", "Take `telemetry` as it is by default")),
        "host" | "tool" | "process" if !(spec.host && on(spec)) => {
            Some(("the machine is not sampled", "Take `telemetry` as it is by default"))
        }
        _ => None,
    }
}

fn on(spec: &TelemetrySpec) -> bool {
    spec.interval.0 > 0
}

/// Whether GPUs may be told of, by a driver or by an exporter.
pub(super) fn gpus(case: &Case, spec: &TelemetrySpec) -> bool {
    (spec.gpu || spec.dcgm.is_some()) && on(spec) || case.target.metrics.is_some()
}
