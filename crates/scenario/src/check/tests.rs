//! The grammar of limits: what is parsed, and where errors point to.

use super::*;
use llmscen_core::check::relative::{CaseReference, ReferenceKind};
use llmscen_core::check::{Check, Confidence, NoData, PageMetric, PageStat, RequestSet};
use llmscen_core::label::Labels;
use llmscen_core::metric::Stat;
use llmscen_core::signal::Signal;
use llmscen_core::units::Unit;
use proptest::prelude::*;

fn check(assertion: Assertion) -> Check {
    Check {
        expr: String::new(),
        subject: assertion.subject,
        op: assertion.op,
        limit: assertion.limit,
        relative: assertion.relative,
        confidence: Confidence::Point,
        when: Labels::default(),
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        abort: None,
        is_default: false,
    }
}

fn metric(metric: Metric, stat: Option<Stat>, op: Op, limit: f64) -> Assertion {
    Assertion {
        subject: Subject::Metric {
            metric,
            stat,
            tags: vec![],
        },
        op,
        limit,
        relative: None,
    }
}

#[test]
fn limits_are_converted_to_the_unit_of_their_metric() {
    use Metric::*;
    let p = |share| Some(Stat::Quantile(share));
    for (text, assertion) in [
        ("ttft.p99 < 500ms", metric(Ttft, p(0.99), Op::Less, 500.0)),
        (
            "ttft.p99.9<=0.3s",
            metric(Ttft, p(0.999), Op::AtMost, 300.0),
        ),
        (
            " itl.max < 2 m ",
            metric(Itl, Some(Stat::Max), Op::Less, 120_000.0),
        ),
        (
            "tpot.mean < 500us",
            metric(Tpot, Some(Stat::Mean), Op::Less, 0.5),
        ),
        ("error_rate < 1%", metric(ErrorRate, None, Op::Less, 0.01)),
        ("error_rate == 0%", metric(ErrorRate, None, Op::Equal, 0.0)),
        (
            "output_tps >= 1000",
            metric(OutputTps, None, Op::AtLeast, 1000.0),
        ),
        (
            "output_tps >= 1000 tok/s",
            metric(OutputTps, None, Op::AtLeast, 1000.0),
        ),
        (
            "request_throughput > 2.5 req/s",
            metric(RequestThroughput, None, Op::More, 2.5),
        ),
        (
            "ttft.count >= 100",
            metric(Ttft, Some(Stat::Count), Op::AtLeast, 100.0),
        ),
        (
            "output_tokens.p50 != 7 tok",
            metric(OutputTokens, p(0.5), Op::Unequal, 7.0),
        ),
        ("window < 1h", metric(Window, None, Op::Less, 3600.0)),
    ] {
        assert_eq!(parse(text), Ok(assertion), "{text}");
    }
}

#[test]
fn tags_and_goodput_are_parsed() {
    let tagged = parse("ttft{ model = meta/llama-3, round=2 }.p95 < 1s").unwrap();
    let tags = vec![
        ("model".to_owned(), "meta/llama-3".to_owned()),
        ("round".to_owned(), "2".to_owned()),
    ];
    assert_eq!(
        tagged.subject,
        Subject::Metric {
            metric: Metric::Ttft,
            stat: Some(Stat::Quantile(0.95)),
            tags
        }
    );
    let goodput = parse("goodput(ttft < 500ms, tpot <= 40ms) >= 99%").unwrap();
    let limits = vec![
        RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit: 500.0,
        },
        RequestLimit {
            metric: Metric::Tpot,
            op: Op::AtMost,
            limit: 40.0,
        },
    ];
    assert_eq!(
        goodput,
        Assertion {
            subject: Subject::Goodput(limits),
            op: Op::AtLeast,
            limit: 0.99,
            relative: None
        }
    );
}

