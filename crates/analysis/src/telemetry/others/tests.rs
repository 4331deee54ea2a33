use super::super::Window;
use super::*;
use llmscen_core::telemetry::TelemetryRecord;

const SECOND: i64 = 1_000_000_000;

/// A statistic of a page metric over a round with these readings, whose window ends after 4 s.
fn page_figure_of(
    readings: &[TelemetrySample],
    name: &str,
    labels: &[(&str, &str)],
    stat: PageStat,
) -> Option<f64> {
    let recorded = TelemetryRecord {
        case: "a".into(),
        round: 0,
        readings: readings.to_vec(),
    };
    let window = Window {
        from: 0,
        until: 4 * SECOND,
    };
    let rounds = [RoundTelemetry {
        recorded: &recorded,
        window,
    }];
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let wanted = PageMetric {
        name: name.to_owned(),
        labels: labels.iter().map(own).collect(),
        stat,
    };
    page_figure(&rounds, &wanted).map(|(value, _)| value)
}

/// Readings with times in seconds, over a window in seconds.
fn over(readings: &[(i64, &str, &str, f64)], (from, until): Span) -> BTreeMap<String, OtherStat> {
    let actual = |&(at, name, labels, value): &(i64, &str, &str, f64)| TelemetrySample {
        at_ns: at * SECOND,
        source: Source::Prometheus,
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    };
    let recorded = TelemetryRecord {
        case: "a".into(),
        round: 0,
        readings: readings.iter().map(actual).collect(),
    };
    others(&[RoundTelemetry {
        recorded: &recorded,
        window: Window {
            from: from * SECOND,
            until: until * SECOND,
        },
    }])
}

fn level(n: u64, mean: f64, min: f64, max: f64) -> OtherStat {
    OtherStat::Level {
        n,
        mean: Some(mean),
        min,
        max,
    }
}

#[test]
fn a_value_lasts_until_the_next_one() {
    let seen = over(
        &[
            (0, "x:y", "a=b", 2.0),
            (3, "x:y", "a=b", 8.0),
            (5, "x:y", "a=b", 99.0),
            (6, "z", "", 1.0),
        ],
        (1, 4),
    );
    // 2 for 2 s, 8 for 1 s.
    assert_eq!(
        seen,
        BTreeMap::from([("x:y{a=b}".to_owned(), level(2, 4.0, 2.0, 8.0))])
    );
    assert_eq!(
        over(&[(3, "x", "", 6.0)], (1, 4))["x"],
        level(1, 6.0, 6.0, 6.0),
        "from where it is known"
    );
}

#[test]
fn a_counter_is_its_increase_and_absent_without_one() {
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
    let growth = |per_second| OtherStat::Growth(per_second);
    let expected = [
        ("grows_total", growth(1.5)),
        ("own_sum", growth(1.5)),
        ("queue_count", level(1, 5.0, 5.0, 5.0)),
    ];
    assert_eq!(
        seen,
        expected.map(|(name, own)| (name.to_owned(), own)).into()
    );
}

#[test]
fn buckets_dates_and_labels_are_left_out() {
    let names = [
        ("x_bucket", "le=1"),
        ("y", "a=b,le=+Inf"),
        ("x_created", ""),
        ("build_info", "version=1"),
    ];
    assert_eq!(
        over(&names.map(|(name, labels)| (0, name, labels, 1.0)), (0, 4)),
        BTreeMap::new()
    );
}

#[test]
fn what_was_not_read_within_the_window_is_not_known_as_with_signals() {
    let readings = [
        (0, "server.running", "", 1.0),
        (0, "x", "", 4.0),
        (0, "y_total", "", 0.0),
        (9, "server.running", "", 1.0),
    ];
    assert_eq!(over(&readings, (1, 4)), BTreeMap::new());
    let more = |at: &[i64]| -> Vec<_> {
        let read = at.iter().map(|at| (*at, "server.running", "", 1.0));
        readings
            .into_iter()
            .chain(read)
            .chain([(3, "y_total", "", 6.0)])
            .collect()
    };
    let names = |at: &[i64]| over(&more(at), (1, 4)).into_iter().collect::<Vec<_>>();
    assert_eq!(
        names(&[3]),
        [("x".to_owned(), level(1, 4.0, 4.0, 4.0))],
        "one reading makes no rate"
    );
    // From the reading at 1 s to the one at 3 s.
    assert_eq!(
        names(&[1, 3])[1],
        ("y_total".to_owned(), OtherStat::Growth(3.0))
    );
}

