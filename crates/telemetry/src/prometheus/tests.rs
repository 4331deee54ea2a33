use super::*;
use llmscen_core::check::PageStat;
use llmscen_core::signal::Form;
use names::Formula;

type Row = (String, String, f64);

fn row(name: &str, labels: &str, value: f64) -> Row {
    (name.to_owned(), labels.to_owned(), value)
}

/// The recorded page of that name.
fn recorded(name: &str) -> String {
    std::fs::read_to_string(format!("../../tests/wire/metrics/{name}.txt")).unwrap()
}

/// The values of a page, and the notes.
fn report(text: &str, model: &str) -> (Vec<Row>, Vec<String>) {
    let mut log = PageLog::default();
    let mut rows = Vec::new();
    let mut emit = |value: SampledValue<'_>| {
        rows.push((value.name.to_owned(), value.labels.to_owned(), value.value))
    };
    log.record(
        &parse_page(text).unwrap(),
        &[model.to_owned()],
        &[],
        &mut emit,
    );
    let mut notes = missing_signals(&log.families, &log.reported);
    notes.extend(log.notes("URL", log.families.is_empty()));
    (rows, notes)
}

/// The signals of a recorded page; of histograms only sums and counts.
fn signal_rows(name: &str, model: &str) -> Vec<Row> {
    let (mut rows, _) = report(&recorded(name), model);
    rows.retain(|(name, labels, _)| Signal::parse(name).is_some() && !labels.starts_with("le="));
    rows
}

#[test]
fn a_recorded_page_of_vllm_under_pressure_is_read_exactly() {
    let ms = |seconds: f64| seconds * 1000.0;
    assert_eq!(
        signal_rows("vllm_cpu.pressed", "tiny-llama"),
        [
            row("server.running", "", 3.0),
            row("server.waiting", "", 3.0),
            row("server.kv_cache_usage", "", 0.8421052631578947),
            row("server.preemptions", "", 2.0),
            row("server.prefix_cache_hit_rate", "part", 0.0),
            row("server.prefix_cache_hit_rate", "whole", 2576.0),
            row("server.spec_accept_rate", "part", 342.0),
            row("server.spec_accept_rate", "whole", 1071.0),
            row("server.request_throughput", "", 3.0),
            row("server.prompt_tps", "", 2576.0),
            row("server.output_tps", "", 1365.0),
            row("server.ttft", "sum", ms(4.864571809768677)),
            row("server.ttft", "count", 7.0),
            row("server.itl", "sum", ms(5.236553693997848)),
            row("server.itl", "count", 1022.0),
            row("server.e2e", "sum", ms(4.214062929153442)),
            row("server.e2e", "count", 3.0),
            row("server.queue_time", "sum", ms(0.00010374400153523311)),
            row("server.queue_time", "count", 3.0),
            row("server.prefill_time", "sum", ms(1.4237354650031193)),
            row("server.prefill_time", "count", 3.0),
            row("server.decode_time", "sum", ms(2.425335473002633)),
            row("server.decode_time", "count", 3.0),
        ]
    );
    let (rows, notes) = report(&recorded("vllm_cpu.pressed"), "tiny-llama");
    let ttft: Vec<_> = rows
        .iter()
        .filter(|(name, labels, _)| name == "server.ttft" && labels.starts_with("le="))
        .collect();
    assert_eq!(
        (ttft.len(), ttft[7], ttft[8]),
        (
            23,
            &row("server.ttft", "le=100", 0.0),
            &row("server.ttft", "le=250", 4.0)
        )
    );
    assert_eq!(ttft[22], &row("server.ttft", "le=+Inf", 7.0));
    assert_eq!(notes, [] as [&str; 0], "everything is there");
}