#[test]
fn finish_reasons_are_words_of_the_server() {
    let finish = |reason: &str, tags: &[(&str, &str)]| Subject::Finish {
        reason: reason.to_owned(),
        tags: tags
            .iter()
            .map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned()))
            .collect(),
    };
    for (text, subject, shown) in [
        (
            "finish{length}.share <= 5%",
            finish("length", &[]),
            "finish{length}.share",
        ),
        (
            "finish { eos_token , group = chat } . share <= 5%",
            finish("eos_token", &[("group", "chat")]),
            "finish{eos_token,group=chat}.share",
        ),
        (
            "finish{group=a,turn=first,STOP: user}.share <= 5%",
            finish("STOP: user", &[("group", "a"), ("turn", "first")]),
            "finish{STOP: user,group=a,turn=first}.share",
        ),
    ] {
        let parsed = parse(text).unwrap();
        assert_eq!((&parsed.subject, parsed.limit), (&subject, 0.05), "{text}");
        assert_eq!(subject.to_string(), shown);
        assert_eq!(parse_subject(shown).unwrap(), subject);
    }
    let relative = parse("finish{stop}.share >= 0.98 * baseline").unwrap();
    assert_eq!(relative.relative.unwrap().factor, 0.98);
    for (text, underlined, message) in [
        (
            "finish.share <= 5%",
            "finish",
            "`finish` needs a finish reason",
        ),
        ("finish <= 5%", "finish", "`finish` needs a finish reason"),
        (
            "finish{}.share <= 5%",
            "}",
            "`finish{}` has no finish reason",
        ),
        (
            "finish{group=a}.share <= 5%",
            "finish",
            "`finish` needs a finish reason",
        ),
        (
            "finish{length} <= 5%",
            "finish",
            "`finish{length}` needs `.share`",
        ),
        ("finish{length}.p95 <= 5%", "p95", "unknown statistic `p95`"),
        (
            "finish{length,stop}.share <= 5%",
            "stop",
            "two finish reasons in one limit",
        ),
        (
            "finish{length,color=red}.share <= 5%",
            "color",
            "unknown tag `color`",
        ),
        (
            "finish{reason=length}.share <= 5%",
            "reason",
            "unknown tag `reason`",
        ),
        ("finish{length}.share <= 5", "5", "missing unit"),
        (
            "finish{length.share <= 5%",
            "<",
            "`}` is missing after the finish reason",
        ),
    ] {
        let error = parse(text).unwrap_err();
        let found = (&text[error.range.clone()], error.message.as_str());
        assert_eq!(found, (underlined, message), "{text}");
    }
}

#[test]
fn relative_limits_are_parsed() {
    for (text, relative) in [
        (
            "ttft.p95 <= 1.10 * baseline",
            (ReferenceKind::Baseline, 1.1),
        ),
        ("ttft.p95 <= baseline", (ReferenceKind::Baseline, 1.0)),
        (
            "output_tps>=0.95*reference",
            (ReferenceKind::Reference, 0.95),
        ),
        (
            "goodput(ttft < 500ms) >= 0.98 * baseline",
            (ReferenceKind::Baseline, 0.98),
        ),
    ] {
        assert_eq!(
            parse(text).map(|found| (found.relative, found.limit)),
            Ok((Some(Relative::new(relative.0, relative.1, None)), 0.0)),
            "{text}"
        );
    }
    let text = "ttft.p99 <= 3 * case(variant=base, load.concurrency=1).ttft{turn=first}.p50";
    let parsed = parse(text).unwrap();
    assert_eq!(check(parsed.clone()).to_string(), text);
    assert_eq!(
        parsed.relative.unwrap().case,
        Some(CaseReference {
            labels: vec![
                ("variant".to_owned(), "base".to_owned()),
                ("load.concurrency".to_owned(), "1".to_owned())
            ],
            subject: parse_subject("ttft{turn=first}.p50").ok(),
            id: String::new(),
        })
    );
    assert_eq!(
        parse_subject(" ttft{model=a}.p95").unwrap().to_string(),
        "ttft{model=a}.p95"
    );
    assert_eq!(
        parse_value("0.3s", &parse_subject("ttft.p95").unwrap()),
        Ok(300.0)
    );
    assert_eq!(
        parse_value("420", &parse_subject("output_tps").unwrap()),
        Ok(420.0)
    );
}

