use super::*;
use crate::fixture::TestRequest;
use crate::judge::fixture::{check, failed, ok, sample};

fn of(check: &Check, rows: Vec<TestRequest>) -> Evidence {
    Evidence::collect(check, &sample(rows))
}

#[test]
fn failed_rows_break_any_limit_where_all_scheduled_count() {
    let mut wanted = check(Metric::Ttft, Some(Stat::Max), Op::Less, 5.0);
    let rows = || vec![ok(Metric::Ttft, 4.0), failed()];
    assert_eq!(of(&wanted, rows()), Evidence::Values(vec![4.0], Stat::Max));
    wanted.of = RequestSet::Scheduled;
    assert_eq!(
        of(&wanted, rows()),
        Evidence::Values(vec![4.0, f64::INFINITY], Stat::Max)
    );
    wanted.op = Op::More;
    assert_eq!(
        of(&wanted, rows()),
        Evidence::Values(vec![4.0, f64::NEG_INFINITY], Stat::Max)
    );
}

#[test]
fn an_arrival_that_was_held_to_the_end_exceeds_any_quantile() {
    let held = TestRequest {
        values: vec![(Metric::HeldTime, 900.0)],
        ..failed()
    };
    let rows = || vec![ok(Metric::E2e, 4.0), failed(), held.clone()];
    let quantile = Stat::Quantile(0.5);
    assert_eq!(
        of(&check(Metric::E2e, Some(quantile), Op::Less, 5.0), rows()),
        Evidence::Values(vec![4.0, f64::INFINITY], quantile)
    );
    for (metric, stat) in [(Metric::E2e, Stat::Max), (Metric::E2eService, quantile)] {
        let rows = vec![ok(metric, 4.0), held.clone()];
        assert_eq!(
            of(&check(metric, Some(stat), Op::Less, 5.0), rows),
            Evidence::Values(vec![4.0], stat)
        );
    }
}

#[test]
fn a_mean_over_all_scheduled_knows_of_the_failed_ones() {
    let wanted = Check {
        of: RequestSet::Scheduled,
        ..check(Metric::Ttft, Some(Stat::Mean), Op::Less, 5.0)
    };
    assert_eq!(
        of(&wanted, vec![ok(Metric::Ttft, 4.0), failed()]),
        Evidence::Values(vec![4.0, f64::INFINITY], Stat::Mean)
    );
    assert!(matches!(
        of(&wanted, vec![ok(Metric::Ttft, 4.0)]),
        Evidence::Ratio(_)
    ));
}

#[test]
fn only_checked_answers_count_towards_their_share() {
    let valid = |flag: f64| ok(Metric::ValidRate, flag);
    let rows = || {
        vec![
            valid(1.0),
            valid(0.0),
            valid(1.0),
            ok(Metric::Ttft, 4.0),
            failed(),
        ]
    };
    let wanted = check(Metric::ValidRate, None, Op::AtLeast, 0.5);
    assert_eq!(of(&wanted, rows()), Evidence::Share { hits: 2, n: 3 });
    let wanted = check(Metric::MatchRate, None, Op::AtLeast, 0.5);
    assert_eq!(of(&wanted, rows()), Evidence::Share { hits: 0, n: 0 });
}

#[test]
fn a_finish_reason_is_a_share_of_ok_requests() {
    let ended = |reason: &str| TestRequest {
        finish_reason: Some(reason.into()).filter(|reason: &String| !reason.is_empty()),
        ..ok(Metric::Ttft, 1.0)
    };
    let left = TestRequest {
        ok: false,
        left: true,
        ..ended("length")
    };
    let rows = || {
        let in_group = TestRequest {
            group: Some("chat".into()),
            ..ended("max_tokens")
        };
        let others = [ended("length"), ended("stop"), ended(""), failed()];
        [vec![in_group, left.clone()], others.to_vec()].concat()
    };
    let finish = |reason: &str, tags: &[(&str, &str)]| {
        let tags = tags
            .iter()
            .map(|(tag, value)| ((*tag).into(), (*value).into()));
        Check {
            subject: Subject::Finish {
                reason: reason.into(),
                tags: tags.collect(),
            },
            ..check(Metric::ErrorRate, None, Op::AtMost, 0.05)
        }
    };
    let share = |hits, n| Evidence::Share { hits, n };
    assert_eq!(of(&finish("length", &[]), rows()), share(2, 4));
    assert_eq!(of(&finish("max_tokens", &[]), rows()), share(1, 4));
    assert_eq!(of(&finish("tool_calls", &[]), rows()), share(0, 4));
    let of_chat = finish("length", &[("group", "chat")]);
    assert_eq!(of(&of_chat, rows()), share(1, 1));
    // A server that sends no reason has no share of one.
    assert_eq!(of(&finish("stop", &[]), vec![ended("")]), share(0, 0));
}

