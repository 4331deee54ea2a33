use super::*;
use async_channel::bounded;
use llmscen_client::counters::{CounterTotals, LiveCounters};
use llmscen_client::http::{HttpClient, HttpOptions};
use llmscen_client::route::Route;
use llmscen_core::api::Api;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::target::Target;
use std::io::{Read, Write};
use std::net::TcpListener;

const MINUTE: Nanos = Nanos(60_000_000_000);

fn worker(
    url: &str,
    load: &Load,
    results: Sender<CompletedCall>,
    gauges: Arc<LiveCounters>,
    stop: Stop,
) -> Worker {
    let clock = Clock::new(std::time::Instant::now());
    let target = Target::chat(url);
    let route = Route::new(url, &target.tls, &Default::default()).unwrap();
    let calls = load.requests.unwrap();
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
        decode_options: Default::default(),
        keep_bodies: false,
        policy: Default::default(),
    };
    let target_health = TargetHealth::new(stop.clone(), std::sync::mpsc::channel().0, None);
    Worker {
        engine: Engine::Http(Box::new([
            HttpClient::new(&target, &route, setting).unwrap()
        ])),
        concurrency_limit: ConcurrencyLimit::new(llmscen_core::schedule::users::changes(
            load,
            Shard::default(),
            0,
            1,
        )),
        shared: SharedState::new(
            load,
            Cooldown::new(
                load.cools_down(false),
                u64::from(!load.shape.is_closed_loop()),
            ),
            Shard::default(),
            Seed(0),
            clock,
            stop,
            target_health,
        ),
        queue,
        results,
        timer: Timer::new().unwrap(),
        ramp_timer: Timer::new().unwrap(),
        cancel: watch::Sender::new(false),
        preconnect: Vec::new(),
        session_runner: None,
        beginning: Default::default(),
        measured_until: Default::default(),
    }
}

fn load(shape: Shape, requests: u64) -> Load {
    Load {
        requests: Some(requests),
        graceful_stop: MINUTE,
        ..Load::new(shape)
    }
}

/// Runs a worker to its end, and passes its outcomes to `see` on another thread.
fn run_worker(
    url: &str,
    load: &Load,
    mut see: impl FnMut(Outcome, &LiveCounters) + Send + 'static,
) {
    let gauges = Arc::<LiveCounters>::default();
    let (sender, results) = bounded::<CompletedCall>(4096);
    let counted = gauges.clone();
    let collector = std::thread::spawn(move || {
        while let Ok(finished) = results.recv_blocking() {
            see(finished.outcome, &counted);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        Rc::new(worker(url, load, sender, gauges, Stop::default()))
            .run()
            .await;
    });
    // Its tasks hold the worker, and the worker holds the channel.
    drop(runtime);
    collector.join().unwrap();
}

/// A server that answers every request at once.
fn prompt_server() -> String {
    const BODY: &str = r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let response = response.clone();
            std::thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    stream.write_all(response.as_bytes()).unwrap();
                }
            });
        }
    });
    url
}

#[test]
fn the_next_request_of_a_user_is_written_before_the_last_outcome_is_delivered() {
    const REQUESTS: u64 = 40;
    let (told, outcomes) = std::sync::mpsc::channel();
    run_worker(
        &prompt_server(),
        &load(Shape::Closed { users: 1 }, REQUESTS),
        move |outcome, gauges| {
            let started = gauges.add_to(CounterTotals::default()).started;
            told.send((outcome, started)).unwrap();
        },
    );
    let mut over_at = Nanos::ZERO;
    for (delivered, (outcome, started)) in (1..).zip(outcomes.iter()) {
        assert!(started > delivered || started == REQUESTS, "{delivered}");
        let timeline = outcome.timeline;
        assert_eq!(outcome.end.map(|_| timeline.intended), Ok(over_at));
        assert!(timeline.sent >= Some(timeline.intended));
        over_at = timeline.end;
        assert_eq!(outcome.seq + 1, delivered);
    }
}

#[test]
fn requests_that_are_due_together_are_all_written_before_any_outcome_is_built() {
    const BATCH: u32 = 150;
    const ALL: u64 = 2 * BATCH as u64;
    let (told, outcomes) = std::sync::mpsc::channel();
    run_worker(
        &prompt_server(),
        &load(Shape::Static { batch: BATCH }, ALL),
        move |outcome, gauges| {
            let started = gauges.add_to(CounterTotals::default()).started;
            told.send((outcome, started)).unwrap();
        },
    );
    // The first batch opens the connections.
    let second: Vec<(Outcome, u64)> = outcomes
        .iter()
        .filter(|(outcome, _)| outcome.seq >= u64::from(BATCH))
        .collect();
    assert_eq!(second.len(), BATCH as usize);
    let due = second[0].0.timeline.intended;
    for (outcome, started) in &second {
        let timeline = &outcome.timeline;
        assert_eq!((timeline.intended, *started), (due, ALL));
        assert!(timeline.sent > Some(due));
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
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let load = load(Shape::Closed { users: 20 }, 20);
        Rc::new(worker(&url, &load, sender, gauges, stop))
            .run()
            .await;
    });
    assert_eq!(collector.join().unwrap(), 20);
}
