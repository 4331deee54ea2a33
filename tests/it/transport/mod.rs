//! The HTTP client against servers on loopback: HTTP/2, compressed bodies, headers, proxies.

mod compressed;
mod cut;
mod heartbeats;
mod multiplexed;
mod negotiated;
mod proxied;
mod server;

use llmscen_client::clock::Clock;
use llmscen_client::counters::LiveCounters;
use llmscen_client::http::{CompletedCall, HttpClient, HttpOptions};
use llmscen_client::route::Route;
use llmscen_core::outcome::{FailureKind, Outcome, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::{Pool, Target, TargetLocation, Timeouts, Tls};
use llmscen_core::units::Nanos;
use llmscen_protocols::{DecodeOptions, protocol};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::LocalSet;

/// Pause of a server between two events, and the minimum difference of their timestamps: a busy machine may read the first
/// one late.
pub const PAUSE_MS: u64 = 60;
pub const MIN_GAP_NS: u64 = 30_000_000;

pub fn target(url: &str) -> Target {
    let limit = Nanos(10_000_000_000);
    Target {
        timeouts: Timeouts {
            connect: limit,
            read: limit,
            event: None,
            total: limit,
        },
        ..Target::chat(url)
    }
}

pub fn call(seq: u64) -> PreparedRequest {
    PreparedRequest {
        seq,
        streamed: true,
        body: b"{}".to_vec(),
        ..PreparedRequest::default()
    }
}

/// Runs steps with a client on a worker thread.
pub fn on_worker<T>(target: &Target, steps: impl AsyncFnOnce(Rc<HttpClient>) -> T) -> T {
    on_worker_with(target, Arc::new(LiveCounters::default()), steps)
}

/// As [`on_worker`], with access to the counters.
pub fn on_worker_with<T>(
    target: &Target,
    gauges: Arc<LiveCounters>,
    steps: impl AsyncFnOnce(Rc<HttpClient>) -> T,
) -> T {
    let url = target.urls().next().unwrap();
    let route = Route::new(url, &target.tls, &BTreeMap::new()).unwrap();
    let setting = HttpOptions {
        clock: Clock::new(Instant::now()),
        counters: gauges,
        protocol: protocol(target.api, None).unwrap(),
        decode_options: DecodeOptions {
            keep_text: true,
            ..DecodeOptions::default()
        },
        keep_bodies: true,
        policy: Default::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let engine = Rc::new(HttpClient::new(target, &route, setting).unwrap());
        steps(engine).await
    })
}

pub async fn send(engine: &HttpClient, call: PreparedRequest) -> CompletedCall {
    engine
        .call(call, Nanos(0), Phase::Measured, std::future::pending())
        .await
}

/// Sends calls at the same time and waits for all.
pub async fn send_all(engine: &Rc<HttpClient>, calls: u64) -> Vec<Outcome> {
    let sent = (0..calls).map(|seq| {
        let engine = engine.clone();
        tokio::task::spawn_local(async move { send(&engine, call(seq)).await.outcome })
    });
    let sent: Vec<_> = sent.collect();
    let mut outcomes = Vec::new();
    for task in sent {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

/// One call to a target.
pub fn send_one(target: &Target) -> Outcome {
    on_worker(target, async |engine| send(&engine, call(0)).await.outcome)
}

#[track_caller]
pub fn assert_ok(outcome: &Outcome, tokens: usize) {
    assert_eq!(
        outcome.end.as_ref().map(|finish| finish.reason.as_str()),
        Ok("stop")
    );
    assert_eq!(outcome.timeline.tokens.len(), tokens);
    let stamps = &outcome.timeline;
    let mut order = vec![
        stamps.sent.unwrap(),
        stamps.headers.unwrap(),
        stamps.first_chunk.unwrap(),
    ];
    order.extend(&stamps.tokens);
    order.push(stamps.end);
    assert!(order.is_sorted(), "{order:?}");
}

#[track_caller]
pub fn assert_failed(outcome: &Outcome, kind: FailureKind, words: &str) {
    let failure = outcome.end.as_ref().unwrap_err();
    assert_eq!(failure.kind, kind, "{}", failure.message);
    assert!(failure.message.contains(words), "{}", failure.message);
}

/// Each event has a timestamp a pause after the previous one, so none waited for a later one.
#[track_caller]
pub fn assert_paced(outcome: &Outcome) {
    for pair in outcome.timeline.tokens.windows(2) {
        assert!(
            pair[1].0 - pair[0].0 >= MIN_GAP_NS,
            "{:?}",
            outcome.timeline.tokens
        );
    }
}
