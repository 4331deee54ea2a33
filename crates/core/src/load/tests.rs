use super::*;

fn load(shape: Shape, requests: Option<u64>, secs: Option<u64>, warmup: Warmup) -> Load {
    let duration = secs.map(|s| Nanos::from_millis(s * 1000));
    Load { requests, duration, warmup, ..Load::bare(shape) }
}

#[test]
fn a_shape_reads_as_words() {
    let open = |arrival| Shape::Open { rate: 0.5, arrival }.to_string();
    assert_eq!(Shape::Closed { users: 16 }.to_string(), "concurrency 16");
    assert_eq!((open(Arrival::Poisson), open(Arrival::Constant)), ("0.5/s poisson".into(), "0.5/s constant".into()));
    assert_eq!(
        (open(Arrival::Gamma { burstiness: 0.25 }), Shape::Burst.to_string()),
        ("0.5/s gamma 0.25".into(), "burst".into())
    );
    for (rate, text) in [(100.0 / 60.0, "1.66667/s"), (0.1 / 60.0, "0.00166667/s"), (1234.5, "1234.5/s"), (1e6, "1000000/s")] {
        assert_eq!(Shape::Open { rate, arrival: Arrival::Constant }.to_string(), format!("{text} constant"));
    }
}

#[test]
fn the_planned_count_is_the_first_limit_reached() {
    let open = Shape::Open { rate: 10.0, arrival: Arrival::Poisson };
    assert_eq!(load(open.clone(), Some(500), Some(20), Warmup::Requests(5)).planned(), Some(205));
    assert_eq!(load(open.clone(), Some(50), Some(20), Warmup::Requests(5)).planned(), Some(55));
    assert_eq!(load(open, None, Some(20), Warmup::Span(Nanos::from_millis(1000))).planned(), Some(210));
    let closed = Shape::Closed { users: 4 };
    assert_eq!(load(closed.clone(), None, Some(20), Warmup::Requests(0)).planned(), None);
    assert_eq!(load(closed.clone(), Some(100), Some(20), Warmup::Requests(8)).planned(), Some(108));
    let second = Warmup::Span(Nanos::from_millis(1000));
    assert_eq!(load(closed, Some(100), None, second).planned(), None, "how many fit into the warm-up is the server's secret");
}

fn staged(arrival: Arrival) -> Shape {
    let stage = |rate, secs: u64| RateStage { rate, span: Nanos::from_millis(secs * 1000) };
    let ramp = Course::Ramp { from: 1.0, to: 20.0 };
    Shape::Rates { stages: [stage(Course::Flat(1.0), 30), stage(ramp, 120)].into(), arrival }
}

#[test]
fn stages_bound_a_load() {
    let whole = load(staged(Arrival::Constant), None, None, Warmup::Requests(0));
    assert_eq!((whole.planned(), whole.lasts()), (Some(1290), Some(Nanos::from_millis(150_000))));
    let cut = load(staged(Arrival::Constant), None, Some(40), Warmup::Span(Nanos::from_millis(10_000)));
    // 30 of the first stage, and 20·1 + 19·20²/240 = 51.67 of the 20 s after it.
    assert_eq!((cut.planned(), cut.until(Some(Nanos::from_millis(10_000)))), (Some(82), Some(Nanos::from_millis(50_000))));
    assert_eq!(cut.until(None), Some(Nanos::from_millis(150_000)));
}

#[test]
fn every_shape_says_what_it_is() {
    assert_eq!(staged(Arrival::Poisson).to_string(), "1/s for 30 s, 1/s → 20/s over 2 min, poisson");
    assert_eq!(staged(Arrival::Poisson).stage(1).unwrap().to_string(), "1/s → 20/s over 2 min, poisson");
    let four = UserStage { from: 4, to: 4, span: Nanos::from_millis(1000) };
    let users = |n| Shape::Users { stages: vec![four; n].into() };
    assert_eq!((users(1).to_string(), users(1).size()), ("concurrency 4 for 1 s".into(), (Some(4.0), "concurrency")));
    assert!(users(6).to_string().ends_with("4 for 1 s, 4 for 1 s, … (6 stages)"));
    assert_eq!((users(6).users(), users(6).end()), (Some(4), Some(Nanos::from_millis(6000))));
    assert_eq!(Shape::Static { batch: 16 }.to_string(), "batches of 16");
}
