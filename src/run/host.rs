//! The simulator of a round, where the scenario asks for one.

use crate::model::plan::Case;
use crate::model::target::Place;
use crate::run::error::RunError;
use crate::run::turn::Turn;
use crate::sim::{self, Truth};
use std::net::SocketAddr;

/// Starts the simulator of the case; None where its target is elsewhere.
///
/// # Errors
/// It cannot listen.
pub fn simulator(turn: &Turn) -> Result<Option<sim::Running>, RunError> {
    match &turn.case.target.place {
        Place::Url(_) | Place::Local(_) => Ok(None),
        Place::Simulator { server, .. } => {
            let loopback = (std::net::Ipv4Addr::LOCALHOST, 0).into();
            Ok(Some(sim::start(server, turn.seed.child("simulator"), loopback, Truth::off())?))
        }
    }
}

/// Where the case's requests reach a simulator.
pub fn simulator_url(address: SocketAddr, case: &Case) -> String {
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
