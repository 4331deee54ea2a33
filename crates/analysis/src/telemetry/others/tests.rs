use super::super::Window;
use super::*;
use llmscen_core::telemetry::Recorded;

const SECOND: i64 = 1_000_000_000;

/// Readings at so many seconds, over a window of these.
fn over(readings: &[(i64, &str, &str, f64)], (from, until): Span) -> BTreeMap<String, Other> {
    let told = |&(at, name, labels, value): &(i64, &str, &str, f64)| Reading {
        at_ns: at * SECOND,
        source: Source::Prometheus,
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    };
    let recorded = Recorded { case: "a".into(), round: 0, readings: readings.iter().map(told).collect() };
    others(&[Watched { recorded: &recorded, window: Window { from: from * SECOND, until: until * SECOND } }])
}

fn level(n: u64, mean: f64, min: f64, max: f64) -> Other {
    Other::Level { n, mean: Some(mean), min, max }
}

#[test]
fn a_value_stands_until_the_next_is_written() {
    let seen = over(&[(0, "x:y", "a=b", 2.0), (3, "x:y", "a=b", 8.0), (5, "x:y", "a=b", 99.0), (6, "z", "", 1.0)], (1, 4));
    // 2 for 2 s, 8 for 1 s.
    assert_eq!(seen, BTreeMap::from([("x:y{a=b}".to_owned(), level(2, 4.0, 2.0, 8.0))]));
    assert_eq!(over(&[(3, "x", "", 6.0)], (1, 4))["x"], level(1, 6.0, 6.0, 6.0), "from where it is known");
}

#[test]
fn a_count_is_what_it_grew_by_and_nothing_where_it_stood_still() {
    let seen = over(
        &[
            (0, "grows_total", "", 10.0),
            (2, "grows_total", "", 14.0),
            (3, "grows_total", "", 1.0),
            (4, "grows_total", "", 3.0),
            (0, "still_total", "", 7.0),
            (0, "own_sum", "", 1.0),
            (2, "own_sum", "", 7.0),
            (0, "own_count", "", 1.0),
            (0, "queue_count", "", 5.0),
        ],
        (0, 4),
    );
    let growth = |per_second| Other::Growth(per_second);
    let expected = [("grows_total", growth(1.5)), ("own_sum", growth(1.5)), ("queue_count", level(1, 5.0, 5.0, 5.0))];
    assert_eq!(seen, expected.map(|(name, own)| (name.to_owned(), own)).into());
}

#[test]
fn buckets_dates_and_labels_are_no_figures() {
    let names = [("x_bucket", "le=1"), ("y", "a=b,le=+Inf"), ("x_created", ""), ("build_info", "version=1")];
    assert_eq!(over(&names.map(|(name, labels)| (0, name, labels, 1.0)), (0, 4)), BTreeMap::new());
}

#[test]
fn what_was_not_read_within_the_window_is_not_known_as_with_signals() {
    let readings = [(0, "server.running", "", 1.0), (0, "x", "", 4.0), (0, "y_total", "", 0.0), (9, "server.running", "", 1.0)];
    assert_eq!(over(&readings, (1, 4)), BTreeMap::new());
    let more = |at: &[i64]| -> Vec<_> {
        let read = at.iter().map(|at| (*at, "server.running", "", 1.0));
        readings.into_iter().chain(read).chain([(3, "y_total", "", 6.0)]).collect()
    };
    let names = |at: &[i64]| over(&more(at), (1, 4)).into_iter().collect::<Vec<_>>();
    assert_eq!(names(&[3]), [("x".to_owned(), level(1, 4.0, 4.0, 4.0))], "one reading makes no rate");
    // From the reading at 1 s to the one at 3 s.
    assert_eq!(names(&[1, 3])[1], ("y_total".to_owned(), Other::Growth(3.0)));
}

#[test]
fn rounds_add_up() {
    let recorded = [6.0, 10.0].map(|end| {
        let told = |at, value| Reading {
            at_ns: at * SECOND,
            source: Source::Prometheus,
            name: "x_total".into(),
            labels: "".into(),
            device: None,
            value,
        };
        Recorded { case: "a".into(), round: 0, readings: vec![told(0, 2.0), told(1, end)] }
    });
    let window = Window { from: 0, until: 2 * SECOND };
    let seen = others(&recorded.each_ref().map(|recorded| Watched { recorded, window }));
    assert_eq!(seen["x_total"], Other::Growth(3.0), "12 in 4 s");
}
