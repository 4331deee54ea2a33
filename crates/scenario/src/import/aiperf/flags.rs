//! The flags of `aiperf profile`.

use crate::import::command::{Flag, Takes, left, taken};
use Takes::{Many, Nothing, One, Secret, Truth};

const INNER: &str = "an inner matter of its processes; here one program does all of it";
const MEDIA: &str = "audio and video are not sent; see `dataset: { kind: images }`";
const TRACE: &str = "a log is replayed as it is: see `load.trace` and `dataset.trace`";
const SYNTH: &str = "a log is not made up anew: change the log itself";
const SEARCH: &str = "the search is another one: see `search`";
const AXES: &str = "see `matrix`";
const JUDGE: &str = "answers are not graded";
const OUTPUT: &str = "every run is kept whole in a folder of its own; see `report`";
const METRICS: &str = "see `target.metrics`";
const TRACKER: &str = "see `report.track`";
const WARMUP: &str = "the warm-up has the load of the run; see `load.warmup`";
const AGENT: &str = "see `dataset.turns`: real replies are fed back";
const SHOWN: &str = "see `--progress`, `--live` and `--quiet`";

/// Every flag.
pub(in crate::import) const FLAGS: &[&[Flag]] = &[TARGET, DATA, LENGTHS, LOAD, REST];

const TARGET: &[Flag] = &[
    taken(&["--model", "--model-names", "-m"], Many),
    taken(&["--model-selection-strategy"], One),
    taken(&["--endpoint", "--custom-endpoint"], One),
    taken(&["--endpoint-type"], One),
    taken(&["--streaming"], Truth),
    taken(&["--url", "-u"], Many),
    left(&["--url-strategy"], One, "a scenario has one target; run it once for each URL, or put a balancer in front"),
    taken(&["--request-timeout-seconds"], One),
    left(
        &["--wait-for-model-timeout", "--wait-for-model-mode", "--wait-for-model-interval"],
        One,
        "a server that is not there is said at once",
    ),
    left(
        &["--reset-kv-cache", "--server-profiler"],
        Truth,
        "the server is not driven; `dataset.cache_bust` makes prompts that no cache knows",
    ),
    left(&["--reset-kv-cache-timeout-seconds", "--reset-kv-cache-path"], One, "the server is not driven"),
    left(
        &["--server-profiler-timeout-seconds", "--server-profiler-start-path", "--server-profiler-stop-path"],
        One,
        "the server is not driven",
    ),
    taken(&["--api-key"], Secret),
    left(&["--transport", "--transport-type"], One, "HTTP is what is spoken"),
    left(&["--use-legacy-max-tokens"], Truth, "`max_tokens` is what is sent; put another name into `request.extra`"),
    left(&["--use-server-token-count", "--per-chunk-usage"], Truth, "the server's own count is taken wherever it tells one"),
    taken(&["--connection-reuse-strategy"], One),
    left(&["--download-video-content"], Truth, MEDIA),
    left(&["--request-content-type"], One, "bodies are JSON"),
    left(&["--session-header"], One, "see `target.request_id`"),
    left(&["--uuid-and-strip"], Truth, MEDIA),
    taken(&["--tokenizer"], One),
    left(&["--tokenizer-revision"], One, "put the revision's folder into `dataset.tokenizer`"),
    left(&["--tokenizer-trust-remote-code"], Truth, "no code of a model is run"),
    left(&["--apply-chat-template"], Truth, "the server applies it to messages"),
    taken(&["--extra-inputs"], Many),
    taken(&["--header", "-H"], Many),
];

