//! The metric table: name, column, unit, scope, requirement and direction of every metric.

use crate::units::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one value of a metric belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One value per request: a distribution, so an objective needs a statistic (`.p99`).
    Request,
    /// Many values per request, pooled into a distribution.
    Gap,
    /// One value per case, without a statistic.
    Case,
}

/// What a metric requires of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// Nothing.
    Nothing,
    /// Streamed responses.
    Stream,
    /// `target.gpus`.
    Gpus,
    /// An open loop.
    OpenLoop,
    /// Streamed responses with reasoning and an answer.
    Reasoning,
    /// Conversations.
    Turns,
    /// `dataset.tokenizer`, and prompts that share prefixes.
    Tokenizer,
    /// `dataset.tokenizer`, and a server that reports its counts.
    OutputTokenizer,
    /// Requests that hold several inputs, or yield several images.
    Items,
    /// Requests that transcribe or generate audio.
    Audio,
    /// Responses that are audio.
    AudioOutput,
    /// A server that reports its own times.
    ServerTimes,
    /// `target.server`.
    ManagedServer,
    /// GPUs that report their power.
    Power,
    /// `target.hardware`.
    Hardware,
    /// `target.cost`.
    Cost,
    /// Several URLs in `target.url`.
    Endpoints,
    /// A check of the format in `request.expect`.
    AnswerFormat,
    /// A truth in `request.expect`.
    AnswerTruth,
    /// Requests that ask for a length, or `length` in `request.expect`.
    AnswerLength,
    /// `target.keep_headers`.
    KeptHeaders,
    /// A `load.max_in_flight` that holds arrivals.
    Held,
}

/// How delays of the load generator change a value. The self-audit decides by it which verdicts such delays could
/// have flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitivity {
    /// From the scheduled time: late timestamps and send delays make it longer, never shorter.
    Latency,
    /// From the actual send time: does not include send delays.
    Service,
    /// Between tokens: a late timestamp makes one gap longer and the next one shorter.
    Pace,
    /// The share of failed requests.
    Errors,
    /// Counts per second.
    Throughput,
    /// A metric of the case as a whole, or a signal.
    Figure,
    /// Independent of timestamps and load.
    Fixed,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $column:literal
        $unit:ident $per:ident $needs:ident $sensitivity:ident $higher:literal;)*) => {
        /// A metric, by its name in SLOs, columns and reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Metric { $($(#[doc = $doc])* #[serde(rename = $name)] $variant,)* }

        impl Metric {
            /// Every metric, in the order of the tables.
            pub const ALL: &[Metric] = &[$(Metric::$variant,)*];

            /// The name in an objective: `ttft`.
            pub fn name(self) -> &'static str { match self { $(Metric::$variant => $name,)* } }

            /// The column name in tables and results: `ttft_ms`.
            pub fn column(self) -> &'static str { match self { $(Metric::$variant => $column,)* } }

            /// The definition in a sentence.
            pub fn definition(self) -> &'static str {
                match self { $(Metric::$variant => concat!($($doc),*).trim_ascii(),)* }
            }

            /// The unit.
            pub fn unit(self) -> Unit { match self { $(Metric::$variant => Unit::$unit,)* } }

            /// What one value belongs to.
            pub fn per(self) -> Scope { match self { $(Metric::$variant => Scope::$per,)* } }

            /// What the metric requires of a case.
            pub fn needs(self) -> Requires { match self { $(Metric::$variant => Requires::$needs,)* } }

            /// How delays of the load generator change the value.
            pub fn sensitivity(self) -> Sensitivity {
                match self { $(Metric::$variant => Sensitivity::$sensitivity,)* }
            }

            /// Whether a higher value is better, so that low percentiles are the bad tail.
            pub fn higher_is_better(self) -> bool { match self { $(Metric::$variant => $higher,)* } }
        }
    };
}