#[test]
fn a_metric_of_the_page_is_found_by_name_and_labels() {
    let actual = |&(at, name, labels, value): &(i64, &str, &str, f64)| TelemetrySample {
        at_ns: at * SECOND,
        source: Source::Prometheus,
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    };
    let readings = [
        (0, "up", "", 1.0),
        (0, "hits_total", "engine=\"0\"", 10.0),
        (2, "hits_total", "engine=\"0\"", 14.0),
        (0, "hits_total", "engine=\"1\"", 5.0),
        (3, "hits_total", "engine=\"2\",x=\",engine=\\\"0\\\"\"", 8.0),
        (0, "queue", "engine=\"0\"", 2.0),
        (2, "queue", "engine=\"0\"", 6.0),
        (0, "queue", "engine=\"1\"", 8.0),
        (0, "hits_total_now", "", 99.0),
    ];
    let readings: Vec<TelemetrySample> = readings.iter().map(actual).collect();
    let figure =
        |name: &str, labels: &[(&str, &str)], stat| page_figure_of(&readings, name, labels, stat);
    use PageStat::{Max, Mean, Min, Rate};
    // 4 + 0 + 8 in 4 s: the third series was absent from the first page.
    assert_eq!(figure("hits", &[], Rate), Some(3.0));
    assert_eq!(figure("hits_total", &[("engine", "0")], Rate), Some(1.0));
    assert_eq!(figure("hits", &[("engine", "1")], Rate), Some(0.0));
    assert_eq!(figure("hits", &[("engine", "3")], Rate), None);
    assert_eq!(
        [Mean, Min, Max].map(|stat| figure("queue", &[], stat)),
        [6.0, 2.0, 8.0].map(Some)
    );
    assert_eq!(figure("hit", &[], Rate), None);
    // No page came from 3 s on: 4 in 3 s, and 2 for 2 s, then 6 for 1 s.
    let stopped = actual(&(3, "up", "", 0.0));
    let readings: Vec<TelemetrySample> = readings.iter().cloned().chain([stopped]).collect();
    let engine = [("engine", "0")];
    assert_eq!(
        page_figure_of(&readings, "queue", &engine, Mean),
        Some(10.0 / 3.0)
    );
}

#[test]
fn a_worker_that_appears_later_did_not_count_from_zero() {
    let sample = |&(at, name, labels, value): &(i64, &str, &str, f64)| TelemetrySample {
        at_ns: at * SECOND,
        source: if name == "rate" {
            Source::Query
        } else {
            Source::Prometheus
        },
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    };
    let (a, b) = ("worker=\"a:1\"", "worker=\"b:1\"");
    let readings = [
        (0, "up", a, 1.0),
        (2, "x_total", a, 8.0),
        (0, "up", b, 0.0),
        (2, "up", b, 1.0),
        (2, "x_total", b, 1000.0),
        (3, "x_total", b, 1004.0),
        (1, "rate", "instance=\"p\"", 5.0),
        (2, "rate", "instance=\"p\"", 7.0),
    ];
    let readings: Vec<TelemetrySample> = readings.iter().map(sample).collect();
    let figure =
        |name: &str, labels: &[(&str, &str)], stat| page_figure_of(&readings, name, labels, stat);
    assert_eq!(figure("x", &[("worker", "a:1")], PageStat::Rate), Some(2.0));
    // 4 in the 2 s from its first page on.
    assert_eq!(figure("x", &[("worker", "b:1")], PageStat::Rate), Some(2.0));
    assert_eq!(
        figure("rate", &[("instance", "p")], PageStat::Max),
        Some(7.0)
    );
    assert_eq!(figure("rate", &[], PageStat::Mean), Some(19.0 / 3.0));
}

#[test]
fn rounds_add_up() {
    let recorded = [6.0, 10.0].map(|end| {
        let actual = |at, value| TelemetrySample {
            at_ns: at * SECOND,
            source: Source::Prometheus,
            name: "x_total".into(),
            labels: "".into(),
            device: None,
            value,
        };
        TelemetryRecord {
            case: "a".into(),
            round: 0,
            readings: vec![actual(0, 2.0), actual(1, end)],
        }
    });
    let window = Window {
        from: 0,
        until: 2 * SECOND,
    };
    let seen = others(
        &recorded
            .each_ref()
            .map(|recorded| RoundTelemetry { recorded, window }),
    );
    assert_eq!(seen["x_total"], OtherStat::Growth(3.0), "12 in 4 s");
}