#[test]
fn every_value_of_a_page_is_reported_once() {
    for name in [
        "vllm_cpu.load",
        "vllm_cpu.pressed",
        "sglang",
        "tgi",
        "lmdeploy",
        "llamacpp",
        "triton",
    ] {
        let text = recorded(name);
        let page = Page::parse(&text);
        assert_eq!(page.invalid, None);
        let signals = report_signals(&page, &[], &mut |_| {});
        let unused = page
            .samples
            .iter()
            .enumerate()
            .filter(|(index, _)| !signals.used.contains(index));
        let unused: Vec<_> = unused
            .filter(|(_, sample)| !sample.name.ends_with("_created"))
            .collect();
        let (rows, _) = report(&text, "");
        let others: Vec<_> = rows
            .iter()
            .filter(|(name, ..)| Signal::parse(name).is_none())
            .collect();
        assert_eq!(others.len(), unused.len(), "{name}");
        for ((_, sample), other) in unused.iter().zip(&others) {
            assert_eq!(
                (sample.name, sample.labels, sample.value),
                (other.0.as_str(), other.1.as_str(), other.2)
            );
        }
    }
    let (rows, _) = report(&recorded("vllm_cpu.pressed"), "");
    assert!(rows.contains(&row(
        "vllm:request_success_total",
        "engine=\"0\",finished_reason=\"length\",model_name=\"tiny-llama\"",
        3.0
    )));
    assert!(
        !rows
            .iter()
            .any(|(name, ..)| name == "vllm:num_requests_running" || name.ends_with("_created"))
    );
}

#[test]
fn missing_metrics_of_vllm_are_noted_by_name() {
    let (_, notes) = report(&recorded("vllm_cpu.load"), "tiny-llama");
    let note = "vLLM does not export `vllm:spec_decode_num_accepted_tokens`, `vllm:spec_decode_num_draft_tokens` \
                (server.spec_accept_rate): null";
    assert_eq!(notes, [note]);
}

#[test]
fn pages_of_the_other_servers_are_read_under_the_same_names() {
    let sglang = [
        row("server.running", "", 162.0),
        row("server.waiting", "", 2826.0),
        row("server.kv_cache_usage", "", 0.28),
        row("server.prefix_cache_hit_rate", "part", 61_026.0),
        row("server.prefix_cache_hit_rate", "whole", 8_128_902.0),
        row("server.request_throughput", "", 11_008.0),
        row("server.prompt_tps", "", 8_128_902.0),
        row("server.output_tps", "", 7_557_572.0),
        row("server.ttft", "sum", 26_500.0),
        row("server.ttft", "count", 7.0),
        row("server.queue_time", "sum", 2000.0),
        row("server.queue_time", "count", 7.0),
    ];
    assert_eq!(signal_rows("sglang", ""), sglang);
    let tgi = [
        row("server.running", "", 3.0),
        row("server.waiting", "", 1.0),
        row("server.request_throughput", "", 12.0),
        row("server.prompt_tps", "", 280.0),
        row("server.output_tps", "", 340.0),
        row("server.e2e", "sum", 9250.0),
        row("server.e2e", "count", 12.0),
        row("server.queue_time", "sum", 500.0),
        row("server.queue_time", "count", 12.0),
    ];
    assert_eq!(signal_rows("tgi", ""), tgi);
    let lmdeploy = [
        row("server.running", "", 9.0),
        row("server.waiting", "", 2.0),
        row("server.kv_cache_usage", "", 0.5),
        row("server.request_throughput", "", 2.0),
        row("server.prompt_tps", "", 1024.0),
        row("server.itl", "sum", 750.0),
        row("server.itl", "count", 5.0),
        row("server.e2e", "sum", 1500.0),
        row("server.e2e", "count", 2.0),
    ];
    assert_eq!(signal_rows("lmdeploy", ""), lmdeploy);
    let llama = [
        row("server.running", "", 2.0),
        row("server.waiting", "", 1.0),
        row("server.prefix_cache_hit_rate", "part", 3000.0),
        row("server.prefix_cache_hit_rate", "whole", 4000.0),
        row("server.spec_accept_rate", "part", 60.0),
        row("server.spec_accept_rate", "whole", 80.0),
        row("server.prompt_tps", "", 1000.0),
        row("server.output_tps", "", 640.0),
    ];
    assert_eq!(signal_rows("llamacpp", ""), llama);
    let triton = [
        row("server.running", "", 1.0),
        row("server.waiting", "", 2.0),
        row("server.kv_cache_usage", "", 0.25),
        row("server.request_throughput", "", 4.0),
        row("server.e2e", "sum", 8000.0),
        row("server.e2e", "count", 4.0),
        row("server.queue_time", "sum", 0.05),
        row("server.queue_time", "count", 4.0),
    ];
    assert_eq!(signal_rows("triton", "ensemble"), triton);
}