metrics! {
    /// Time from the scheduled send to the first content token: first_token − intended.
    Ttft "ttft" "ttft_ms" Millis Request Stream Latency false;
    /// first_token − sent.
    TtftService "ttft_service" "ttft_service_ms" Millis Request Stream Service false;
    /// First token that is not reasoning − intended, for replies with reasoning. A reply of reasoning alone exceeds
    /// any limit.
    TimeToFirstAnswer "time_to_first_answer" "time_to_first_answer_ms" Millis Request Reasoning Latency false;
    /// First token that is not reasoning − first reasoning token, for replies whose reasoning is streamed.
    ReasoningTime "reasoning_time" "reasoning_time_ms" Millis Request Reasoning Pace false;
    /// first_chunk − sent.
    Ttfc "ttfc" "ttfc_ms" Millis Request Nothing Service false;
    /// Gaps between successive token events.
    Itl "itl" "itl_ms" Millis Gap Stream Pace false;
    /// output_tokens / number of token events.
    TokensPerEvent "tokens_per_event" "tokens_per_event" Tokens Request Stream Fixed false;
    /// Token events of one reply.
    EventsPerReply "events_per_reply" "events_per_reply" Count Request Stream Fixed true;
    /// Mean time per output token: (last_token − first_token) / the tokens of the events after the first.
    Tpot "tpot" "tpot_ms" Millis Request Stream Pace false;
    /// e2e / output_tokens.
    Ntpot "ntpot" "ntpot_ms" Millis Request Nothing Latency false;
    /// Time from the scheduled send to the end of the response: end − intended.
    E2e "e2e" "e2e_ms" Millis Request Nothing Latency false;
    /// end − sent.
    E2eService "e2e_service" "e2e_service_ms" Millis Request Nothing Service false;
    /// Time from the scheduled send until `load.max_in_flight` let a held request pass: held_until − intended.
    HeldTime "held_time" "held_time_ms" Millis Request Held Latency false;
    /// Send delay: sent − intended, or sent − held_until for a held request.
    ScheduleLag "schedule_lag" "schedule_lag_ms" Millis Request Nothing Fixed false;
    /// Tokens of the prompt.
    PromptTokens "prompt_tokens" "prompt_tokens" Tokens Request Nothing Fixed true;
    /// Output tokens that arrived: billed_tokens − hidden_tokens.
    OutputTokens "output_tokens" "output_tokens" Tokens Request Nothing Fixed true;
    /// Output tokens by the server's report, hidden reasoning among them; without a report, output_tokens.
    BilledTokens "billed_tokens" "billed_tokens" Tokens Request Nothing Fixed true;
    /// Reasoning tokens by the server's report.
    ReasoningTokens "reasoning_tokens" "reasoning_tokens" Tokens Request Nothing Fixed true;
    /// Reasoning tokens that the server reports and did not send.
    HiddenTokens "hidden_tokens" "hidden_tokens" Tokens Request Nothing Fixed false;
    /// Relative difference of the server's and the tokenizer's count of the output: |server − tokenizer| / tokenizer.
    CountMismatch "count_mismatch" "count_mismatch" Share Request OutputTokenizer Fixed false;
    /// Characters of the reply that are U+FFFD, which replaces bytes that are no text / its characters.
    ReplacementShare "replacement_share" "replacement_share" Share Request Nothing Fixed false;
    /// Prompt tokens from the server's cache.
    CachedTokens "cached_tokens" "cached_tokens" Tokens Request Nothing Fixed true;
    /// Prompt tokens that an unlimited prefix cache would have: those of the history in its session, or a prefix
    /// shared by the dataset.
    CacheableTokens "cacheable_tokens" "cacheable_tokens" Tokens Request Tokenizer Fixed true;
    /// prompt_tokens / ttft_service.
    PrefillTps "prefill_tps" "prefill_tps" TokensPerSecond Request Stream Service true;
    /// 1000 / tpot_ms.
    DecodeTps "decode_tps" "decode_tps" TokensPerSecond Request Stream Pace true;
    /// output_tokens / e2e.
    OutputTpsPerRequest "output_tps_per_request" "output_tps_per_request" TokensPerSecond Request Nothing Latency true;
    /// (prompt_tokens + output_tokens) / e2e.
    TotalTpsPerRequest "total_tps_per_request" "total_tps_per_request" TokensPerSecond Request Nothing Latency true;
    /// ttft_ms / prompt_tokens.
    TtftPerPromptToken "ttft_per_prompt_token" "ttft_ms_per_prompt_token" Millis Request Stream Latency false;
    /// ttft of the first turn of a conversation.
    TtftFirstTurn "ttft_first_turn" "ttft_first_turn_ms" Millis Request Turns Latency false;
    /// ttft of the turns after it.
    TtftLaterTurns "ttft_later_turns" "ttft_later_turns_ms" Millis Request Turns Latency false;
    /// Time from the first send of a session to its last end, for sessions with every turn successful.
    SessionDuration "session_duration" "session_duration_ms" Millis Request Turns Service false;
    /// Inputs or results of a request: texts embedded, documents ranked, images generated.
    Items "items" "items" Count Request Items Fixed true;
    /// Duration of the audio that a request transcribes or generates.
    AudioDuration "audio_duration" "audio_duration_s" Seconds Request Audio Fixed true;
    /// Real-time factor: e2e / audio_duration.
    Rtf "rtf" "rtf" Count Request Audio Latency false;
    /// Inverse real-time factor: audio_duration / e2e.
    RtfxPerRequest "rtfx_per_request" "rtfx_per_request" Count Request Audio Latency true;
    /// First byte of audio − intended.
    Ttfa "ttfa" "ttfa_ms" Millis Request AudioOutput Latency false;
    /// Times that playback at normal speed, from the first byte of audio, waited for more audio.
    Underruns "underruns" "underruns" Count Request AudioOutput Pace false;
    /// Total time that this playback waited for more audio.
    UnderrunTime "underrun_time" "underrun_time_ms" Millis Request AudioOutput Pace false;
    /// Reported by the server: queue time.
    ServerQueue "server_queue" "server_queue_ms" Millis Request ServerTimes Fixed false;
    /// Reported by the server: model load time.
    ServerLoad "server_load" "server_load_ms" Millis Request ServerTimes Fixed false;
    /// Reported by the server: prefill time.
    ServerPrefill "server_prefill" "server_prefill_ms" Millis Request ServerTimes Fixed false;
    /// Reported by the server: decode time.
    ServerDecode "server_decode" "server_decode_ms" Millis Request ServerTimes Fixed false;
    /// Reported by the server: total time.
    ServerTotal "server_total" "server_total_ms" Millis Request ServerTimes Fixed false;
    /// Ok requests that ended in the throughput window / its length.
    RequestThroughput "request_throughput" "request_throughput" RequestsPerSecond Case Nothing Throughput true;
    /// Inputs or results of ok requests that ended in the throughput window / its length.
    ItemThroughput "item_throughput" "item_throughput" ItemsPerSecond Case Items Throughput true;
    /// Seconds of audio of ok requests that ended in the throughput window / its length.
    Rtfx "rtfx" "rtfx" Count Case Audio Throughput true;
    /// Sessions with every turn successful that ended in the throughput window / its length.
    SessionThroughput "session_throughput" "session_throughput" SessionsPerSecond Case Turns Throughput true;
    /// session_throughput × 3600.
    SessionsPerHour "sessions_per_hour" "sessions_per_hour" SessionsPerHour Case Turns Throughput true;
    /// sessions_per_hour / target.gpus.
    SessionsPerHourPerGpu "sessions_per_hour_per_gpu" "sessions_per_hour_per_gpu"
        SessionsPerHour Case Turns Throughput true;
    /// Output tokens of ok requests that arrived in the throughput window / its length.
    OutputTps "output_tps" "output_tps" TokensPerSecond Case Nothing Throughput true;
    /// Prompt tokens of ok requests whose first token arrived in the throughput window / its length.
    InputTps "input_tps" "input_tps" TokensPerSecond Case Nothing Throughput true;
    /// Prompt and output tokens of ok requests that arrived in the throughput window / its length.
    TotalTps "total_tps" "total_tps" TokensPerSecond Case Nothing Throughput true;
    /// As output_tps, of the billed tokens: hidden reasoning counts when the first token of its reply arrives.
    BilledTps "billed_tps" "billed_tps" TokensPerSecond Case Nothing Throughput true;
    /// Prompt tokens and billed tokens of ok requests that arrived in the throughput window / its length.
    BilledTotalTps "billed_total_tps" "billed_total_tps" TokensPerSecond Case Nothing Throughput true;
    /// Mean over ok requests of output_tokens / e2e.
    OutputTpsPerUser "output_tps_per_user" "output_tps_per_user" TokensPerSecond Case Nothing Latency true;
    /// output_tps / target.gpus.
    OutputTpsPerGpu "output_tps_per_gpu" "output_tps_per_gpu" TokensPerSecond Case Gpus Throughput true;
    /// input_tps / target.gpus.
    InputTpsPerGpu "input_tps_per_gpu" "input_tps_per_gpu" TokensPerSecond Case Gpus Throughput true;
    /// total_tps / target.gpus.
    TotalTpsPerGpu "total_tps_per_gpu" "total_tps_per_gpu" TokensPerSecond Case Gpus Throughput true;
    /// target.cost per hour / (input_tps × 3600) × 1,000,000.
    CostPerMillionInputTokens "cost_per_million_input_tokens" "cost_per_million_input_tokens"
        Cost Case Cost Throughput false;
    /// target.cost per hour / (billed_tps × 3600) × 1,000,000.
    CostPerMillionOutputTokens "cost_per_million_output_tokens" "cost_per_million_output_tokens"
        Cost Case Cost Throughput false;
    /// target.cost per hour / (billed_total_tps × 3600) × 1,000,000.
    CostPerMillionTokens "cost_per_million_tokens" "cost_per_million_tokens" Cost Case Cost Throughput false;
    /// target.cost per hour / (request_throughput × 3600) × 1,000.
    CostPerThousandRequests "cost_per_thousand_requests" "cost_per_thousand_requests" Cost Case Cost Throughput false;
    /// target.cost per hour / (session_throughput × 3600) × 1,000.
    CostPerThousandSessions "cost_per_thousand_sessions" "cost_per_thousand_sessions" Cost Case Cost Throughput false;
    /// Output tokens that arrived while in-flight was at least 90 % of its plateau / that time.
    OutputTpsSteady "output_tps_steady" "output_tps_steady" TokensPerSecond Case Stream Throughput true;
    /// Requests in flight, time-weighted mean over the window.
    ConcurrencyMean "concurrency_mean" "concurrency_mean" Count Case Nothing Figure true;
    /// Maximum number of requests in flight.
    ConcurrencyMax "concurrency_max" "concurrency_max" Count Case Nothing Figure true;
    /// Arrivals per second that the plan schedules.
    RateOffered "rate_offered" "rate_offered" RequestsPerSecond Case OpenLoop Fixed true;
    /// Requests per second that were sent.
    RateAchieved "rate_achieved" "rate_achieved" RequestsPerSecond Case Nothing Fixed true;
    /// (scheduled − ok) / scheduled.
    ErrorRate "error_rate" "error_rate" Share Case Nothing Errors false;
    /// Answers that pass every check of the format (`request.expect`) / answers with such a check, over ok requests.
    ValidRate "valid_rate" "valid_rate" Share Case AnswerFormat Fixed true;
    /// Answers that match every truth (`request.expect`) / answers with a truth, over ok requests.
    MatchRate "match_rate" "match_rate" Share Case AnswerTruth Fixed true;
    /// Answers of exactly `max_tokens` tokens / answers with a token count whose request asks for that length, over
    /// ok requests.
    LengthExact "length_exact" "length_exact" Share Case AnswerLength Fixed true;
    /// Output tokens of ok requests of the endpoint that generated most / mean over the endpoints of the target.
    EndpointImbalance "endpoint_imbalance" "endpoint_imbalance" Count Case Endpoints Fixed false;
    /// Output tokens of ok requests of the replica that generated most / mean over the replicas that answered, by the
    /// first of target.keep_headers.
    ReplicaImbalance "replica_imbalance" "replica_imbalance" Count Case KeptHeaders Fixed false;
    /// Ok requests that meet every per-request limit and ended in the throughput window / its length.
    GoodputRate "goodput_rate" "goodput_rate" RequestsPerSecond Case Nothing Throughput true;
    /// Prompt tokens from the server's cache / prompt tokens, over ok requests; as reported by the server.
    CachedShare "cached_share" "cached_share" Share Case Nothing Fixed true;
    /// cacheable_tokens / prompt tokens by the local tokenizer, over ok requests: the cached_share that the data
    /// allows.
    CacheableShare "cacheable_share" "cacheable_share" Share Case Tokenizer Fixed true;
    /// Ready − process start of the managed server; mean over its starts.
    Startup "startup" "startup_s" Seconds Case ManagedServer Fixed false;
    /// Energy of the GPUs over the measured windows / billed tokens of ok requests.
    EnergyPerToken "energy_per_token" "energy_per_token_j" Joules Case Power Figure false;
    /// 2 × parameters × tokens per second / (peak_flops × gpus).
    Mfu "mfu" "mfu" Share Case Hardware Figure true;
    /// Bytes of weights and KV cache read per second / (peak_bandwidth × gpus).
    Mbu "mbu" "mbu" Share Case Hardware Figure true;
    /// Length of the measured window.
    Window "window" "window_s" Seconds Case Nothing Fixed true;
    /// Length of the throughput window: without ramp-up and drain.
    ThroughputWindow "throughput_window" "throughput_window_s" Seconds Case Nothing Fixed true;
    /// All ok requests / the measured window, its drain included.
    RequestThroughputWithDrain "request_throughput_with_drain" "request_throughput_with_drain"
        RequestsPerSecond Case Nothing Fixed true;
    /// Output tokens of all ok requests / the measured window, its drain included.
    OutputTpsWithDrain "output_tps_with_drain" "output_tps_with_drain" TokensPerSecond Case Nothing Fixed true;
    /// Prompt and output tokens of all ok requests / the measured window, its drain included.
    TotalTpsWithDrain "total_tps_with_drain" "total_tps_with_drain" TokensPerSecond Case Nothing Fixed true;
}

