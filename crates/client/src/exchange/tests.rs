use crate::clock::Clock;
use crate::http::{HttpClient, HttpOptions};
use crate::route::Route;
use llmscen_core::api::Api;
use llmscen_core::outcome::Phase;
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::{Target, Timeouts};
use llmscen_core::units::Nanos;
use llmscen_protocols::protocol;
use std::time::Instant;

/// A chat target with the default settings.
pub fn target() -> Target {
    let limit = Nanos::from_millis(5000);
    Target {
        timeouts: Timeouts {
            connect: limit,
            read: limit,
            event: None,
            total: limit,
        },
        ..Target::chat("")
    }
}

/// A client for a chat target at `url`.
pub fn client(url: &str) -> HttpClient {
    let route = Route::new(url, &Default::default(), &Default::default()).unwrap();
    client_of(&target(), &route)
}

/// A client for a chat target.
pub fn client_of(target: &Target, route: &Route) -> HttpClient {
    let protocol = protocol(Api::OpenaiChat, None).unwrap();
    let clock = Clock::new(Instant::now());
    let (gauges, manners) = Default::default();
    let setting = HttpOptions {
        clock,
        counters: gauges,
        protocol,
        decode_options: Default::default(),
        keep_bodies: false,
        policy: manners,
    };
    HttpClient::new(target, route, setting).unwrap()
}

/// Ten thousand streams may wait at the same time, and each holds this future besides its socket.
#[test]
fn a_call_in_flight_takes_less_than_5_kib() {
    let http = client("http://h/v1");
    let call = http.call(
        PreparedRequest::default(),
        Nanos::ZERO,
        Phase::Measured,
        std::future::pending(),
    );
    let size = std::mem::size_of_val(&call);
    assert!((1000..5120).contains(&size), "{size} bytes");
}
