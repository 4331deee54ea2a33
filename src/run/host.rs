//! The simulator of a round, where the scenario asks for one.

use crate::run::error::RunError;
use llmscen_client::route::Route;
use llmscen_core::plan::Case;
use llmscen_core::seed::Seed;
use llmscen_core::target::Place;
use llmscen_simulator::Truth;
use std::net::SocketAddr;

/// Starts the simulator of a round with this seed; None where the case's target is elsewhere.
///
/// # Errors
/// It cannot listen.
pub fn simulator(case: &Case, seed: Seed) -> Result<Option<llmscen_simulator::Running>, RunError> {
    match &case.target.place {
        Place::Url(_) | Place::Local(_) => Ok(None),
        Place::Simulator { server, .. } => {
            let loopback = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            Ok(Some(llmscen_simulator::start(server, seed.child("simulator"), loopback, Truth::off())?))
        }
    }
}

/// The way to the case's target: its own, or to its simulator. None for a model in this process.
///
/// # Errors
/// The simulator's path is not one.
pub fn route(
    own: Option<&Route>,
    simulator: Option<&llmscen_simulator::Running>,
    case: &Case,
) -> Result<Option<Route>, RunError> {
    Ok(match (own, simulator) {
        (Some(route), _) => Some(route.clone()),
        (None, Some(server)) => Some(Route::new(&simulator_url(server.addr(), case), &Default::default(), &Default::default())?),
        (None, None) => None,
    })
}

/// Where the case's requests reach a simulator.
fn simulator_url(address: SocketAddr, case: &Case) -> String {
    let path = match &case.target.place {
        Place::Simulator { path: Some(path), .. } => path.as_str(),
        _ => case.target.api.path(case.request.stream),
    };
    format!("http://{address}{path}")
}

/// Where a metrics page is: at the simulator's address, if it is the simulator's.
pub fn metrics_url(url: &str, simulator: Option<SocketAddr>) -> String {
    match simulator {
        Some(address) if url == "simulator" => format!("http://{address}/metrics"),
        _ => url.to_owned(),
    }
}
