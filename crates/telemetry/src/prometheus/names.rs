//! Which series of which server tell which signal: the one table of names.
//!
//! Read from the sources of vLLM 0.6 to 0.25, SGLang 0.4 to 0.5, Text Generation Inference 1 to 3, LMDeploy 0.9 to 0.10,
//! llama.cpp b2000 to b10519, Triton 24 to 26 with its TensorRT-LLM backend, and trtllm-serve 1.0 to 1.3. A name stands here
//! without `_total`: it is looked for without and with it. The first way to a signal that a page has is taken.

use llmscen_core::signal::Signal::{self, *};
use std::fmt;

/// How a series becomes a signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// A gauge. Several are added; of shares, the mean is taken.
    Gauge(&'static str),
    /// A gauge over another, of the same labels apart from the ones named here.
    Over(&'static str, &'static str),
    /// A count that grows. Several are added.
    Count(&'static str),
    /// The growth of the first counts over that of the others.
    Counts(&'static [&'static str], &'static [&'static str]),
    /// A ratio that the server worked out itself.
    Value(&'static str),
    /// A histogram in seconds, or what else its name says. Buckets of several are added.
    Histogram(&'static str),
    /// A sum of times and how many it holds: a mean and no quantiles.
    Mean(&'static str, &'static str),
}

impl How {
    /// The series that it needs, as they are looked for.
    pub fn names(&self) -> Vec<&'static str> {
        match *self {
            How::Gauge(name) | How::Count(name) | How::Value(name) | How::Histogram(name) => vec![name],
            How::Over(part, whole) | How::Mean(part, whole) => vec![part, whole],
            How::Counts(part, whole) => {
                let mut names: Vec<&str> = part.iter().chain(whole).copied().collect();
                names.dedup();
                names
            }
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" + ");
        match *self {
            How::Gauge(name) | How::Count(name) | How::Histogram(name) => write!(f, "`{name}`"),
            How::Value(name) => write!(f, "`{name}` as it is"),
            How::Over(part, whole) => write!(f, "`{part}` / `{whole}`"),
            How::Counts(part, whole) if whole.len() > 1 => write!(f, "{} / ({})", sum(part), sum(whole)),
            How::Counts(part, whole) => write!(f, "{} / {}", sum(part), sum(whole)),
            How::Mean(total, count) => write!(f, "`{total}` / `{count}`, a mean alone"),
        }
    }
}

/// A server whose names are known.
#[derive(Debug)]
pub struct Family {
    /// What it is called.
    pub name: &'static str,
    /// How its names begin.
    pub prefix: &'static str,
    /// The label whose values are servers of their own behind one page: they are not added up, and where there are several,
    /// those count that the requests name.
    pub apart: Option<&'static str>,
    /// The ways to its signals, the best of each first.
    pub ways: &'static [(Signal, How)],
}

/// Milliseconds in what a name's ending says that it holds; seconds, where it says nothing.
pub fn millis(name: &str) -> f64 {
    match name.rsplit('_').next() {
        Some("us") => 0.001,
        Some("ms") => 1.0,
        _ => 1000.0,
    }
}

