use super::*;
use Signal::*;

/// What a page tells under common names: name, labels, value.
fn told(text: &str) -> Vec<(String, String, f64)> {
    asked(text, &[])
}

fn asked(text: &str, models: &[&str]) -> Vec<(String, String, f64)> {
    let models: Vec<String> = models.iter().map(|&model| model.to_owned()).collect();
    let mut all = Vec::new();
    common(&Page::read(text), &models, &mut |told| all.push((told.name.to_owned(), told.labels.to_owned(), told.value)));
    all
}

fn row(signal: Signal, labels: &str, value: f64) -> (String, String, f64) {
    (signal.name().to_owned(), labels.to_owned(), value)
}

#[test]
fn several_engines_are_added_and_their_shares_averaged() {
    let text = "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n\
        vllm:request_success_total{finished_reason=\"stop\"} 4\nvllm:request_success_total{finished_reason=\"length\"} 6\n";
    let rows = [row(ServerRunning, "", 5.0), row(ServerKvCacheUsage, "", 0.375), row(ServerRequestThroughput, "", 10.0)];
    assert_eq!(told(text), rows);
}

#[test]
fn ranks_of_one_engine_tell_the_same_and_count_once() {
    let text = "sglang:num_running_reqs{tp_rank=\"0\",dp_rank=\"0\"} 2\nsglang:num_running_reqs{tp_rank=\"1\",dp_rank=\"0\"} 2\n\
        sglang:num_running_reqs{tp_rank=\"2\",dp_rank=\"1\"} 5\n";
    assert_eq!(told(text), [row(ServerRunning, "", 7.0)]);
}

#[test]
fn old_and_new_names_with_and_without_total_are_one_signal() {
    for name in ["prompt_tokens", "prompt_tokens_total"] {
        assert_eq!(told(&format!("vllm:{name} 7\n")), [row(ServerPromptTps, "", 7.0)]);
    }
    let old = "vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total 8\nvllm:gpu_prefix_cache_hits_total 2\n";
    let rate = [row(ServerPrefixCacheHitRate, "part", 2.0), row(ServerPrefixCacheHitRate, "whole", 8.0)];
    assert_eq!(told(old), [vec![row(ServerKvCacheUsage, "", 0.5)], rate.to_vec()].concat());
    let both = "vllm:kv_cache_usage_perc 0.25\nvllm:gpu_cache_usage_perc 0.75\n";
    assert_eq!(told(both), [row(ServerKvCacheUsage, "", 0.25)], "the new name is the one that counts");
}

#[test]
fn a_ratio_is_two_counts_where_there_are_two_and_else_what_the_server_says() {
    let gauge = "sglang:cache_hit_rate 0.4\n";
    assert_eq!(told(gauge), [row(ServerPrefixCacheHitRate, "value", 0.4)]);
    let counts = format!(
        "{gauge}sglang:cached_tokens_total{{cache_source=\"device\"}} 2\nsglang:cached_tokens_total{{cache_source=\"host\"}} 1\n\
         sglang:prompt_tokens_total 10\n"
    );
    let rows = [
        row(ServerPrefixCacheHitRate, "part", 3.0),
        row(ServerPrefixCacheHitRate, "whole", 10.0),
        row(ServerPromptTps, "", 10.0),
    ];
    assert_eq!(told(&counts), rows);
    let llama = "llamacpp:prompt_tokens_cached_total 30\nllamacpp:prompt_tokens_total 10\n";
    assert_eq!(told(llama)[..2], [row(ServerPrefixCacheHitRate, "part", 30.0), row(ServerPrefixCacheHitRate, "whole", 40.0)]);
}

#[test]
fn a_histogram_has_its_buckets_in_order_and_in_milliseconds() {
    let text = "tgi_request_duration_bucket{le=\"+Inf\"} 5\ntgi_request_duration_bucket{le=\"0.07\"} 1\n\
        tgi_request_duration_bucket{le=\"2.5\"} 4\ntgi_request_duration_sum 9.5\ntgi_request_duration_count 5\n";
    let rows = [("le=70", 1.0), ("le=2500", 4.0), ("le=+Inf", 5.0), ("sum", 9500.0), ("count", 5.0)];
    assert_eq!(told(text), rows.map(|(labels, value)| row(ServerE2e, labels, value)));
}

#[test]
fn buckets_of_several_engines_are_added_at_the_bounds_that_all_have() {
    let text = "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"1\"} 1\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"2\"} 2\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"+Inf\"} 3\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"1.0\"} 10\n\
        vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"+Inf\"} 30\n\
        vllm:e2e_request_latency_seconds_sum{engine=\"0\"} 4\nvllm:e2e_request_latency_seconds_sum{engine=\"1\"} 40\n\
        vllm:e2e_request_latency_seconds_count{engine=\"0\"} 3\nvllm:e2e_request_latency_seconds_count{engine=\"1\"} 30\n";
    let rows = [("le=1000", 11.0), ("le=+Inf", 33.0), ("sum", 44_000.0), ("count", 33.0)];
    assert_eq!(told(text), rows.map(|(labels, value)| row(ServerE2e, labels, value)));
}

#[test]
fn of_an_ensemble_only_the_model_that_requests_name_counts() {
    let text = "nv_inference_request_success{model=\"ensemble\"} 4\nnv_inference_request_success{model=\"tensorrt_llm\"} 5\n\
        nv_inference_queue_duration_us{model=\"ensemble\"} 100\nnv_inference_queue_duration_us{model=\"tensorrt_llm\"} 9000\n";
    let rows = [row(ServerRequestThroughput, "", 5.0), row(ServerQueueTime, "sum", 9.0), row(ServerQueueTime, "count", 5.0)];
    assert_eq!(asked(text, &["tensorrt_llm"]), rows);
    let mut none = Vec::new();
    let common = common(&Page::read(text), &["other".to_owned()], &mut |told| none.push(told.value));
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(
        common.unclear.into_iter().collect::<Vec<_>>(),
        ["nv_inference_queue_duration_us", "nv_inference_request_success"]
    );
}

#[test]
fn what_is_no_number_is_not_told() {
    assert_eq!(
        told("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_waiting 0\n"),
        [row(ServerWaiting, "", 0.0)]
    );
    assert_eq!(told("tgi_request_duration_bucket{le=\"1\"} 1\n"), [], "buckets without the last one");
    let none = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 0\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 0\n";
    assert_eq!(told(none), [], "a share of nothing");
}

#[test]
fn a_sample_that_stands_for_a_signal_alone_is_whole_and_one_of_several_is_not() {
    let text = "vllm:num_requests_running 2\nvllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 1\n\
        tgi_request_duration_bucket{le=\"+Inf\"} 1\ntgi_request_duration_sum 1\ntgi_queue_size 1\nprocess_open_fds 3\n";
    let common = common(&Page::read(text), &[], &mut |_| {});
    let mut whole: Vec<_> = common.whole.into_iter().collect();
    whole.sort_unstable();
    assert_eq!(whole, [0, 3, 4]);
    assert_eq!(common.told.into_iter().collect::<Vec<_>>(), [ServerRunning, ServerWaiting, ServerE2e]);
}