impl Metric {
    /// Throughputs over the throughput window, without the drain.
    pub const WINDOWED: [Metric; 15] = [
        Metric::RequestThroughput,
        Metric::ItemThroughput,
        Metric::Rtfx,
        Metric::SessionThroughput,
        Metric::SessionsPerHour,
        Metric::SessionsPerHourPerGpu,
        Metric::InputTps,
        Metric::OutputTps,
        Metric::TotalTps,
        Metric::BilledTps,
        Metric::BilledTotalTps,
        Metric::InputTpsPerGpu,
        Metric::OutputTpsPerGpu,
        Metric::TotalTpsPerGpu,
        Metric::GoodputRate,
    ];

    /// Whether it is a throughput, which has a confidence interval and exists for each tag.
    pub fn is_rate(self) -> bool {
        Metric::WINDOWED.contains(&self)
    }

    /// Whether it is a throughput of whole sessions.
    pub fn is_session_rate(self) -> bool {
        self.undivided() == Metric::SessionThroughput
    }

    /// Shares of the answers that meet what `request.expect` states.
    pub const ANSWERS: [Metric; 3] = [Metric::ValidRate, Metric::MatchRate, Metric::LengthExact];

    /// Whether it is a share of requests, which has exact binomial bounds and exists for each tag.
    pub fn is_request_share(self) -> bool {
        self == Metric::ErrorRate || Metric::ANSWERS.contains(&self)
    }

