use super::*;
use async_channel::bounded;
use llmscen_client::counters::{CounterTotals, LiveCounters};
use llmscen_client::http::{HttpClient, HttpOptions};
use llmscen_client::route::Route;
use llmscen_core::api::Api;
use llmscen_core::target::{Pool, Target, TargetLocation, Timeouts, Tls};
use std::net::TcpListener;

const MINUTE: Nanos = Nanos(60_000_000_000);

fn worker(
    url: &str,
    calls: u64,
    results: Sender<CompletedCall>,
    gauges: Arc<LiveCounters>,
    stop: Stop,
) -> Worker {
    let clock = Clock::new(std::time::Instant::now());
    let target = Target {
        api: Api::OpenaiChat,
        location: TargetLocation::Url(url.to_owned()),
        models: Vec::new(),
        api_key: None,
        headers: Vec::new(),
        timeouts: Timeouts {
            connect: MINUTE,
            read: MINUTE,
            total: MINUTE,
        },
        tls: Tls::default(),
        pool: Pool::KeepAlive,
        version: Default::default(),
        compression: Default::default(),
        request_id: None,
        gpus: None,
        server: None,
        metrics: None,
        hardware: None,
        scenario_secrets: Default::default(),
    };
    let route = Route::new(url, &target.tls, &Default::default()).unwrap();
    let shape = Shape::Closed {
        users: calls as u32,
    };
    let load = Load {
        requests: Some(calls),
        graceful_stop: MINUTE,
        ..Load::new(shape)
    };
    let (sender, queue) = bounded(calls as usize);
    (0..calls).for_each(|seq| {
        sender
            .try_send(PreparedRequest {
                seq,
                ..PreparedRequest::default()
            })
            .unwrap()
    });
    let setting = HttpOptions {
        clock,
        counters: gauges,
        protocol: llmscen_protocols::protocol(Api::OpenaiChat, None).unwrap(),
        keep_text: false,
        keep_bodies: false,
        policy: Default::default(),
    };
    let target_health = TargetHealth::new(stop.clone(), std::sync::mpsc::channel().0, None);
    Worker {
        engine: Engine::Http(Box::new(HttpClient::new(&target, &route, setting).unwrap())),
        concurrency_limit: ConcurrencyLimit::new(llmscen_core::schedule::users::changes(
            &load,
            Shard::default(),
            0,
            1,
        )),
        shared: SharedState::new(&load, Shard::default(), Seed(0), clock, stop, target_health),
        queue,
        results,
        timer: Timer::new().unwrap(),
        ramp_timer: Timer::new().unwrap(),
        cancel: watch::Sender::new(false),
        preconnect: 0,
        session_runner: None,
    }
}

#[test]
fn a_full_channel_loses_no_outcome_when_all_requests_are_cancelled() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let (stop, gauges) = (Stop::default(), Arc::<LiveCounters>::default());
    let (sender, results) = bounded(1);
    let collector = std::thread::spawn({
        let (stop, gauges) = (stop.clone(), gauges.clone());
        move || {
            while gauges.add_to(CounterTotals::default()).in_flight < 20 {
                std::thread::yield_now();
            }
            stop.press();
            stop.press();
            // The collector lags: requests end meanwhile, and all outcomes but one wait for the full channel.
            std::thread::sleep(Duration::from_millis(300));
            std::iter::from_fn(|| results.recv_blocking().ok()).count()
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        Rc::new(worker(&url, 20, sender, gauges, stop)).run().await;
    });
    assert_eq!(collector.join().unwrap(), 20);
}