/// Every server whose names are known. Ollama, llama-cpp-python and transformers tell no metrics.
pub const FAMILIES: &[Family] = &[
    // The simulator writes its page under these names, too.
    Family {
        name: "vLLM",
        prefix: "vllm:",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("vllm:num_requests_running")),
            (ServerWaiting, How::Gauge("vllm:num_requests_waiting")),
            (ServerKvCacheUsage, How::Gauge("vllm:kv_cache_usage_perc")),
            // Until 0.9; its `perc` is a share, too.
            (ServerKvCacheUsage, How::Gauge("vllm:gpu_cache_usage_perc")),
            (ServerPreemptions, How::Count("vllm:num_preemptions")),
            (ServerPrefixCacheHitRate, How::Counts(&["vllm:prefix_cache_hits"], &["vllm:prefix_cache_queries"])),
            // 0.7 to 0.9.
            (ServerPrefixCacheHitRate, How::Counts(&["vllm:gpu_prefix_cache_hits"], &["vllm:gpu_prefix_cache_queries"])),
            // The engine before V1.
            (ServerPrefixCacheHitRate, How::Value("vllm:gpu_prefix_cache_hit_rate")),
            (
                ServerSpecAcceptRate,
                How::Counts(&["vllm:spec_decode_num_accepted_tokens"], &["vllm:spec_decode_num_draft_tokens"]),
            ),
            (ServerSpecAcceptRate, How::Value("vllm:spec_decode_draft_acceptance_rate")),
            (ServerRequestThroughput, How::Count("vllm:request_success")),
            (ServerPromptTps, How::Count("vllm:prompt_tokens")),
            (ServerOutputTps, How::Count("vllm:generation_tokens")),
            (ServerTtft, How::Histogram("vllm:time_to_first_token_seconds")),
            (ServerItl, How::Histogram("vllm:inter_token_latency_seconds")),
            // Until 0.10; the gaps under their old name. `vllm:request_time_per_output_token_seconds` is a mean of each request.
            (ServerItl, How::Histogram("vllm:time_per_output_token_seconds")),
            (ServerE2e, How::Histogram("vllm:e2e_request_latency_seconds")),
            (ServerQueueTime, How::Histogram("vllm:request_queue_time_seconds")),
            (ServerPrefillTime, How::Histogram("vllm:request_prefill_time_seconds")),
            (ServerDecodeTime, How::Histogram("vllm:request_decode_time_seconds")),
        ],
    },
    Family {
        name: "SGLang",
        prefix: "sglang:",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("sglang:num_running_reqs")),
            (ServerWaiting, How::Gauge("sglang:num_queue_reqs")),
            (ServerKvCacheUsage, How::Gauge("sglang:token_usage")),
            (ServerPreemptions, How::Count("sglang:num_retracted_requests")),
            (ServerPrefixCacheHitRate, How::Counts(&["sglang:cached_tokens"], &["sglang:prompt_tokens"])),
            // Before 0.4.4 there was only this, of the last batch that was prefilled.
            (ServerPrefixCacheHitRate, How::Value("sglang:cache_hit_rate")),
            (ServerSpecAcceptRate, How::Value("sglang:spec_accept_rate")),
            (ServerRequestThroughput, How::Count("sglang:num_requests")),
            (ServerPromptTps, How::Count("sglang:prompt_tokens")),
            (ServerOutputTps, How::Count("sglang:generation_tokens")),
            (ServerTtft, How::Histogram("sglang:time_to_first_token_seconds")),
            (ServerItl, How::Histogram("sglang:inter_token_latency_seconds")),
            // Before 0.4.4.
            (ServerItl, How::Histogram("sglang:time_per_output_token_seconds")),
            (ServerE2e, How::Histogram("sglang:e2e_request_latency_seconds")),
            (ServerQueueTime, How::Histogram("sglang:queue_time_seconds")),
        ],
    },
    Family {
        name: "Text Generation Inference",
        prefix: "tgi_",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("tgi_batch_current_size")),
            (ServerWaiting, How::Gauge("tgi_queue_size")),
            (ServerRequestThroughput, How::Count("tgi_request_success")),
            // Counted when a request is accepted, and when it ends.
            (ServerPromptTps, How::Count("tgi_request_input_length_sum")),
            (ServerOutputTps, How::Count("tgi_request_generated_tokens_sum")),
            // `tgi_request_mean_time_per_token_duration` is a request's whole time over its tokens, the prefill among it: no gap.
            (ServerE2e, How::Histogram("tgi_request_duration")),
            (ServerQueueTime, How::Histogram("tgi_request_queue_duration")),
        ],
    },
    Family {
        name: "LMDeploy",
        prefix: "lmdeploy:",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("lmdeploy:num_requests_running")),
            (ServerWaiting, How::Gauge("lmdeploy:num_requests_waiting")),
            (ServerKvCacheUsage, How::Gauge("lmdeploy:gpu_cache_usage_perc")),
            (ServerRequestThroughput, How::Count("lmdeploy:e2e_request_latency_seconds_count")),
            (ServerPromptTps, How::Count("lmdeploy:prompt_tokens")),
            (ServerOutputTps, How::Count("lmdeploy:generation_tokens")),
            (ServerTtft, How::Histogram("lmdeploy:time_to_first_token_seconds")),
            (ServerItl, How::Histogram("lmdeploy:iter_token_latency")),
            // 0.9.
            (ServerItl, How::Histogram("lmdeploy:time_per_output_token_seconds")),
            (ServerE2e, How::Histogram("lmdeploy:e2e_request_latency_seconds")),
            (ServerQueueTime, How::Histogram("lmdeploy:request_queue_time_seconds")),
            (ServerPrefillTime, How::Histogram("lmdeploy:request_prefill_time_seconds")),
            (ServerDecodeTime, How::Histogram("lmdeploy:request_decode_time_seconds")),
        ],
    },
    Family {
        name: "llama.cpp",
        prefix: "llamacpp:",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("llamacpp:requests_processing")),
            (ServerWaiting, How::Gauge("llamacpp:requests_deferred")),
            // Until b5700.
            (ServerKvCacheUsage, How::Gauge("llamacpp:kv_cache_usage_ratio")),
            // Prompt tokens are counted without those that the cache had.
            (
                ServerPrefixCacheHitRate,
                How::Counts(&["llamacpp:prompt_tokens_cached"], &["llamacpp:prompt_tokens_cached", "llamacpp:prompt_tokens"]),
            ),
            (
                ServerSpecAcceptRate,
                How::Counts(&["llamacpp:spec_decode_num_accepted_tokens"], &["llamacpp:spec_decode_num_draft_tokens"]),
            ),
            (ServerPromptTps, How::Count("llamacpp:prompt_tokens")),
            (ServerOutputTps, How::Count("llamacpp:tokens_predicted")),
        ],
    },
    Family {
        name: "Triton",
        prefix: "nv_",
        // An ensemble counts each request once for itself and once for every step.
        apart: Some("model"),
        ways: &[
            (ServerRunning, How::Gauge("nv_trt_llm_request_metrics{request_type=\"scheduled\"}")),
            (ServerWaiting, How::Gauge("nv_trt_llm_request_metrics{request_type=\"waiting\"}")),
            (ServerWaiting, How::Gauge("nv_inference_pending_request_count")),
            (ServerKvCacheUsage, How::Gauge("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"}")),
            // Before 24.07.
            (
                ServerKvCacheUsage,
                How::Over(
                    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"}",
                    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"}",
                ),
            ),
            (ServerRequestThroughput, How::Count("nv_inference_request_success")),
            // Only where `--metrics-config histogram_latencies=true`, of models that answer in pieces: to the first piece.
            (ServerTtft, How::Histogram("nv_inference_first_response_histogram_ms")),
            (ServerE2e, How::Mean("nv_inference_request_duration_us", "nv_inference_request_success")),
            (ServerQueueTime, How::Mean("nv_inference_queue_duration_us", "nv_inference_request_success")),
        ],
    },
    Family {
        name: "trtllm-serve",
        prefix: "trtllm_",
        apart: None,
        ways: &[
            (ServerRunning, How::Gauge("trtllm_num_requests_running")),
            (ServerWaiting, How::Gauge("trtllm_num_requests_waiting")),
            (ServerKvCacheUsage, How::Gauge("trtllm_kv_cache_utilization")),
            (ServerPrefixCacheHitRate, How::Counts(&["trtllm_prompt_cached_tokens"], &["trtllm_prompt_tokens"])),
            // Blocks instead of tokens.
            (
                ServerPrefixCacheHitRate,
                How::Counts(
                    &["trtllm_kv_cache_reused_blocks"],
                    &["trtllm_kv_cache_reused_blocks", "trtllm_kv_cache_missed_blocks"],
                ),
            ),
            (ServerPrefixCacheHitRate, How::Value("trtllm_kv_cache_hit_rate")),
            (
                ServerSpecAcceptRate,
                How::Counts(&["trtllm_spec_decode_num_accepted_tokens"], &["trtllm_spec_decode_num_draft_tokens"]),
            ),
            (ServerRequestThroughput, How::Count("trtllm_request_success")),
            (ServerPromptTps, How::Count("trtllm_prompt_tokens")),
            (ServerOutputTps, How::Count("trtllm_generation_tokens")),
            (ServerTtft, How::Histogram("trtllm_time_to_first_token_seconds")),
            // `trtllm_time_per_output_token_seconds` is a mean of each request: no gap.
            (ServerE2e, How::Histogram("trtllm_e2e_request_latency_seconds")),
            (ServerQueueTime, How::Histogram("trtllm_request_queue_time_seconds")),
            (ServerPrefillTime, How::Histogram("trtllm_request_prefill_time_seconds")),
            (ServerDecodeTime, How::Histogram("trtllm_request_decode_time_seconds")),
        ],
    },
];