    /// The throughput that a throughput per GPU or per hour is a multiple of; any other metric itself.
    pub fn undivided(self) -> Metric {
        match self {
            Metric::SessionsPerHour | Metric::SessionsPerHourPerGpu => Metric::SessionThroughput,
            Metric::InputTpsPerGpu => Metric::InputTps,
            Metric::OutputTpsPerGpu => Metric::OutputTps,
            Metric::TotalTpsPerGpu => Metric::TotalTps,
            metric => metric,
        }
    }

    /// The throughput that a cost is inversely proportional to, and the amount whose cost it is: 1,000,000 tokens;
    /// None for other metrics.
    pub fn cost_basis(self) -> Option<(Metric, f64)> {
        match self {
            Metric::CostPerMillionInputTokens => Some((Metric::InputTps, 1e6)),
            Metric::CostPerMillionOutputTokens => Some((Metric::BilledTps, 1e6)),
            Metric::CostPerMillionTokens => Some((Metric::BilledTotalTps, 1e6)),
            Metric::CostPerThousandRequests => Some((Metric::RequestThroughput, 1e3)),
            Metric::CostPerThousandSessions => Some((Metric::SessionThroughput, 1e3)),
            _ => None,
        }
    }

    /// The metric that other tools, and papers, call so.
    pub fn of_other_tools(word: &str) -> Option<Metric> {
        Some(
            match word.to_lowercase().replace([' ', '-'], "_").as_str() {
                "time_to_first_token" => Metric::Ttft,
                "time_per_output_token" => Metric::Tpot,
                "inter_token_latency" | "icl" => Metric::Itl,
                "latency" | "request_latency" | "e2el" | "end_to_end_latency" => Metric::E2e,
                "tps" | "throughput" | "token_throughput" | "output_token_throughput" => {
                    Metric::OutputTps
                }
                "rps" | "qps" | "requests_per_second" => Metric::RequestThroughput,
                "errors" | "failures" | "failure_rate" => Metric::ErrorRate,
                _ => return None,
            },
        )
    }