#[test]
fn missing_metrics_and_unknown_pages_are_noted() {
    let (_, notes) = report(&recorded("llamacpp"), "");
    assert_eq!(
        notes,
        [
            "llama.cpp does not export `llamacpp:kv_cache_usage_ratio` (server.kv_cache_usage): null",
            "llama.cpp has no metric for server.preemptions, server.request_throughput, \
         server.ttft, server.itl, server.e2e, server.queue_time, server.prefill_time, \
         server.decode_time: null",
        ]
    );
    let (rows, notes) = report("up_since 5\nbroken\n", "");
    assert_eq!(rows, [row("up_since", "", 5.0)]);
    assert_eq!(
        notes,
        [
            "URL exports no metrics of a known server: server.* is null",
            "URL has 1 line that is not Prometheus text (skipped; the first is `broken`)",
        ]
    );
    let (_, notes) = report(&recorded("triton"), "unknown");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("`nv_inference_request_success` for several models")),
        "{notes:?}"
    );
}

#[test]
fn every_formula_fits_the_form_of_its_signal_and_the_prefix_of_its_family() {
    for family in FAMILIES {
        for (signal, formula) in family.signals {
            let fits = match formula {
                Formula::Gauge(_) | Formula::GaugeRatio(..) => signal.form() == Form::Gauge,
                Formula::Counter(_) => signal.form() == Form::Rate,
                Formula::CounterRatio(..) | Formula::ServerRatio(_) => signal.form() == Form::Ratio,
                Formula::Histogram(_) | Formula::Mean(..) => signal.form() == Form::Histogram,
            };
            assert!(
                fits && signal.scope() == "server",
                "{}: {signal}",
                family.name
            );
            for name in formula.names() {
                assert!(
                    name.starts_with(family.prefix) && !name.ends_with("_total"),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn the_table_of_the_documentation_is_this_one() {
    let page = std::fs::read_to_string("../../docs/reference/telemetry.md").unwrap();
    let (_, rest) = page
        .split_once("<!-- names -->\n")
        .expect("the table begins");
    let (table, _) = rest
        .split_once("\n<!-- end of names -->")
        .expect("the table ends");
    assert!(
        table == table_of_names(),
        "write it again:\n{}",
        table_of_names()
    );
}

fn table_of_names() -> String {
    table().trim_end().to_owned() + "\n"
}

mod loopback {
    use super::*;
    use llmscen_core::redact::Secret;
    use llmscen_core::target::Tls;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// A server that answers one request after another on one connection with these bytes; it ends when they are used
    /// up.
    fn server(answers: Vec<Vec<u8>>) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let handle = std::thread::spawn(move || {
            let mut heads = Vec::new();
            let mut connection = None;
            for answer in answers {
                // An answer that closes its connection is followed by a new one.
                let mut stream = connection
                    .take()
                    .unwrap_or_else(|| listener.accept().unwrap().0);
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    head.push(byte[0]);
                }
                heads.push(String::from_utf8(head).unwrap().to_ascii_lowercase());
                stream.write_all(&answer).unwrap();
                connection = (!answer.windows(5).any(|word| word == b"close")).then_some(stream);
            }
            heads
        });
        (url, handle)
    }

    fn answer(head: &str, body: &[u8]) -> Vec<u8> {
        [
            format!("HTTP/1.1 {head}content-length: {}\r\n\r\n", body.len()).as_bytes(),
            body,
        ]
        .concat()
    }

    fn source(url: &str, interval: u64) -> Prometheus {
        let headers = vec![("X-Token".to_owned(), Secret::new("s3cret"))];
        let scrape = Scrape {
            url: url.to_owned(),
            interval: Nanos::from_millis(interval),
            headers,
        };
        let page = PageLocation {
            scrape,
            address: None,
            worker: None,
            role: None,
        };
        Prometheus::new(&[page], &Tls::default(), Vec::new(), Vec::new())
    }

    /// The rows of one sample, with `up`, and its result.
    fn read(source: &mut Prometheus) -> (Vec<Row>, Result<(), String>) {
        let mut rows = Vec::new();
        let result = source.sample(Instant::now(), &mut |value| {
            rows.push((value.name.to_owned(), value.labels.to_owned(), value.value))
        });
        (rows, result)
    }

    #[test]
    fn a_page_is_read_again_and_again_on_one_connection() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"sglang:num_running_reqs 2\n").unwrap();
        let (url, server) = server(vec![
            answer("200 OK\r\n", b"vllm:num_requests_running 1\n"),
            answer(
                "200 OK\r\ncontent-encoding: gzip\r\n",
                &packer.finish().unwrap(),
            ),
            answer("503 Busy\r\n", b"not now"),
            answer("200 OK\r\n", b"vllm:num_requests_running 3\n"),
        ]);
        let mut page = source(&url, 5000);
        assert_eq!(
            read(&mut page),
            (
                vec![row("up", "", 1.0), row("server.running", "", 1.0)],
                Ok(())
            )
        );
        assert_eq!(
            read(&mut page),
            (
                vec![row("up", "", 1.0), row("server.running", "", 2.0)],
                Ok(())
            ),
            "another family"
        );
        let (rows, result) = read(&mut page);
        assert_eq!(
            (rows, result.unwrap_err()),
            (
                vec![row("up", "", 0.0)],
                format!("{url}: the server answered 503")
            )
        );
        assert_eq!(
            read(&mut page).0,
            [row("up", "", 1.0), row("server.running", "", 3.0)]
        );
        let heads = server.join().unwrap();
        assert_eq!(heads.len(), 4, "one connection served them all");
        assert!(
            heads[0].starts_with("get /metrics http/1.1\r\n")
                && heads[0].contains("x-token: s3cret"),
            "{}",
            heads[0]
        );
        assert!(
            heads[0].contains("accept-encoding: gzip")
                && heads[0].contains("accept: text/plain;version=0.0.4"),
            "{}",
            heads[0]
        );
        let notes = page.notes();
        assert!(
            notes[0].starts_with(
                "vLLM does not export `vllm:num_requests_waiting` (server.waiting), `"
            ),
            "{notes:?}"
        );
        assert!(
            notes[1]
                .starts_with("SGLang does not export `sglang:num_queue_reqs` (server.waiting), `"),
            "{notes:?}"
        );
        assert_eq!(page.notes(), [] as [&str; 0], "once");
    }

    #[test]
    fn an_incomplete_or_wrong_page_reports_only_the_failure() {
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\nconnection: \
        close\r\n\r\nvllm:num_requests_running 12\n"
            .to_vec();
        let (url, server) = server(vec![
            cut,
            answer(
                "200 OK\r\nconnection: close\r\n",
                b"<html><body>Sign in</body></html>\n",
            ),
            answer("200 OK\r\nconnection: close\r\n", b"\xff\xfe\x00"),
            answer("200 OK\r\nconnection: close\r\n", b""),
            answer(
                "302 Found\r\nlocation: http://192.0.2.1/metrics\r\nconnection: close\r\n",
                b"",
            ),
        ]);
        let mut page = source(&url, 5000);
        let mut reasons = Vec::new();
        for _ in 0..5 {
            let (rows, result) = read(&mut page);
            assert_eq!(rows, [row("up", "", 0.0)]);
            reasons.push(
                result
                    .unwrap_err()
                    .strip_prefix(&format!("{url}: "))
                    .unwrap()
                    .to_owned(),
            );
        }
        assert!(!reasons[0].is_empty());
        assert_eq!(
            reasons[1],
            "not Prometheus text: `<html><body>Sign in</body></html>`"
        );
        assert!(
            reasons[2].starts_with("the page is not text: invalid utf-8"),
            "{}",
            reasons[2]
        );
        assert_eq!(
            reasons[3..],
            ["the page is empty", "the server answered 302"]
        );
        assert_eq!(
            page.notes(),
            [] as [&str; 0],
            "a failure is reported when it happens"
        );
        server.join().unwrap();
    }

    #[test]
    fn a_page_with_too_many_series_is_stored_in_part_and_says_so() {
        let many: String = (0..MAX_OTHER_SERIES + 7)
            .map(|n| format!("x{{n=\"{n}\"}} {n}\n"))
            .collect();
        let running = "vllm:num_requests_running";
        let text =
            format!("{many}limited 1\n{running}{{engine=\"0\"}} 2\n{running}{{engine=\"1\"}} 3\n");
        let mut log = PageLog::default();
        let mut names = Vec::new();
        let limited = [PageMetric {
            name: "limited".to_owned(),
            labels: Vec::new(),
            stat: PageStat::Mean,
        }];
        log.record(&Page::parse(&text), &[], &limited, &mut |value| {
            names.push(value.name.to_owned());
        });
        let count = |name: &str| names.iter().filter(|own| *own == name).count();
        assert_eq!(
            ["x", "limited", running, "server.running"].map(count),
            [MAX_OTHER_SERIES, 1, 2, 1]
        );
        assert_eq!(
            log.notes("u", false),
            ["u has too many series: 7 of its page are not stored, those after the first 10000"]
        );
    }

    #[test]
    fn too_large_and_too_slow_pages_are_cancelled() {
        let large = [
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec(),
            vec![b'a'; MAX_PAGE_BYTES + 1],
        ]
        .concat();
        let (url, server) = server(vec![large]);
        let (_, result) = read(&mut source(&url, 5000));
        assert_eq!(
            result.unwrap_err(),
            format!("{url}: the page is larger than 16 MiB")
        );
        server.join().unwrap();

        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", silent.local_addr().unwrap());
        let (rows, result) = read(&mut source(&url, 50));
        assert_eq!(
            (rows, result.unwrap_err()),
            (
                vec![row("up", "", 0.0)],
                format!("{url}: no complete response within 50 ms")
            )
        );
        drop(silent);
        let (_, result) = read(&mut source(&url, 5000));
        assert!(result.unwrap_err().to_ascii_lowercase().contains("refused"));
    }

    #[test]
    fn settings_that_cannot_be_used_are_errors_of_the_sample() {
        let tls = Tls {
            ca: Some("nowhere.pem".to_owned()),
            ..Tls::default()
        };
        let scrape = Scrape {
            url: "http://127.0.0.1:1/".to_owned(),
            interval: Nanos::from_millis(10),
            headers: Vec::new(),
        };
        let page = PageLocation {
            scrape,
            address: None,
            worker: None,
            role: None,
        };
        let (rows, result) = read(&mut Prometheus::new(&[page], &tls, Vec::new(), Vec::new()));
        assert_eq!(rows, [row("up", "", 0.0)]);
        assert!(
            result
                .unwrap_err()
                .starts_with("http://127.0.0.1:1/: nowhere.pem: ")
        );
    }

    fn page(url: &str, worker: &str, role: Option<&str>) -> PageLocation {
        PageLocation {
            scrape: Scrape {
                url: url.to_owned(),
                interval: Nanos::from_millis(1000),
                headers: Vec::new(),
            },
            address: None,
            worker: Some(worker.to_owned()),
            role: role.map(str::to_owned),
        }
    }

    #[test]
    fn labels_of_a_series_keep_their_values_beside_those_of_its_page() {
        let labels = |series: &str| {
            let mut buffer = String::new();
            add_labels("worker=\"a:1\"", series, &mut buffer);
            buffer
        };
        assert_eq!(labels(""), "worker=\"a:1\"");
        assert_eq!(
            labels(r#"user_role="x",role="y\"z", worker = "w","#),
            r#"worker="a:1",user_role="x",exported_role="y\"z",exported_worker="w""#
        );
    }

    #[test]
    fn a_page_with_gpus_and_an_engine_has_the_signals_of_both() {
        let (url, server) = server(vec![answer(
            "200 OK\r\n",
            b"DCGM_FI_DEV_POWER_USAGE{gpu=\"1\"} 300\nDCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 0\n\
              vllm:num_requests_running{engine=\"0\"} 2\nvllm:other 5\n",
        )]);
        let (rows, result) = read(&mut source(&url, 5000));
        assert_eq!(result, Ok(()));
        let expected = [
            row("up", "", 1.0),
            row("server.running", "", 2.0),
            row("gpu.power", "", 300.0),
            row("DCGM_FI_DEV_XID_ERRORS", "gpu=\"1\"", 0.0),
            row("vllm:other", "", 5.0),
        ];
        assert_eq!(rows, expected);
        server.join().unwrap();
    }

    #[test]
    fn several_pages_are_read_at_once_and_named_in_the_labels() {
        let (engine, engines) = server(vec![answer(
            "200 OK\r\n",
            b"vllm:num_requests_running{engine=\"0\"} 1\nrouter_load{worker=\"x\",role=\"y\",a_role=\"z\"} 2\n",
        )]);
        let (exporter, gpus) = server(vec![answer(
            "200 OK\r\n",
            b"DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 300\n",
        )]);
        let silent: Vec<TcpListener> = (0..10)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let mut pages = vec![
            page(&engine, "e:1", Some("decode")),
            page(&exporter, "g:1", None),
        ];
        for listener in &silent {
            let url = format!("http://{}/metrics", listener.local_addr().unwrap());
            pages.push(page(&url, "s:1", None));
        }
        let mut source = Prometheus::new(&pages, &Tls::default(), Vec::new(), Vec::new());
        let begin = Instant::now();
        let (rows, result) = read(&mut source);
        assert!(
            begin.elapsed() < Duration::from_secs(8),
            "one timeout, not ten"
        );
        assert_eq!(result, Ok(()), "the failures are in the notes");
        let decode = "worker=\"e:1\",role=\"decode\"";
        let exported = format!("{decode},exported_worker=\"x\",exported_role=\"y\",a_role=\"z\"");
        let mut expected = vec![
            row("up", decode, 1.0),
            row("server.running", decode, 1.0),
            row("router_load", &exported, 2.0),
            row("up", "worker=\"g:1\"", 1.0),
            row("gpu.power", "worker=\"g:1\"", 300.0),
        ];
        expected.extend(vec![row("up", "worker=\"s:1\"", 0.0); 10]);
        assert_eq!(rows, expected);
        engines.join().unwrap();
        gpus.join().unwrap();
        let notes = source.notes();
        let first = format!(
            "telemetry of prometheus: 1 of 1 samples failed, first error: http://{}/metrics: no \
             complete response within 1000 ms. Its values are missing in the sums of the target.",
            silent[0].local_addr().unwrap()
        );
        assert_eq!(notes[0], first);
        assert_eq!(
            notes.len(),
            11,
            "ten silent pages, and one on signals of vLLM: {notes:?}"
        );
    }

    mod queries {
        use super::*;
        use crate::prometheus::query::PrometheusQuery;

        fn source(url: &str, role: Option<&str>) -> PrometheusQuery {
            let scrape = Scrape {
                url: url.trim_end_matches("/metrics").to_owned() + "/prom/",
                interval: Nanos::from_millis(500),
                headers: vec![("X-Token".to_owned(), Secret::new("s3cret"))],
            };
            PrometheusQuery::new(&scrape, &Tls::default(), ("rate", "sum(a)"), role)
        }

        fn json(status: &str, body: &str) -> Vec<u8> {
            answer(
                &format!("{status}\r\nconnection: close\r\ncontent-type: application/json\r\n"),
                body.as_bytes(),
            )
        }

        /// The values after `since`, in milliseconds, with their labels.
        fn past(query: &mut PrometheusQuery, since: Instant) -> Vec<(u128, String, f64)> {
            let mut all = Vec::new();
            query.past_samples(since, &mut |at, value| {
                assert_eq!(value.name, "rate");
                let after = at.duration_since(since).as_millis();
                all.push((after, value.labels.to_owned(), value.value));
            });
            all
        }

        #[test]
        fn a_query_is_evaluated_over_the_round() {
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs_f64();
            let body = format!(
                "{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{{\"metric\":{{\"__name__\":\"a\",\"role\":\"x\\\"y\"}},\"values\":[[{:.3},\"1.5\"],[{:.3},\"NaN\"],[{:.3},\"+Inf\"]]}}]}}}}",
                now - 9.0,
                now - 8.0,
                now - 7.0
            );
            let (url, server) = server(vec![
                json("405 Method Not Allowed", "{}"),
                json("200 OK", &body),
            ]);
            let mut query = source(&url, Some("decode"));
            let since = Instant::now() - Duration::from_secs(10);
            let found = past(&mut query, since);
            let labels = "role=\"decode\",exported_role=\"x\\\"y\"";
            let after: Vec<u128> = found
                .iter()
                .map(|(after, ..)| after.div_ceil(100))
                .collect();
            assert!(
                after[0].abs_diff(10) < 5 && after[2].abs_diff(30) < 5,
                "{found:?}"
            );
            assert!(
                found.iter().all(|(_, known, _)| known == labels),
                "{found:?}"
            );
            assert_eq!(found[0].2, 1.5);
            assert_eq!(query.notes(), [""; 0]);
            let heads = server.join().unwrap();
            assert!(
                heads[0].starts_with("post /prom/api/v1/query_range http/1.1")
                    && heads[0].contains("x-token: s3cret"),
                "{heads:?}"
            );
            assert!(
                heads[1].starts_with("get /prom/api/v1/query_range?query=sum%28a%29&start=")
                    && heads[1].contains("&step=0.5 http/1.1"),
                "{heads:?}"
            );
        }

        #[test]
        fn the_reason_of_a_refused_query_is_shown() {
            let refused = "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"1:5: \
            parse error: unexpected end\"}";
            let (url, server) = server(vec![
                json("400 Bad Request", refused),
                json("400 Bad Request", refused),
                json("200 OK", "<html>"),
                json("502 Bad Gateway", "<html>"),
            ]);
            let mut query = source(&url, None);
            assert_eq!(
                query.check().unwrap_err(),
                "1:5: parse error: unexpected end"
            );
            assert_eq!(past(&mut query, Instant::now()), []);
            let base = url.trim_end_matches("/metrics");
            assert_eq!(
                query.notes(),
                [format!(
                    "`rate`: the query of {base}/prom/ failed: 1:5: parse error: unexpected end"
                )]
            );
            let why = query.check().unwrap_err();
            assert!(
                why.starts_with("the response is not that of Prometheus: "),
                "{why}"
            );
            assert_eq!(query.check().unwrap_err(), "the server answered 502");
            server.join().unwrap();
        }

        #[test]
        fn a_long_round_needs_several_requests() {
            let none =
                "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[]}}";
            let (url, server) = server(vec![json("200 OK", none); 3]);
            let mut query = source(&url, None);
            // 20 001 steps of 0.5 s.
            let Some(since) = Instant::now().checked_sub(Duration::from_millis(10_000_100)) else {
                return;
            };
            assert_eq!(past(&mut query, since), []);
            assert_eq!(server.join().unwrap().len(), 3);
        }
    }
}