const DATA: &[Flag] = &[
    taken(&["--input-file"], One),
    taken(&["--public-dataset"], One),
    left(&["--hf-subset", "--hf-weka-dataset"], One, "data come from a file"),
    left(&["--dataset-filter"], Many, "filter the file itself; `dataset.prompt_tokens` takes lengths"),
    taken(&["--custom-dataset-type"], One),
    left(&["--ignore-trace-delays", "--use-think-time-only", "--omit-kv-hints"], Truth, TRACE),
    left(&["--max-context-length"], One, "see `dataset.prompt_tokens.max`"),
    taken(&["--dataset-sampling-strategy"], One),
    taken(&["--allow-dataset-wrap"], Truth),
    taken(&["--no-allow-dataset-wrap"], Truth),
    taken(&["--random-seed"], One),
    left(&["--trace-session-sample-ratio"], One, TRACE),
    left(&["--config", "-f", "--scenario"], One, "put what the file says on the command line, or into the scenario by hand"),
    left(&["--unsafe-override"], Truth, "nothing here is locked"),
    taken(&["--fixed-schedule"], Truth),
    left(&["--no-fixed-schedule", "--fixed-schedule-auto-offset"], Truth, TRACE),
    taken(&["--fixed-schedule-start-offset"], One),
    taken(&["--fixed-schedule-end-offset"], One),
    taken(&["--goodput"], Many),
    taken(&["--num-conversations", "--conversation-num", "--num-sessions"], One),
    left(&["--num-dataset-entries", "--num-prompts"], One, "every prompt is drawn when it is needed, so that none is sent twice"),
    taken(&["--session-turns-mean", "--conversation-turn-mean"], One),
    left(&["--session-turns-stddev", "--conversation-turn-stddev"], One, "the data say how many turns a conversation has"),
    taken(&["--session-turn-delay-mean", "--conversation-turn-delay-mean"], One),
    taken(&["--session-turn-delay-stddev", "--conversation-turn-delay-stddev"], One),
    left(
        &[
            "--session-delay-ratio",
            "--conversation-turn-delay-ratio",
            "--inter-turn-delay-cap-seconds",
            "--max-idle-gap-cap-seconds",
        ],
        One,
        AGENT,
    ),
    taken(&["--replay-speedup"], One),
    left(&["--open-loop-replay", "--no-open-loop-replay", "--open-loop-strict"], Truth, TRACE),
    left(&["--force-min-tokens", "--no-force-min-tokens"], Truth, "see `dataset.trace.match_output_length`"),
    taken(&["--cache-bust"], One),
    taken(&["--system-prompt"], One),
    left(&["--system-prompt-file"], One, "put the text into `dataset.system`"),
];

const LENGTHS: &[Flag] = &[
    taken(&["--batch-size", "--prompt-batch-size", "--batch-size-text", "-b"], One),
    left(&["--prompt-corpus", "--random-corpus-style"], One, "random prompts are tokens drawn from the vocabulary"),
    taken(&["--num-prefix-prompts", "--prompt-prefix-pool-size", "--prefix-prompt-pool-size"], One),
    taken(&["--prefix-prompt-length", "--prompt-prefix-length"], One),
    taken(&["--shared-system-prompt-length"], One),
    left(&["--user-context-prompt-length"], One, "see `dataset: { kind: prefix }`"),
    taken(&["--isl", "--prompt-input-tokens-mean", "--synthetic-input-tokens-mean"], One),
    taken(&["--isl-stddev", "--prompt-input-tokens-stddev", "--synthetic-input-tokens-stddev"], One),
    left(&["--isl-block-size", "--prompt-input-tokens-block-size", "--synthetic-input-tokens-block-size"], One, SYNTH),
    left(&["--seq-dist", "--sequence-distribution"], One, "see `mix`: an entry for each pair of lengths, with its weight"),
    left(&["--random-range-ratio"], One, "write the range itself: `dataset: { tokens: { uniform: [a, b] } }`"),
    taken(&["--osl", "--prompt-output-tokens-mean", "--output-tokens-mean"], One),
    taken(&["--osl-stddev", "--prompt-output-tokens-stddev", "--output-tokens-stddev"], One),
    left(
        &["--audio-batch-size", "--batch-size-audio", "--audio-length-mean", "--audio-length-stddev", "--audio-format"],
        One,
        MEDIA,
    ),
    left(&["--audio-depths", "--audio-sample-rates"], Many, MEDIA),
    left(&["--audio-num-channels"], One, MEDIA),
    taken(&["--image-width-mean"], One),
    taken(&["--image-height-mean"], One),
    left(&["--image-width-stddev", "--image-height-stddev"], One, "name several `dataset.sizes`: they are taken in turn"),
    taken(&["--image-batch-size", "--batch-size-image"], One),
    left(
        &["--image-format", "--image-source", "--image-source-sampling"],
        One,
        "pictures are generated as PNG, or those of the folder `dataset.path`",
    ),
    left(
        &["--video-batch-size", "--batch-size-video", "--video-duration", "--video-fps", "--video-width", "--video-height"],
        One,
        MEDIA,
    ),
    left(&["--video-synth-type", "--video-format", "--video-codec", "--video-audio-sample-rate"], One, MEDIA),
    left(&["--video-audio-num-channels", "--video-audio-codec", "--video-audio-depth"], One, MEDIA),
    taken(&["--rankings-passages-mean"], One),
    left(
        &["--rankings-passages-stddev", "--rankings-passages-prompt-token-mean", "--rankings-passages-prompt-token-stddev"],
        One,
        "the rows of the file say it",
    ),
    left(&["--rankings-query-prompt-token-mean", "--rankings-query-prompt-token-stddev"], One, "the rows of the file say it"),
    left(&["--synthesis-speedup-ratio", "--synthesis-prefix-len-multiplier", "--synthesis-prefix-root-multiplier"], One, SYNTH),
    left(
        &["--synthesis-prompt-len-multiplier", "--synthesis-output-len-multiplier", "--synthesis-max-isl", "--synthesis-max-osl"],
        One,
        SYNTH,
    ),
];

