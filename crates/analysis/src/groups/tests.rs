use super::*;
use crate::fixture::{TestRequest, case, sample_of};
use crate::sending::{Amounts, Flow, ThroughputWindow};
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::endpoint::{Balance, Endpoints};
use llmscen_core::load::Shape;
use llmscen_core::mix::{EntryLoad, MixEntry};
use llmscen_core::request::RequestSpec;
use llmscen_core::target::TargetLocation;

fn row(group: Option<&str>, e2e: f64) -> TestRequest {
    let values = [(Metric::E2e, e2e)].into();
    TestRequest {
        ok: e2e > 0.0,
        group: group.map(Into::into),
        output_tokens: Some(10.0),
        values,
        ..TestRequest::default()
    }
}

#[test]
fn groups_are_ordered_by_number_and_count_failures() {
    let rows = vec![
        row(Some("2048"), 400.0),
        row(Some("96"), 100.0),
        row(Some("96"), 200.0),
        row(Some("96"), 0.0),
        row(None, 1.0),
    ];
    let seen = group_reports(&case(Shape::Burst), &sample_of(rows));
    let actual: Vec<_> = seen
        .iter()
        .map(|group| (group.name.as_str(), group.ok, group.scheduled))
        .collect();
    assert_eq!(actual, [("96", 2, 3), ("2048", 1, 1)]);
    // 10 tokens in 0.1 s and in 0.2 s.
    assert_eq!(seen[0].scalars[&Metric::OutputTpsPerUser], 75.0);
    assert_eq!(
        seen[0].distributions[&Metric::E2e].quantile(0.5),
        Some(100.0)
    );
}

#[test]
fn every_url_is_reported_with_its_requests() {
    let urls = ["http://a:1", "http://b:1", "http://c:1"].map(str::to_owned);
    let endpoints = Endpoints::new(urls.to_vec(), Balance::RoundRobin).unwrap();
    let mut case = case(Shape::Burst);
    case.target.location = TargetLocation::Urls(endpoints);
    let at = |endpoint: Option<&str>, e2e| TestRequest {
        endpoint: endpoint.map(Into::into),
        ..row(None, e2e)
    };
    let rows = [
        at(Some("b:1"), 200.0),
        at(Some("a:1"), 100.0),
        at(Some("a:1"), 300.0),
        at(Some("b:1"), 0.0),
        at(None, 0.0),
    ];
    let flow = |name: &str, requests| Flow {
        endpoint: Some(name.into()),
        bins: [(
            0,
            Amounts {
                requests,
                ..Amounts::default()
            },
        )]
        .into(),
        ..Flow::default()
    };
    let seen = endpoint_reports(
        &case,
        &Sample {
            requests_window: ThroughputWindow::of_lengths(vec![0.5]),
            flows: vec![flow("a:1", 2.0), flow("b:1", 1.0)],
            ..sample_of(rows)
        },
    );
    let facts: Vec<_> = seen
        .iter()
        .map(|one| {
            let scalar = |metric| one.scalars.get(&metric).copied();
            (
                (one.name.as_str(), one.ok, one.scheduled),
                scalar(Metric::ErrorRate),
                scalar(Metric::RequestThroughput),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (("a:1", 2, 2), Some(0.0), Some(4.0)),
            (("b:1", 1, 2), Some(0.5), Some(2.0)),
            (("c:1", 0, 0), None, Some(0.0)),
        ]
    );
    assert!(endpoint_reports(&crate::fixture::case(Shape::Burst), &Sample::default()).is_empty());
}

#[test]
fn too_many_groups_are_left_out() {
    let many = |count: usize| (0..count).map(|n| row(Some(&format!("prefix-{n}")), 1.0));
    let actual = |count| group_reports(&case(Shape::Burst), &sample_of(many(count))).len();
    assert_eq!((actual(64), actual(65)), (64, 0));
}

fn mixed(rows: Vec<TestRequest>) -> Vec<GroupReport> {
    let entry = |name: &str| MixEntry {
        name: name.into(),
        load: EntryLoad::Weight(1.0),
        headers: Vec::new(),
        request: RequestSpec::default(),
        dataset: DatasetSpec::new(Source::Prompt("x".into())),
    };
    let case = Case {
        mix: ["b", "a", "idle"].map(entry).into(),
        ..case(Shape::Burst)
    };
    let scalars = BTreeMap::from([(Metric::RateOffered, 8.0), (Metric::RateAchieved, 6.0)]);
    let flow = |row: &TestRequest| Flow {
        group: row.group.as_deref().map(Into::into),
        bins: [(
            7,
            Amounts {
                requests: 1.0,
                output: 10.0,
                ..Amounts::default()
            },
        )]
        .into(),
        ..Flow::default()
    };
    let flows = rows.iter().filter(|row| row.ok).map(flow).collect();
    group_reports(
        &case,
        &Sample {
            requests_window: ThroughputWindow::of_lengths(vec![1.5, 0.5]),
            flows,
            scalars,
            ..sample_of(rows)
        },
    )
}

#[test]
fn every_entry_of_a_mix_is_reported_with_its_groups() {
    let sent = |group, e2e| TestRequest {
        busy_ms: 1.0,
        ..row(Some(group), e2e)
    };
    let seen = mixed(vec![
        sent("a/20", 1.0),
        sent("b", 100.0),
        sent("b", 0.0),
        sent("a/3", 1.0),
        row(Some("b"), 0.0),
    ]);
    let names: Vec<(&str, u64, u64)> = seen
        .iter()
        .map(|own| (own.name.as_str(), own.ok, own.scheduled))
        .collect();
    assert_eq!(
        names,
        [
            ("b", 1, 3),
            ("a", 2, 2),
            ("a/3", 1, 1),
            ("a/20", 1, 1),
            ("idle", 0, 0)
        ]
    );
    let of = |index: usize, metric| seen[index].scalars.get(&metric).copied();
    assert_eq!(
        (
            of(0, Metric::ErrorRate),
            of(1, Metric::ErrorRate),
            of(4, Metric::ErrorRate)
        ),
        (Some(2.0 / 3.0), Some(0.0), None)
    );
    // One and two requests of ten tokens in two seconds.
    assert_eq!(
        (
            of(0, Metric::RequestThroughput),
            of(1, Metric::RequestThroughput)
        ),
        (Some(0.5), Some(1.0))
    );
    assert_eq!(
        (of(0, Metric::OutputTps), of(1, Metric::OutputTps)),
        (Some(5.0), Some(10.0))
    );
    // Three of five arrivals, of which two of four were sent.
    assert_eq!(
        (of(0, Metric::RateOffered), of(0, Metric::RateAchieved)),
        (Some(8.0 * 3.0 / 5.0), Some(3.0))
    );
}

#[test]
fn entries_are_reported_with_any_number_of_groups() {
    let seen = mixed(
        (0..65)
            .map(|n| row(Some(&format!("a/prefix-{n}")), 1.0))
            .collect(),
    );
    assert_eq!(
        seen.iter()
            .map(|own| (own.name.as_str(), own.scheduled))
            .collect::<Vec<_>>(),
        [("b", 0), ("a", 65), ("idle", 0)]
    );
}
