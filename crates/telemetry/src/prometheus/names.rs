//! The table of names: which series of which server carry which signal.
//!
//! Taken from the sources of vLLM 0.6 to 0.25, SGLang 0.4 to 0.5, Text Generation Inference 1 to 3, LMDeploy 0.9 to
//! 0.10, llama.cpp b2000 to b10519, Triton 24 to 26 with its TensorRT-LLM backend, and trtllm-serve 1.0 to 1.3. Names
//! are listed without `_total` and looked up without and with it. Of several entries for a signal, the first one on
//! the page is used.

use llmscen_core::signal::Signal::{self, *};
use std::fmt;

/// How a signal is computed from series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Formula {
    /// A gauge. Several series are added; of shares, the mean is taken.
    Gauge(&'static str),
    /// The ratio of two gauges.
    GaugeRatio(&'static str, &'static str),
    /// A counter. Several series are added.
    Counter(&'static str),
    /// The growth of the first counters divided by that of the second ones.
    CounterRatio(&'static [&'static str], &'static [&'static str]),
    /// A ratio that the server computes.
    ServerRatio(&'static str),
    /// A histogram, in seconds or the unit in its name. Buckets of several series are added.
    Histogram(&'static str),
    /// The sum of durations and their number: a mean without quantiles.
    Mean(&'static str, &'static str),
}

impl Formula {
    /// The names of its series.
    pub fn names(&self) -> Vec<&'static str> {
        match *self {
            Formula::Gauge(name)
            | Formula::Counter(name)
            | Formula::ServerRatio(name)
            | Formula::Histogram(name) => vec![name],
            Formula::GaugeRatio(part, whole) | Formula::Mean(part, whole) => vec![part, whole],
            Formula::CounterRatio(part, whole) => {
                let mut names: Vec<&str> = part.iter().chain(whole).copied().collect();
                names.dedup();
                names
            }
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |names: &[&str]| {
            names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(" + ")
        };
        match *self {
            Formula::Gauge(name) | Formula::Counter(name) | Formula::Histogram(name) => {
                write!(f, "`{name}`")
            }
            Formula::ServerRatio(name) => write!(f, "`{name}` as it is"),
            Formula::GaugeRatio(part, whole) => write!(f, "`{part}` / `{whole}`"),
            Formula::CounterRatio(part, whole) if whole.len() > 1 => {
                write!(f, "{} / ({})", sum(part), sum(whole))
            }
            Formula::CounterRatio(part, whole) => write!(f, "{} / {}", sum(part), sum(whole)),
            Formula::Mean(total, count) => write!(f, "`{total}` / `{count}`, a mean alone"),
        }
    }
}

/// A kind of server whose names are known.
#[derive(Debug)]
pub struct ServerFamily {
    pub name: &'static str,
    /// The beginning of all its names.
    pub prefix: &'static str,
    /// The label of the model, where models are separate servers with one page: their series are not added, and where
    /// there are several models, only those that requests name are used.
    pub model_label: Option<&'static str>,
    /// Its signals, of each the best formula first.
    pub signals: &'static [(Signal, Formula)],
}

/// Milliseconds per unit of a duration, by the ending of its name; without an ending it is in seconds.
pub fn millis_per_unit(name: &str) -> f64 {
    match name.rsplit('_').next() {
        Some("us") => 0.001,
        Some("ms") => 1.0,
        _ => 1000.0,
    }
}

/// Ollama, llama-cpp-python and transformers export no metrics.
pub const FAMILIES: &[ServerFamily] = &[
    // The simulator uses these names too.
    ServerFamily {
        name: "vLLM",
        prefix: "vllm:",
        model_label: None,
        signals: &[
            (ServerRunning, Formula::Gauge("vllm:num_requests_running")),
            (ServerWaiting, Formula::Gauge("vllm:num_requests_waiting")),
            (
                ServerKvCacheUsage,
                Formula::Gauge("vllm:kv_cache_usage_perc"),
            ),
            // Until 0.9; its `perc` is a share.
            (
                ServerKvCacheUsage,
                Formula::Gauge("vllm:gpu_cache_usage_perc"),
            ),
            (ServerPreemptions, Formula::Counter("vllm:num_preemptions")),
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(&["vllm:prefix_cache_hits"], &["vllm:prefix_cache_queries"]),
            ),
            // 0.7 to 0.9.
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(
                    &["vllm:gpu_prefix_cache_hits"],
                    &["vllm:gpu_prefix_cache_queries"],
                ),
            ),
            // The engine before V1.
            (
                ServerPrefixCacheHitRate,
                Formula::ServerRatio("vllm:gpu_prefix_cache_hit_rate"),
            ),
            (
                ServerSpecAcceptRate,
                Formula::CounterRatio(
                    &["vllm:spec_decode_num_accepted_tokens"],
                    &["vllm:spec_decode_num_draft_tokens"],
                ),
            ),
            (
                ServerSpecAcceptRate,
                Formula::ServerRatio("vllm:spec_decode_draft_acceptance_rate"),
            ),
            (
                ServerRequestThroughput,
                Formula::Counter("vllm:request_success"),
            ),
            (ServerPromptTps, Formula::Counter("vllm:prompt_tokens")),
            (ServerOutputTps, Formula::Counter("vllm:generation_tokens")),
            (
                ServerTtft,
                Formula::Histogram("vllm:time_to_first_token_seconds"),
            ),
            (
                ServerItl,
                Formula::Histogram("vllm:inter_token_latency_seconds"),
            ),
            // Until 0.10. `vllm:request_time_per_output_token_seconds` is not used: it is a mean per request.
            (
                ServerItl,
                Formula::Histogram("vllm:time_per_output_token_seconds"),
            ),
            (
                ServerE2e,
                Formula::Histogram("vllm:e2e_request_latency_seconds"),
            ),
            (
                ServerQueueTime,
                Formula::Histogram("vllm:request_queue_time_seconds"),
            ),
            (
                ServerPrefillTime,
                Formula::Histogram("vllm:request_prefill_time_seconds"),
            ),
            (
                ServerDecodeTime,
                Formula::Histogram("vllm:request_decode_time_seconds"),
            ),
        ],
    },
    ServerFamily {
        name: "SGLang",
        prefix: "sglang:",
        model_label: None,
        signals: &[
            (ServerRunning, Formula::Gauge("sglang:num_running_reqs")),
            (ServerWaiting, Formula::Gauge("sglang:num_queue_reqs")),
            (ServerKvCacheUsage, Formula::Gauge("sglang:token_usage")),
            (
                ServerPreemptions,
                Formula::Counter("sglang:num_retracted_requests"),
            ),
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(&["sglang:cached_tokens"], &["sglang:prompt_tokens"]),
            ),
            // Before 0.4.4: only the last prefill batch.
            (
                ServerPrefixCacheHitRate,
                Formula::ServerRatio("sglang:cache_hit_rate"),
            ),
            (
                ServerSpecAcceptRate,
                Formula::ServerRatio("sglang:spec_accept_rate"),
            ),
            (
                ServerRequestThroughput,
                Formula::Counter("sglang:num_requests"),
            ),
            (ServerPromptTps, Formula::Counter("sglang:prompt_tokens")),
            (
                ServerOutputTps,
                Formula::Counter("sglang:generation_tokens"),
            ),
            (
                ServerTtft,
                Formula::Histogram("sglang:time_to_first_token_seconds"),
            ),
            (
                ServerItl,
                Formula::Histogram("sglang:inter_token_latency_seconds"),
            ),
            // Before 0.4.4.
            (
                ServerItl,
                Formula::Histogram("sglang:time_per_output_token_seconds"),
            ),
            (
                ServerE2e,
                Formula::Histogram("sglang:e2e_request_latency_seconds"),
            ),
            (
                ServerQueueTime,
                Formula::Histogram("sglang:queue_time_seconds"),
            ),
        ],
    },
    ServerFamily {
        name: "Text Generation Inference",
        prefix: "tgi_",
        model_label: None,
        signals: &[
            (ServerRunning, Formula::Gauge("tgi_batch_current_size")),
            (ServerWaiting, Formula::Gauge("tgi_queue_size")),
            (
                ServerRequestThroughput,
                Formula::Counter("tgi_request_success"),
            ),
            // Prompt tokens are counted when a request is accepted, output tokens when it ends.
            (
                ServerPromptTps,
                Formula::Counter("tgi_request_input_length_sum"),
            ),
            (
                ServerOutputTps,
                Formula::Counter("tgi_request_generated_tokens_sum"),
            ),
            // `tgi_request_mean_time_per_token_duration` is not used as ITL: it includes the prefill.
            (ServerE2e, Formula::Histogram("tgi_request_duration")),
            (
                ServerQueueTime,
                Formula::Histogram("tgi_request_queue_duration"),
            ),
        ],
    },
    ServerFamily {
        name: "LMDeploy",
        prefix: "lmdeploy:",
        model_label: None,
        signals: &[
            (
                ServerRunning,
                Formula::Gauge("lmdeploy:num_requests_running"),
            ),
            (
                ServerWaiting,
                Formula::Gauge("lmdeploy:num_requests_waiting"),
            ),
            (
                ServerKvCacheUsage,
                Formula::Gauge("lmdeploy:gpu_cache_usage_perc"),
            ),
            (
                ServerRequestThroughput,
                Formula::Counter("lmdeploy:e2e_request_latency_seconds_count"),
            ),
            (ServerPromptTps, Formula::Counter("lmdeploy:prompt_tokens")),
            (
                ServerOutputTps,
                Formula::Counter("lmdeploy:generation_tokens"),
            ),
            (
                ServerTtft,
                Formula::Histogram("lmdeploy:time_to_first_token_seconds"),
            ),
            (ServerItl, Formula::Histogram("lmdeploy:iter_token_latency")),
            // 0.9.
            (
                ServerItl,
                Formula::Histogram("lmdeploy:time_per_output_token_seconds"),
            ),
            (
                ServerE2e,
                Formula::Histogram("lmdeploy:e2e_request_latency_seconds"),
            ),
            (
                ServerQueueTime,
                Formula::Histogram("lmdeploy:request_queue_time_seconds"),
            ),
            (
                ServerPrefillTime,
                Formula::Histogram("lmdeploy:request_prefill_time_seconds"),
            ),
            (
                ServerDecodeTime,
                Formula::Histogram("lmdeploy:request_decode_time_seconds"),
            ),
        ],
    },
    ServerFamily {
        name: "llama.cpp",
        prefix: "llamacpp:",
        model_label: None,
        signals: &[
            (
                ServerRunning,
                Formula::Gauge("llamacpp:requests_processing"),
            ),
            (ServerWaiting, Formula::Gauge("llamacpp:requests_deferred")),
            // Until b5700.
            (
                ServerKvCacheUsage,
                Formula::Gauge("llamacpp:kv_cache_usage_ratio"),
            ),
            // Prompt tokens are counted without cached ones.
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(
                    &["llamacpp:prompt_tokens_cached"],
                    &["llamacpp:prompt_tokens_cached", "llamacpp:prompt_tokens"],
                ),
            ),
            (
                ServerSpecAcceptRate,
                Formula::CounterRatio(
                    &["llamacpp:spec_decode_num_accepted_tokens"],
                    &["llamacpp:spec_decode_num_draft_tokens"],
                ),
            ),
            (ServerPromptTps, Formula::Counter("llamacpp:prompt_tokens")),
            (
                ServerOutputTps,
                Formula::Counter("llamacpp:tokens_predicted"),
            ),
        ],
    },
    ServerFamily {
        name: "Triton",
        prefix: "nv_",
        // An ensemble counts each request once as a whole and once per step.
        model_label: Some("model"),
        signals: &[
            (
                ServerRunning,
                Formula::Gauge("nv_trt_llm_request_metrics{request_type=\"scheduled\"}"),
            ),
            (
                ServerWaiting,
                Formula::Gauge("nv_trt_llm_request_metrics{request_type=\"waiting\"}"),
            ),
            (
                ServerWaiting,
                Formula::Gauge("nv_inference_pending_request_count"),
            ),
            (
                ServerKvCacheUsage,
                Formula::Gauge(
                    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"}",
                ),
            ),
            // Before 24.07.
            (
                ServerKvCacheUsage,
                Formula::GaugeRatio(
                    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"}",
                    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"}",
                ),
            ),
            (
                ServerRequestThroughput,
                Formula::Counter("nv_inference_request_success"),
            ),
            // Only with `--metrics-config histogram_latencies=true`, for models that stream: until the first response.
            (
                ServerTtft,
                Formula::Histogram("nv_inference_first_response_histogram_ms"),
            ),
            (
                ServerE2e,
                Formula::Mean(
                    "nv_inference_request_duration_us",
                    "nv_inference_request_success",
                ),
            ),
            (
                ServerQueueTime,
                Formula::Mean(
                    "nv_inference_queue_duration_us",
                    "nv_inference_request_success",
                ),
            ),
        ],
    },
    ServerFamily {
        name: "trtllm-serve",
        prefix: "trtllm_",
        model_label: None,
        signals: &[
            (ServerRunning, Formula::Gauge("trtllm_num_requests_running")),
            (ServerWaiting, Formula::Gauge("trtllm_num_requests_waiting")),
            (
                ServerKvCacheUsage,
                Formula::Gauge("trtllm_kv_cache_utilization"),
            ),
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(&["trtllm_prompt_cached_tokens"], &["trtllm_prompt_tokens"]),
            ),
            // In blocks instead of tokens.
            (
                ServerPrefixCacheHitRate,
                Formula::CounterRatio(
                    &["trtllm_kv_cache_reused_blocks"],
                    &[
                        "trtllm_kv_cache_reused_blocks",
                        "trtllm_kv_cache_missed_blocks",
                    ],
                ),
            ),
            (
                ServerPrefixCacheHitRate,
                Formula::ServerRatio("trtllm_kv_cache_hit_rate"),
            ),
            (
                ServerSpecAcceptRate,
                Formula::CounterRatio(
                    &["trtllm_spec_decode_num_accepted_tokens"],
                    &["trtllm_spec_decode_num_draft_tokens"],
                ),
            ),
            (
                ServerRequestThroughput,
                Formula::Counter("trtllm_request_success"),
            ),
            (ServerPromptTps, Formula::Counter("trtllm_prompt_tokens")),
            (
                ServerOutputTps,
                Formula::Counter("trtllm_generation_tokens"),
            ),
            (
                ServerTtft,
                Formula::Histogram("trtllm_time_to_first_token_seconds"),
            ),
            // `trtllm_time_per_output_token_seconds` is not used as ITL: it is a mean per request.
            (
                ServerE2e,
                Formula::Histogram("trtllm_e2e_request_latency_seconds"),
            ),
            (
                ServerQueueTime,
                Formula::Histogram("trtllm_request_queue_time_seconds"),
            ),
            (
                ServerPrefillTime,
                Formula::Histogram("trtllm_request_prefill_time_seconds"),
            ),
            (
                ServerDecodeTime,
                Formula::Histogram("trtllm_request_decode_time_seconds"),
            ),
        ],
    },
];