#[test]
fn every_syntax_error_has_a_position() {
    for (text, underlined, message, label) in [
        (
            "tftt.p99 < 500ms",
            "tftt",
            "unknown metric `tftt`",
            "did you mean `ttft`?",
        ),
        (
            "ttft_ms.p99 < 500ms",
            "ttft_ms",
            "unknown metric `ttft_ms`",
            "did you mean `ttft`?",
        ),
        (
            "< 5ms",
            "<",
            "a limit begins with a metric",
            "expected a metric",
        ),
        (
            "ttft < 500ms",
            "ttft",
            "`ttft` needs a statistic",
            "for example `ttft.p95`",
        ),
        (
            "ttft.p101 < 500ms",
            "p101",
            "unknown statistic `p101`",
            "does not exist",
        ),
        (
            "ttft.median < 5ms",
            "median",
            "unknown statistic `median`",
            "did you mean `p50`?",
        ),
        (
            "error_rate.p99 < 1%",
            "p99",
            "`error_rate` is one value per case",
            "has no statistics",
        ),
        ("error_rate < 1", "1", "missing unit", "write `1%`"),
        (
            "ttft.p99 < 500",
            "500",
            "missing unit",
            "write `500ms` or `500s`",
        ),
        (
            "ttft.p99 < 5%",
            "%",
            "`%` is not a unit for `ttft`",
            "expected `ns`, `us`, `ms`, `s`, `m` or `h`",
        ),
        (
            "output_tps > 5 req/s",
            "req/s",
            "`req/s` is not a unit for `output_tps`",
            "expected `tok/s`",
        ),
        (
            "ttft.count > 5ms",
            "ms",
            "`ms` is not a unit for `ttft`",
            "expected no unit",
        ),
        (
            "ttft.p99 < 5msec",
            "msec",
            "unknown time unit `msec`",
            "did you mean `ms`?",
        ),
        (
            "e2e.p99 < 2 minutes",
            "minutes",
            "unknown time unit `minutes`",
            "did you mean `m`?",
        ),
        (
            "output_tps > 5 tok/sec",
            "tok/sec",
            "unknown unit `tok/sec`",
            "did you mean `tok/s`?",
        ),
        (
            "error_rate < 101%",
            "101%",
            "a share above 100 %",
            "expected 0 % to 100 %",
        ),
        (
            "ttft.p99 < -5ms",
            "-5ms",
            "a limit below zero",
            "`ttft` is never negative",
        ),
        (
            "ttft.p99 = 5ms",
            "=",
            "a comparison is missing",
            "expected `<`, `<=`, `>`, `>=`, `==` or `!=`",
        ),
        (
            "ttft.p99",
            "9",
            "a comparison is missing",
            "expected `<`, `<=`, `>`, `>=`, `==` or `!=`",
        ),
        (
            "ttft.p99 <",
            "<",
            "the limit is missing",
            "expected a number with its unit",
        ),
        (
            "ttft.p99 < 1.2.3ms",
            "1.2.3",
            "`1.2.3` is not a number",
            "expected a number",
        ),
        (
            "ttft.p99 < 5ms or so",
            "or so",
            "text after the end of the limit",
            "unexpected text",
        ),
        (
            "ttft{modl=a}.p99 < 5ms",
            "modl",
            "unknown tag `modl`",
            "did you mean `model`?",
        ),
        (
            "ttft{model=a.p99 < 5ms",
            "s",
            "`}` is missing after the tags",
            "expected `}`",
        ),
        (
            "goodput >= 99%",
            "goodput",
            "`goodput` needs limits",
            "define a good request",
        ),
        (
            "goodput(ttft.p99 < 5ms) >= 99%",
            "p99",
            "a statistic inside goodput",
            "a single request has no statistics",
        ),
        (
            "goodput(error_rate < 5%) >= 99%",
            "error_rate",
            "`error_rate` is one value per case",
            "a single request has no such value",
        ),
        (
            "goodput(ttft < 5ms) >= 99",
            "99",
            "missing unit",
            "write `99%`",
        ),
        (
            "ttft.p95 <= 0 * baseline",
            "0",
            "the factor must be above 0",
            "not a multiple of the baseline",
        ),
        (
            "ttft.p95 <= -1 * baseline",
            "-1",
            "the factor must be above 0",
            "not a multiple of the baseline",
        ),
        (
            "ttft.p95 <= 1.1 * basline",
            "basline",
            "a product must refer to another run, case or metric",
            "did you mean `baseline`?",
        ),
        (
            "ttft.p95 <= 2 * 3",
            "3",
            "a product must refer to another run, case or metric",
            "expected `baseline`, `reference`, `case(…)` or a metric",
        ),
        (
            "ttft.p95 <= baseline * 1.1",
            "baseline",
            "the factor must be first",
            "move it before this word",
        ),
        (
            "ttft.p95 <= 1.1 baseline",
            "baseline",
            "`*` is missing before `baseline`",
            "expected `*`",
        ),
        (
            "ttft.p95 <= 110% * baseline",
            "%",
            "a factor has no unit",
            "expected a plain number",
        ),
        (
            "ttft.p95 == baseline",
            "baseline",
            "`==` cannot have a relative limit",
            "two runs are never exactly equal",
        ),
        (
            "goodput(ttft < baseline) >= 9%",
            "baseline",
            "a relative limit inside goodput",
            "a single request has no counterpart",
        ),
        (
            "goodput(ttft < 2 * baseline) >= 9%",
            "2 * baseline",
            "a relative limit inside goodput",
            "a single request has no counterpart",
        ),
        (
            "startup_s < 60s",
            "startup_s",
            "unknown metric `startup_s`",
            "did you mean `startup`?",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(
            (
                &text[error.range.clone()],
                error.message.as_str(),
                error.label.as_str()
            ),
            (underlined, message, label),
            "{text}"
        );
    }
}

fn limits() -> impl Strategy<Value = RequestLimit> {
    let metrics: Vec<Metric> = Metric::ALL
        .iter()
        .copied()
        .filter(|metric| metric.per() != Scope::Case)
        .collect();
    (proptest::sample::select(metrics), ops(), values()).prop_map(|(metric, op, value)| {
        let limit = match metric.unit() {
            Unit::Share => (value.fract() * 1e4).round() / 1e4,
            _ => value,
        };
        RequestLimit { metric, op, limit }
    })
}

fn ops() -> impl Strategy<Value = Op> {
    proptest::sample::select(vec![
        Op::Less,
        Op::AtMost,
        Op::More,
        Op::AtLeast,
        Op::Equal,
        Op::Unequal,
    ])
}

fn values() -> impl Strategy<Value = f64> {
    (0..10_000_000_u32).prop_map(|n| f64::from(n) / 1000.0)
}

fn quantiles() -> impl Strategy<Value = Stat> {
    (0..=1000_u32).prop_map(|n| Stat::parse(&format!("p{}", f64::from(n) / 10.0)).unwrap())
}

fn assertions() -> impl Strategy<Value = Assertion> {
    let stats = prop_oneof![
        quantiles(),
        proptest::sample::select(vec![
            Stat::Mean,
            Stat::Min,
            Stat::Max,
            Stat::Count,
            Stat::Sd
        ]),
    ];
    let tags = proptest::collection::vec(
        (
            proptest::sample::select(vec!["model", "round"]),
            "[a-z0-9][a-z0-9/.-]{0,8}",
        ),
        0..3,
    );
    let plain = (
        proptest::sample::select(Metric::ALL),
        stats,
        tags,
        ops(),
        values(),
        0..=10_000_u32,
    )
        .prop_map(|(metric, stat, tags, op, value, hundredths)| {
            let stat = (metric.per() != Scope::Case).then_some(stat);
            let limit = if metric.unit() == Unit::Share {
                f64::from(hundredths) / 10_000.0
            } else {
                value
            };
            let tags = tags
                .into_iter()
                .map(|(tag, value)| (tag.to_owned(), value))
                .collect();
            Assertion {
                subject: Subject::Metric { metric, stat, tags },
                op,
                limit,
                relative: None,
            }
        });
    let goodput = (
        proptest::collection::vec(limits(), 1..4),
        ops(),
        0..=10_000_u32,
    )
        .prop_map(|(limits, op, n)| Assertion {
            subject: Subject::Goodput(limits),
            op,
            limit: f64::from(n) / 10_000.0,
            relative: None,
        });
    let signal = (
        proptest::sample::select(Signal::ALL),
        quantiles(),
        ops(),
        values(),
        0..=10_000_u32,
    )
        .prop_map(|(signal, stat, op, value, hundredths)| {
            let limit = if signal.unit() == Unit::Share {
                f64::from(hundredths) / 10_000.0
            } else {
                value
            };
            Assertion {
                subject: Subject::Signal {
                    signal,
                    stat,
                    role: None,
                },
                op,
                limit,
                relative: None,
            }
        });
    let page = (
        "[a-z:_]{1,12}",
        proptest::collection::vec(("[a-z]{1,5}", "[a-z0-9./]{1,8}"), 0..3),
        proptest::sample::select(&PageStat::ALL[..]),
        ops(),
        values(),
    )
        .prop_map(|(name, labels, stat, op, limit)| Assertion {
            subject: Subject::PageMetric(PageMetric { name, labels, stat }),
            op,
            limit,
            relative: None,
        });
    let (plain, goodput) = (plain.boxed(), goodput.boxed());
    let relative = (
        prop_oneof![plain.clone(), goodput.clone()],
        1..3000_u32,
        any::<bool>(),
    );
    let relative = relative.prop_map(|(assertion, hundredths, up)| Assertion {
        op: if up { Op::AtLeast } else { Op::Less },
        limit: 0.0,
        relative: Some(Relative::new(
            if up {
                ReferenceKind::Reference
            } else {
                ReferenceKind::Baseline
            },
            f64::from(hundredths) / 100.0,
            None,
        )),
        ..assertion
    });
    prop_oneof![plain, goodput, signal, page, relative]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_checks_parse_equal(assertion in assertions()) {
        let printed = check(assertion.clone()).to_string();
        prop_assert_eq!(parse(&printed), Ok(assertion), "{}", printed);
    }

    #[test]
    fn parser_never_panics(text in "\\PC{0,40}") {
        let _ = parse(&text).map_err(|error| text[error.range].len());
    }
}

#[test]
fn signals_are_parsed_in_their_units() {
    for (text, name, stat, limit) in [
        (
            "server.kv_cache_usage.max < 95%",
            "server.kv_cache_usage",
            Stat::Max,
            0.95,
        ),
        ("gpu.power.mean < 300 W", "gpu.power", Stat::Mean, 300.0),
        (
            "process.memory.max < 8 GiB",
            "process.memory",
            Stat::Max,
            8.0 * 1024.0 * 1024.0 * 1024.0,
        ),
        (
            "server.ttft.p95 < 500ms",
            "server.ttft",
            Stat::Quantile(0.95),
            500.0,
        ),
        (
            "server.ttft.p95 < 0.5s",
            "server.ttft",
            Stat::Quantile(0.95),
            500.0,
        ),
        (
            "server.waiting.p99 < 10",
            "server.waiting",
            Stat::Quantile(0.99),
            10.0,
        ),
        (
            "gpu.temperature.max < 85C",
            "gpu.temperature",
            Stat::Max,
            85.0,
        ),
        (
            "gpu.temperature.max < 85 °C",
            "gpu.temperature",
            Stat::Max,
            85.0,
        ),
        ("host.net_in.mean < 1 GB/s", "host.net_in", Stat::Mean, 1e9),
        ("gpu.clock.min > 1000 MHz", "gpu.clock", Stat::Min, 1000.0),
        (
            "server.preemptions.max == 0 /s",
            "server.preemptions",
            Stat::Max,
            0.0,
        ),
        (
            "server.ttft.count >= 100",
            "server.ttft",
            Stat::Count,
            100.0,
        ),
    ] {
        let found = parse(text).unwrap();
        let wanted = Subject::Signal {
            signal: Signal::parse(name).unwrap(),
            stat,
            role: None,
        };
        assert_eq!((found.subject, found.limit), (wanted, limit), "{text}");
    }
    let of_role = "server{role=prefill}.waiting.max";
    assert_eq!(
        parse_subject(of_role).unwrap(),
        Subject::Signal {
            signal: Signal::ServerWaiting,
            stat: Stat::Max,
            role: Some("prefill".to_owned()),
        }
    );
    assert_eq!(parse_subject(of_role).unwrap().to_string(), of_role);
    let own = parse_subject("server.waiting.max").unwrap();
    assert_eq!(
        (own.to_string().as_str(), parse_value("12", &own)),
        ("server.waiting.max", Ok(12.0))
    );
}

#[test]
fn every_error_in_a_signal_has_a_position() {
    for (text, underlined, message, label) in [
        (
            "server.wating.max < 9",
            "wating",
            "unknown signal `server.wating`",
            "did you mean `server.waiting`?",
        ),
        (
            "server.cache.max < 9%",
            "cache",
            "unknown signal `server.cache`",
            "did you mean `server.kv_cache_usage`?",
        ),
        (
            "gpu.fan.max < 9",
            "fan",
            "unknown signal `gpu.fan`",
            "does not exist",
        ),
        (
            "server < 9",
            "server",
            "`server` has several signals",
            "name one of them",
        ),
        (
            "gpu.power < 300W",
            "gpu.power",
            "`gpu.power` has many values",
            "needs a statistic",
        ),
        (
            "gpu.power.avg < 300W",
            "avg",
            "unknown statistic `avg`",
            "did you mean `mean`?",
        ),
        (
            "gpu.power{gpu=1}.max < 9W",
            "{",
            "`gpu.power` has no tags",
            "it applies to the whole case",
        ),
        (
            "server.ttft.max < 9ms",
            "max",
            "`server.ttft` has no `max`",
            "not available for a histogram",
        ),
        (
            "gpu.power.max < 9kg",
            "kg",
            "`kg` is not a unit for `gpu.power`",
            "expected `W`",
        ),
        (
            "gpu.power.max < 1.1 * baseline",
            "1.1 * baseline",
            "a signal cannot have a relative limit",
            "`gpu.power` is only compared as a point estimate",
        ),
        (
            "gpu.power.max < baseline",
            "baseline",
            "a signal cannot have a relative limit",
            "`gpu.power` is only compared as a point estimate",
        ),
        ("server.", ".", "unknown signal `server.`", "does not exist"),
        (
            "server[x].rate > 0",
            "x",
            "a name without quotes",
            "expected `\"`",
        ),
        (
            "server['x y'].rate > 0",
            "x y",
            "`x y` is not the name of a metric",
            "letters, digits, `_` and `:`",
        ),
        ("server['x'] > 0", "x", "`x` needs a statistic", "has none"),
        (
            "server['x'].mena > 0",
            "mena",
            "unknown statistic `mena`",
            "did you mean `mean`?",
        ),
        (
            "server['x'].rate > 1.1 * baseline",
            "1.1 * baseline",
            "a signal cannot have a relative limit",
            "`x` is only compared as a point estimate",
        ),
    ] {
        let error = parse(text).unwrap_err();
        let told = (
            &text[error.range.clone()],
            error.message.as_str(),
            error.label.as_str(),
        );
        assert_eq!(told, (underlined, message, label), "{text}");
    }
    let help = parse("gpu.fan.max < 9").unwrap_err().help.unwrap();
    assert!(
        help.starts_with("Signals of `gpu` are `gpu.utilization`, ")
            && help.contains("`gpu.throttled`"),
        "{help}"
    );
}
