mod loopback;

use super::*;
use llmscen_core::signal::Form;
use names::How;

type Row = (String, String, f64);

fn row(name: &str, labels: &str, value: f64) -> Row {
    (name.to_owned(), labels.to_owned(), value)
}

/// The recorded page of that name.
fn recorded(name: &str) -> String {
    std::fs::read_to_string(format!("../../tests/wire/metrics/{name}.txt")).unwrap()
}

/// What a page tells, common and other, and the notes.
fn told(text: &str, model: &str) -> (Vec<Row>, Vec<String>) {
    let (mut seen, mut rows) = (Seen::default(), Vec::new());
    let mut tell = |told: Told<'_>| rows.push((told.name.to_owned(), told.labels.to_owned(), told.value));
    seen.page(&series(text).unwrap(), &[model.to_owned()], &mut tell);
    (rows, seen.notes("URL"))
}

/// The rows of a page under common names, histograms but for their sums and counts left out.
fn common_rows(name: &str, model: &str) -> Vec<Row> {
    let (mut rows, _) = told(&recorded(name), model);
    rows.retain(|(name, labels, _)| Signal::parse(name).is_some() && !labels.starts_with("le="));
    rows
}

#[test]
fn a_recorded_page_of_vllm_under_pressure_is_read_exactly() {
    let ms = |seconds: f64| seconds * 1000.0;
    assert_eq!(
        common_rows("vllm_cpu.pressed", "tiny-llama"),
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
    let (rows, notes) = told(&recorded("vllm_cpu.pressed"), "tiny-llama");
    let ttft: Vec<_> = rows.iter().filter(|(name, labels, _)| name == "server.ttft" && labels.starts_with("le=")).collect();
    assert_eq!((ttft.len(), ttft[7], ttft[8]), (23, &row("server.ttft", "le=100", 0.0), &row("server.ttft", "le=250", 4.0)));
    assert_eq!(ttft[22], &row("server.ttft", "le=+Inf", 7.0));
    assert_eq!(notes, [] as [&str; 0], "everything is there");
}

#[test]
fn nothing_of_a_page_is_lost_and_nothing_told_twice() {
    for name in ["vllm_cpu.load", "vllm_cpu.pressed", "sglang", "tgi", "lmdeploy", "llamacpp", "triton"] {
        let text = recorded(name);
        let page = Page::read(&text);
        assert_eq!(page.unread, None);
        let common = common(&page, &[], &mut |_| {});
        let own = page.samples.iter().enumerate().filter(|(place, _)| !common.whole.contains(place));
        let own: Vec<_> = own.filter(|(_, sample)| !sample.name.ends_with("_created")).collect();
        let (rows, _) = told(&text, "");
        let others: Vec<_> = rows.iter().filter(|(name, ..)| Signal::parse(name).is_none()).collect();
        assert_eq!(others.len(), own.len(), "{name}");
        for ((_, sample), other) in own.iter().zip(&others) {
            assert_eq!((sample.name, sample.labels, sample.value), (other.0.as_str(), other.1.as_str(), other.2));
        }
    }
    let (rows, _) = told(&recorded("vllm_cpu.pressed"), "");
    assert!(rows.contains(&row(
        "vllm:request_success_total",
        "engine=\"0\",finished_reason=\"length\",model_name=\"tiny-llama\"",
        3.0
    )));
    assert!(!rows.iter().any(|(name, ..)| name == "vllm:num_requests_running" || name.ends_with("_created")));
}

#[test]
fn what_vllm_does_not_tell_is_noted_by_name() {
    let (_, notes) = told(&recorded("vllm_cpu.load"), "tiny-llama");
    let note = "vLLM's page has no `vllm:spec_decode_num_accepted_tokens`, `vllm:spec_decode_num_draft_tokens` \
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
    assert_eq!(common_rows("sglang", ""), sglang);
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
    assert_eq!(common_rows("tgi", ""), tgi);
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
    assert_eq!(common_rows("lmdeploy", ""), lmdeploy);
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
    assert_eq!(common_rows("llamacpp", ""), llama);
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
    assert_eq!(common_rows("triton", "ensemble"), triton);
}

#[test]
fn what_a_server_has_no_name_for_is_noted_and_so_is_a_page_that_nobody_knows() {
    let (_, notes) = told(&recorded("llamacpp"), "");
    assert_eq!(
        notes,
        [
            "llama.cpp's page has no `llamacpp:kv_cache_usage_ratio` (server.kv_cache_usage): null",
            "llama.cpp does not tell server.preemptions, server.request_throughput, server.ttft, server.itl, server.e2e, \
         server.queue_time, server.prefill_time, server.decode_time: null",
        ]
    );
    let (rows, notes) = told("up_since 5\nbroken\n", "");
    assert_eq!(rows, [row("up_since", "", 5.0)]);
    assert_eq!(
        notes,
        [
            "URL has none of the names that are known: its series stand under their own, server.* is null",
            "URL has a line that is no Prometheus text (1 of them, the first `broken`): passed over",
        ]
    );
    let (_, notes) = told(&recorded("triton"), "unknown");
    assert!(notes.iter().any(|note| note.contains("`nv_inference_request_success` of several models")), "{notes:?}");
}

#[test]
fn every_way_fits_the_form_of_its_signal_and_the_prefix_of_its_family() {
    for family in FAMILIES {
        for (signal, how) in family.ways {
            let fits = match how {
                How::Gauge(_) | How::Over(..) => signal.form() == Form::Gauge,
                How::Count(_) => signal.form() == Form::Rate,
                How::Counts(..) | How::Told(_) => signal.form() == Form::Ratio,
                How::Histogram(_) | How::Mean(..) => signal.form() == Form::Histogram,
            };
            assert!(fits && signal.scope() == "server", "{}: {signal}", family.name);
            for name in how.names() {
                assert!(name.starts_with(family.prefix) && !name.ends_with("_total"), "{name}");
            }
        }
    }
}

#[test]
fn the_table_of_the_documentation_is_this_one() {
    let page = std::fs::read_to_string("../../docs/server-metrics.md").unwrap();
    let (_, rest) = page.split_once("<!-- names -->\n").expect("the table begins");
    let (table, _) = rest.split_once("\n<!-- end of names -->").expect("the table ends");
    assert!(table == table_of_names(), "write it again:\n{}", table_of_names());
}

fn table_of_names() -> String {
    table().trim_end().to_owned() + "\n"
}