const LOAD: &[Flag] = &[
    taken(&["--benchmark-duration"], One),
    taken(&["--benchmark-grace-period"], One),
    taken(&["--concurrency"], Many),
    left(
        &["--prefill-concurrency", "--prefill-concurrency-ramp-duration"],
        One,
        "users are not told apart by what the server does for them",
    ),
    taken(&["--request-rate"], Many),
    taken(&["--arrival-pattern", "--request-rate-mode"], One),
    taken(&["--arrival-smoothness", "--vllm-burstiness"], One),
    taken(&["--request-count", "--num-requests"], One),
    taken(&["--concurrency-ramp-duration"], One),
    left(&["--request-rate-ramp-duration", "--request-rate-series"], One, "see `load.stages`"),
    left(&["--failed-request-threshold"], One, "see `slo: [{ expr: \"error_rate < 1%\", abort: {} }]`"),
    left(
        &[
            "--trajectory-start-min-ratio",
            "--trajectory-start-max-ratio",
            "--trace-idle-gap-cap-seconds",
            "--system-idle-gap-cap-seconds",
        ],
        One,
        TRACE,
    ),
    left(
        &["--burst-phase-starts"],
        Truth,
        "users of a closed loop start at once; `load.spread` lets them start one after another",
    ),
    taken(&["--warmup-request-count", "--num-warmup-requests"], One),
    taken(&["--warmup-duration"], One),
    left(&["--agentic-cache-warmup-duration", "--agentic-warmup-grace-period", "--num-warmup-sessions"], One, WARMUP),
    left(
        &["--warmup-concurrency", "--warmup-prefill-concurrency", "--warmup-request-rate", "--warmup-arrival-pattern"],
        One,
        WARMUP,
    ),
    left(&["--warmup-grace-period", "--warmup-concurrency-ramp-duration"], One, WARMUP),
    left(&["--warmup-prefill-concurrency-ramp-duration", "--warmup-request-rate-ramp-duration"], One, WARMUP),
    left(&["--user-centric-rate", "--num-users"], One, "an open loop of conversations: `load.rate` with `dataset.turns`"),
    taken(&["--request-cancellation-rate"], One),
    taken(&["--request-cancellation-delay"], One),
    taken(&["--num-profile-runs"], One),
    taken(&["--profile-run-cooldown-seconds"], One),
    left(&["--confidence-level"], One, "see `slo[].confidence`"),
    left(
        &["--profile-run-disable-warmup-after-first", "--no-profile-run-disable-warmup-after-first"],
        Truth,
        "every round has its warm-up",
    ),
    left(
        &["--set-consistent-seed", "--no-set-consistent-seed", "--vary-seed-per-trial", "--no-vary-seed-per-trial"],
        Truth,
        "each round draws its own requests from the one seed",
    ),
    left(
        &["--convergence-metric", "--convergence-stat", "--convergence-threshold", "--convergence-mode"],
        One,
        "an INCONCLUSIVE limit says how many requests it needs",
    ),
];

