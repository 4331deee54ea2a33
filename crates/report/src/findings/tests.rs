use super::*;
use crate::fixture::{case, failing, report_of, sweep};
use llmscen_core::report::{Cause, GroupReport, RunVerdict};
use llmscen_core::telemetry::SignalStat;

/// A case with the mean and the maximum of signals.
fn with(users: u32, signals: &[(Signal, f64, f64)]) -> CaseReport {
    let mut case = case(users);
    for (signal, mean, max) in signals {
        let stat = SignalStat {
            n: 20,
            mean: Some(*mean),
            max: Some(*max),
            ..SignalStat::default()
        };
        case.telemetry.signals.insert(*signal, stat);
    }
    case
}

fn texts(report: &Report) -> Vec<String> {
    findings(report).into_iter().map(|it| it.text).collect()
}

fn of_cases(cases: Vec<CaseReport>) -> Vec<String> {
    texts(&report_of(cases, RunVerdict::Fail, 1))
}

/// Cases whose error rate is decided, so that only what a test is about is found.
fn decided(mut case: CaseReport) -> CaseReport {
    case.verdicts.truncate(1);
    case
}

#[test]
fn a_case_in_order_has_no_finding() {
    assert_eq!(of_cases(vec![decided(case(4))]), [""; 0]);
}

#[test]
fn a_failed_objective_names_the_load_from_which_it_fails() {
    let cases: Vec<CaseReport> = [4, 8, 64, 96].map(|users| decided(case(users))).into();
    assert_eq!(
        of_cases(cases)[0],
        "`ttft.p99 < 500ms` fails from concurrency 64 on (worst in `concurrency=96`: 2.55 s, 5.1x the limit)."
    );
}

#[test]
fn short_replies_are_found_above_five_percent() {
    let with = |users: u32, shorter: u64| {
        let mut case = decided(case(users));
        case.output_lengths = Some(OutputLengths {
            n: 100,
            requested_mean: 64.0,
            received_mean: 60.0,
            is_minimum: false,
            shorter,
        });
        case
    };
    assert_eq!(of_cases(vec![with(4, 5)]), [""; 0]);
    assert_eq!(
        of_cases(vec![with(4, 5), with(8, 6), with(16, 94)]),
        [
            "100 of 200 replies have fewer output tokens than requested from concurrency 8 on: \
             the server may ignore the requested length."
        ]
    );
}

#[test]
fn a_queue_is_a_cause_only_with_a_measured_queue_time() {
    let waiting = [
        (Signal::ServerWaiting, 40.2, 61.0),
        (Signal::ServerKvCacheUsage, 0.8, 0.93),
    ];
    let queued = with(64, &waiting);
    assert_eq!(
        of_cases(vec![decided(case(4)), decided(queued.clone())])[0],
        "`ttft.p99 < 500ms` fails from concurrency 64 on while requests queue in the server: \
         server waiting 40 on average, KV cache up to 93% (1.33 s, 2.7x the limit)."
    );
    let total = queued.distributions[&Metric::Ttft].mean;
    let mut timed = with(64, &[(Signal::ServerQueueTime, total * 0.8, 900.0)]);
    timed.telemetry.signals.extend(queued.telemetry.signals);
    assert_eq!(
        of_cases(vec![decided(case(4)), decided(timed)])[0],
        "`ttft.p99 < 500ms` fails from concurrency 64 on because requests queue in the server: \
         queue time is 80% of the mean TTFT, server waiting 40 on average, KV cache up to 93% \
         (1.33 s, 2.7x the limit)."
    );
    let idle = with(64, &[(Signal::ServerWaiting, 0.1, 1.0)]);
    assert_eq!(
        of_cases(vec![decided(idle)])[0],
        "`ttft.p99 < 500ms` fails (1.33 s, 2.7x the limit)."
    );
}

#[test]
fn failed_requests_are_counted_by_kind_and_time() {
    let mut case = failing();
    case.verdicts.clear();
    assert_eq!(
        of_cases(vec![case.clone()]),
        ["11 of 240 requests failed: 9 `http_5xx`, 2 `truncated`; spread from 11.2 s to 20.2 s."]
    );
    for (index, point) in case.timelines.failures.iter_mut().enumerate() {
        point.0 = 3.0 + index as f64 * 0.01;
    }
    assert_eq!(
        of_cases(vec![case.clone()]),
        [
            "11 of 240 requests failed: 9 `http_5xx`, 2 `truncated`; all between 3 s and 3.10 s of the run."
        ]
    );
    let mut other = failing();
    other.id = "other".to_owned();
    other.verdicts.clear();
    assert_eq!(
        of_cases(vec![case, other])[0],
        "22 of 480 requests failed in all 2 cases: 18 `http_5xx`, 4 `truncated`; most in `other`: 11."
    );
}

