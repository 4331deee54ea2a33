//! Why the load generator was late, as far as telemetry shows it.

use http::Uri;
use llmscen_client::route::is_loopback;
use llmscen_core::plan::Case;
use llmscen_core::sample::Sample;
use llmscen_core::signal::Signal;
use llmscen_core::target::Place;
use llmscen_report::format::percent;

/// CPU of the host from which on it is taken to be the reason.
const FULL: f64 = 0.9;

/// What the host's and llmscen's own CPU were, and who shares the cores.
pub(super) fn cause(case: &Case, sample: &Sample) -> Option<String> {
    let mean = |signal| sample.signals.get(&signal).and_then(|own| own.mean);
    let shared = match &case.target.place {
        Place::Simulator { .. } => Some("the built-in simulator and the load generator share the cores of this machine"),
        Place::Url(url) => on_this_machine(url).then_some("the server and the load generator share the cores of this machine"),
        Place::Local(_) => None,
    };
    let cpu = mean(Signal::HostCpu).zip(mean(Signal::ToolCpu)).map(|(host, own)| {
        let used = format!("host CPU was {}, llmscen used {} of one core", percent(host), percent(own));
        match (host >= FULL, shared) {
            (true, Some(shared)) => format!("{used}; {shared}"),
            (true, None) if own < 0.5 => format!("{used}: other processes"),
            _ => used,
        }
    });
    cpu.or(shared.map(str::to_owned))
}

fn on_this_machine(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(is_loopback))
}