const REST: &[Flag] = &[
    taken(&["--artifact-dir", "--output-artifact-dir"], One),
    left(
        &["--profile-export-prefix", "--profile-export-file", "--export-level", "--profile-export-level", "--slice-duration"],
        One,
        OUTPUT,
    ),
    left(
        &[
            "--auto-plot",
            "--no-auto-plot",
            "--plot-required",
            "--export-outputs-json",
            "--export-http-trace",
            "--show-trace-timing",
        ],
        Truth,
        OUTPUT,
    ),
    left(&["--otel-url", "--gen-ai-provider"], One, "see `--metrics-addr`"),
    left(&["--stream", "--otel-resource-attributes"], Many, "see `--metrics-addr`"),
    left(&["--mlflow-tracking-uri", "--mlflow-experiment", "--mlflow-run-name", "--mlflow-parent-run-id"], One, TRACKER),
    left(&["--mlflow-tag", "--mlflow-artifact-glob", "--wandb-tag"], Many, TRACKER),
    left(&["--wandb-project", "--wandb-entity", "--wandb-run-name"], One, TRACKER),
    left(&["--server-metrics", "--server-metrics-formats", "--gpu-telemetry"], Many, METRICS),
    left(&["--no-server-metrics", "--no-gpu-telemetry", "--network-latency-automatic"], Truth, METRICS),
    left(&["--network-latency-mean", "--network-latency-ping-interval"], One, "nothing is subtracted from what was measured"),
    left(&["--ui-type", "--ui", "--log-level", "--stats-interval"], One, SHOWN),
    left(&["--verbose", "-v", "--extra-verbose", "-vv", "--no-sweep-table"], Nothing, SHOWN),
    left(&["--parameter-sweep-cooldown-seconds", "--parameter-sweep-mode", "--sweep-type"], One, AXES),
    left(&["--parameter-sweep-same-seed", "--no-parameter-sweep-same-seed"], Truth, AXES),
    left(&["--variant", "--sweep-variant", "--search-space", "--search-sla", "--search-sla-tier"], Many, SEARCH),
    left(&["--isl-osl-pairs", "--isl-min", "--isl-max", "--isl-steps", "--osl-min", "--osl-max", "--osl-steps"], One, AXES),
    left(
        &["--search-metric", "--search-stat", "--search-direction", "--search-max-iterations", "--search-initial-points"],
        One,
        SEARCH,
    ),
    left(
        &["--search-random-seed", "--search-planner", "--optuna-sampler", "--optuna-acquisition", "--optuna-terminator"],
        One,
        SEARCH,
    ),
    left(&["--search-percentile-pooling", "--bo-constraint-mode", "--search-style"], One, SEARCH),
    taken(&["--search-recipe"], One),
    taken(&["--ttft-sla-ms"], One),
    taken(&["--itl-sla-ms"], One),
    taken(&["--tpot-sla-ms"], One),
    taken(&["--e2e-sla-ms"], One),
    taken(&["--error-rate-sla"], One),
    left(&["--slo-attainment-fraction"], One, "write it into `goodput(…) >= 99%`"),
    left(&["--degradation-threshold", "--degradation-metric-tag", "--degradation-stat"], One, SEARCH),
    taken(&["--concurrency-min"], One),
    taken(&["--concurrency-max"], One),
    left(&["--concurrency-steps"], One, SEARCH),
    left(&["--accuracy-benchmark", "--accuracy-n-shots", "--accuracy-grader", "--accuracy-system-prompt"], One, JUDGE),
    left(&["--accuracy-tasks"], Many, JUDGE),
    left(&["--accuracy-enable-cot", "--accuracy-no-enable-cot", "--accuracy-verbose"], Truth, JUDGE),
    left(&["--record-processor-service-count", "--record-processors", "--workers-max", "--max-workers"], One, INNER),
    left(&["--api-port", "--api-host", "--zmq-host", "--zmq-ipc-path"], One, INNER),
    left(&["--zmq-dual-bind"], Truth, INNER),
];