#[test]
fn an_endpoint_that_answered_nothing_is_found_and_noted_once() {
    let endpoint = |name: &str, scheduled, errors| GroupReport {
        name: name.into(),
        scheduled,
        scalars: [(Metric::ErrorRate, errors)].into(),
        ..GroupReport::default()
    };
    let mut partly = decided(case(4));
    partly.endpoints = vec![
        endpoint("a:80", 20, 0.95),
        endpoint("b:80", 20, 1.0),
        GroupReport {
            name: "c:80".into(),
            ..GroupReport::default()
        },
    ];
    let line = "Endpoint `b:80` answered none of its 20 requests successfully.";
    assert_eq!(of_cases(vec![partly.clone()]), [line]);
    assert!(notes::notes(&partly).contains(&line.to_owned()));
    let report = report_of(vec![partly.clone()], RunVerdict::Pass, 0);
    let mut grouped = notes::grouped_notes(&report).into_iter();
    assert!(
        grouped.all(|(note, _)| note != line),
        "a finding is no note"
    );
    partly.counts.ok = 0;
    assert_eq!(notes::silent_endpoints(&partly).count(), 0);
}

#[test]
fn saturation_is_the_load_where_throughput_stops_growing() {
    let mut report = sweep(12);
    for case in &mut report.cases {
        case.verdicts.clear();
        let rate = case.load_value.unwrap().min(32.0) * 10.0;
        case.scalars.insert(Metric::OutputTps, rate);
    }
    assert_eq!(
        texts(&report),
        [
            "Throughput stops increasing at concurrency 32: 320 tok/s there, 320 tok/s at 128, \
            while TTFT p95 changes from 412 ms to 2.81 s."
        ]
    );
    for case in &mut report.cases {
        let rate = case.load_value.unwrap() * 10.0;
        case.scalars.insert(Metric::OutputTps, rate);
    }
    assert_eq!(texts(&report), [""; 0]);
}

#[test]
fn a_full_cache_throttled_gpus_and_a_busy_host_are_found() {
    let signals = [
        (Signal::ServerKvCacheUsage, 0.9, 0.99),
        (Signal::ServerPreemptions, 1.25, 4.0),
        (Signal::GpuThrottled, 0.5, 1.0),
        (Signal::HostCpu, 0.97, 1.0),
        (Signal::ToolCpu, 0.52, 0.6),
        (Signal::ProcessCpu, 3.0, 3.5),
    ];
    let cases = vec![decided(with(4, &signals)), decided(case(8))];
    assert_eq!(
        of_cases(cases),
        [
            "KV cache usage reaches 99% in `concurrency=4`; the server preempts up to 1.25 requests/s.",
            "GPUs are throttled in `concurrency=4`: on average 50% of them.",
            "Host CPU is 97% in `concurrency=4`. Of 16 cores, the load generator uses 0.520, the \
             managed server 3, other processes 12.",
        ]
    );
}

#[test]
fn correlated_samples_are_one_finding_over_all_cases() {
    let mut cases = vec![decided(case(4)), decided(case(8)), decided(case(12))];
    (cases[0].verdicts[0].n, cases[0].verdicts[0].effective_n) = (640, Some(47.4));
    (cases[1].verdicts[0].n, cases[1].verdicts[0].effective_n) = (640, Some(300.0));
    assert_eq!(
        of_cases(cases),
        [
            "Consecutive requests are correlated in 2 of 3 cases (`ttft.p99`). In \
          `concurrency=4`, 640 requests carry the information of about 47 independent ones."
        ]
    );
}

#[test]
fn invalid_and_inconclusive_objectives_are_one_line_each() {
    let mut report = sweep(2);
    report.cases[0].verdicts[0].ruling = Ruling::Invalid;
    report.cases[0].audit.reasons =
        vec![Cause::LoadGenerator.reason("one worker thread was stalled for 9% of the time.")];
    assert_eq!(
        texts(&report),
        [
            "1 objective is INVALID in `concurrency=1`: one worker thread was stalled for 9% of the time.",
            "2 objectives are INCONCLUSIVE in all 2 cases. About 299 requests are needed, 240 measured. The largest: \
             `error_rate < 1%` in `concurrency=2`.",
        ]
    );
}

#[test]
fn what_was_not_measured_is_named() {
    let report = report_of(
        vec![with(4, &[(Signal::HostCpu, 0.1, 0.2)])],
        RunVerdict::Pass,
        0,
    );
    assert_eq!(
        unmeasured(&report).unwrap(),
        "Not measured: server queue and KV cache (set `target.metrics`), GPU."
    );
    assert_eq!(
        unmeasured(&report_of(Vec::new(), RunVerdict::Pass, 0)),
        None
    );
}

#[test]
fn a_ratio_to_the_limit_is_above_one_where_it_is_exceeded() {
    use llmscen_core::check::Op;
    let mut verdict = case(64).verdicts[0].clone();
    assert!(limit_ratio(&verdict).unwrap() > 1.0);
    verdict.check.op = Op::AtLeast;
    assert!(limit_ratio(&verdict).unwrap() < 1.0);
    (verdict.observed, verdict.check.limit) = (Some(250.0), 500.0);
    assert_eq!(excess(&verdict).unwrap(), "0.50x the limit");
    verdict.check.limit = 0.0;
    assert_eq!(excess(&verdict), None);
    assert_eq!([1.001, f64::INFINITY].map(factor), [None, None]);
}