#[test]
fn users_who_left_are_no_errors_and_count_for_what_they_saw() {
    let left = TestRequest {
        left: true,
        ok: false,
        ..ok(Metric::Ttft, 9.0)
    };
    let rows = || vec![ok(Metric::Ttft, 4.0), left.clone(), failed()];
    let errors = check(Metric::ErrorRate, None, Op::Less, 0.1);
    assert_eq!(of(&errors, rows()), Evidence::Share { hits: 1, n: 2 });
    let limits = [RequestLimit {
        metric: Metric::Ttft,
        op: Op::Less,
        limit: 99.0,
    }];
    assert_eq!(
        goodput_flags(&sample(rows()).requests, &limits),
        [true, false]
    );
    let scheduled = |metric, stat| Check {
        of: RequestSet::Scheduled,
        ..check(metric, Some(stat), Op::Less, 5.0)
    };
    let worst = f64::INFINITY;
    assert_eq!(
        of(&scheduled(Metric::Ttft, Stat::Max), rows()),
        Evidence::Values(vec![4.0, 9.0, worst], Stat::Max)
    );
    assert_eq!(
        of(&scheduled(Metric::E2e, Stat::Max), vec![left.clone()]),
        Evidence::Values(vec![], Stat::Max)
    );
    let Evidence::Ratio(mean) = of(&scheduled(Metric::Ttft, Stat::Mean), rows()[..2].to_vec())
    else {
        panic!("a mean")
    };
    assert_eq!((mean.n, mean.observed), (2, Some(6.5)));
}

#[test]
fn tags_leave_out_the_other_rows() {
    let mut wanted = check(Metric::ErrorRate, None, Op::Less, 0.1);
    let rows = || {
        vec![
            TestRequest {
                model: "a".into(),
                ..failed()
            },
            TestRequest {
                round: 1,
                model: "b".into(),
                ..ok(Metric::Ttft, 1.0)
            },
        ]
    };
    let mut with = |tag: &str, value: &str| {
        let Subject::Metric { tags, .. } = &mut wanted.subject else {
            unreachable!()
        };
        *tags = vec![(tag.into(), value.into())];
        of(&wanted, rows())
    };
    assert_eq!(with("model", "a"), Evidence::Share { hits: 1, n: 1 });
    assert_eq!(with("round", "1"), Evidence::Share { hits: 0, n: 1 });
    assert_eq!(with("colour", "red"), Evidence::Share { hits: 0, n: 0 });
}

#[test]
fn gaps_pool_over_requests() {
    let row = |gaps: &[f64]| TestRequest {
        gaps: gaps.to_vec(),
        ..ok(Metric::Ttft, 1.0)
    };
    let wanted = check(Metric::Itl, Some(Stat::Quantile(0.5)), Op::Less, 5.0);
    let seen = of(&wanted, vec![row(&[1.0, 2.0]), row(&[]), row(&[3.0])]);
    assert_eq!(
        seen,
        Evidence::Values(vec![1.0, 2.0, 3.0], Stat::Quantile(0.5))
    );
}

#[test]
fn every_statistic_of_a_few_values() {
    let of = |stat| statistic(&mut [3.0, 1.0, 2.0, 6.0], stat);
    let stats = [
        Stat::Quantile(0.5),
        Stat::Quantile(1.0),
        Stat::Mean,
        Stat::Min,
        Stat::Max,
        Stat::Count,
    ];
    assert_eq!(stats.map(of), [2.0, 6.0, 3.0, 1.0, 6.0, 4.0].map(Some));
    let lost =
        [Stat::Mean, Stat::Sd, Stat::Max].map(|stat| statistic(&mut [1.0, f64::INFINITY], stat));
    assert_eq!(lost, [Some(f64::INFINITY); 3]);
    assert_eq!(
        (
            statistic(&mut [1.0], Stat::Sd),
            statistic(&mut [], Stat::Count)
        ),
        (None, None)
    );
}

#[test]
fn only_evidence_with_a_bound_has_a_test() {
    let judged = |op, limit, evidence: &Evidence| {
        point_only_reason(&check(Metric::ErrorRate, None, op, limit), evidence).is_none()
    };
    let (share, quantile) = (
        Evidence::Share { hits: 0, n: 9 },
        Evidence::Values(vec![1.0], Stat::Quantile(0.9)),
    );
    assert!(judged(Op::Less, 0.01, &share) && judged(Op::Less, 5.0, &quantile));
    assert!(
        !judged(Op::AtMost, 0.0, &share)
            && !judged(Op::AtLeast, 1.0, &share)
            && !judged(Op::Equal, 5.0, &quantile)
    );
    assert!(!judged(
        Op::Less,
        5.0,
        &Evidence::Values(vec![1.0], Stat::Max)
    ));
    assert!(!judged(Op::Less, 5.0, &Evidence::Figure(Some(1.0), 1)));
}