    /// Parses [`Metric::name`].
    pub fn parse(name: &str) -> Option<Metric> {
        Metric::ALL
            .iter()
            .copied()
            .find(|metric| metric.name() == name)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A statistic of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stat {
    /// Quantile by nearest rank, as a share 0..=1: `p99.9` is 0.999.
    Quantile(f64),
    /// Arithmetic mean.
    Mean,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Number of values.
    Count,
    /// Sample standard deviation.
    Sd,
}

impl Stat {
    /// Parses `p50`, `p99.9`, `mean`, `min`, `max`, `count`, `sd`.
    pub fn parse(name: &str) -> Option<Stat> {
        match name {
            "mean" => Some(Stat::Mean),
            "min" => Some(Stat::Min),
            "max" => Some(Stat::Max),
            "count" => Some(Stat::Count),
            "sd" => Some(Stat::Sd),
            _ => {
                let digits = name.strip_prefix('p')?;
                // The decimal point is moved in the text, because 99.9 / 100 is not 0.999 in binary and would shift a
                // rank by one.
                let plain = digits.starts_with(|c: char| c.is_ascii_digit())
                    && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
                let share: f64 = format!("{digits}e-2").parse().ok().filter(|_| plain)?;
                (share <= 1.0).then_some(Stat::Quantile(share))
            }
        }
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stat::Quantile(share) => write!(f, "p{}", (share * 1e8).round() / 1e6),
            Stat::Mean => f.write_str("mean"),
            Stat::Min => f.write_str("min"),
            Stat::Max => f.write_str("max"),
            Stat::Count => f.write_str("count"),
            Stat::Sd => f.write_str("sd"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_columns_are_unique_and_parse_back() {
        let names: HashSet<_> = Metric::ALL.iter().map(|m| m.name()).collect();
        let columns: HashSet<_> = Metric::ALL.iter().map(|m| m.column()).collect();
        assert_eq!(
            (names.len(), columns.len()),
            (Metric::ALL.len(), Metric::ALL.len())
        );
        for (index, &metric) in Metric::ALL.iter().enumerate() {
            // The columns of measured requests are found by this number.
            assert_eq!(metric as usize, index);
            assert_eq!(Metric::parse(metric.name()), Some(metric));
        }
    }

    #[test]
    fn statistics_print_and_parse_back() {
        for name in [
            "p0", "p50", "p99", "p99.9", "p100", "mean", "min", "max", "count", "sd",
        ] {
            assert_eq!(Stat::parse(name).unwrap().to_string(), name);
        }
        for bad in [
            "p101", "p", "p-1", "p+5", "pnan", "pinf", "p1e1", "median", "",
        ] {
            assert_eq!(Stat::parse(bad), None, "{bad}");
        }
    }
}
