//! `target`: the server under test and its hardware.

pub(crate) mod url;
mod websocket;

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::schema_table::{
    Block, Default, Kind, Leaf, Rule, conflicts_with, field, only_with, requires,
};
use crate::sections::condition::gpu_of_target;
use crate::sections::local::WITHOUT_LOCAL;
use crate::sections::{local, server, simulator, telemetry};
use crate::tree::{Data, Node};
use crate::values::command::{COMMAND, command};
use crate::values::expect;
use crate::values::number::{
    BANDWIDTH, FLOPS, PARAMETERS, SIZE, bandwidth, flops, parameters, size,
};
use crate::values::target::{
    MODELS, SIMULATOR, VERSION, check_header_name, comparable_url, models, simulator_path,
    split_url, url_error, version,
};
use crate::values::time::{SPAN, duration};
use llmscen_core::api::Api;
use llmscen_core::api_key::{ApiKey, AwsSigning, KeyCommand, ObtainedKeys};
use llmscen_core::endpoint::{Balance, Endpoints, UrlParts, is_loopback};
use llmscen_core::redact::Secret;
use llmscen_core::target::{
    Awaited, Compression, Cost, ModelShare, Pool, SessionToken, Target, TargetLocation, Timeouts,
    Tls,
};
use llmscen_core::telemetry::{Hardware, MetricsSource};
use llmscen_core::url_secrets::is_secret_name;
use serde_json::json;
use std::sync::Arc;

const API: Kind = Kind::Choice(
    &[
        ("openai-chat", "OpenAI chat completions"),
        ("openai-completions", "OpenAI text completions"),
        ("openai-responses", "OpenAI responses"),
        (
            "openai-realtime",
            "OpenAI Realtime, over WebSocket; the server keeps the conversation",
        ),
        ("openai-embeddings", "OpenAI embeddings; not streamed"),
        (
            "rerank",
            "Rerank, as in Cohere, Jina and vLLM; not streamed",
        ),
        (
            "openai-transcriptions",
            "OpenAI transcriptions: uploads the audio of `dataset.kind: audio`",
        ),
        (
            "openai-translations",
            "OpenAI translations: as transcriptions, into English",
        ),
        (
            "openai-speech",
            "OpenAI speech: the response is audio, without `request.stream`",
        ),
        ("openai-images", "OpenAI image generation; not streamed"),
        ("dashscope", "DashScope's native generation"),
        (
            "anthropic",
            "Anthropic messages; needs `request.max_tokens`",
        ),
        ("ollama", "Ollama's native chat, as JSON lines"),
        ("tgi", "Text Generation Inference's native generation"),
        (
            "custom",
            "Defined by `request.template` and `request.extract`",
        ),
        (
            "local",
            "A local model in `model`: a folder, a name on the hub, a `.gguf` file, \
            or `random:tiny`",
        ),
        (
            SIMULATOR,
            "The built-in server; the same as `url: simulator`",
        ),
    ],
    &[],
);

const POOL: Kind = Kind::Choice(
    &[
        (
            "keep-alive",
            "Connections are reused; those of a closed loop's users, or of a burst, \
            are opened before the start",
        ),
        (
            "on-demand",
            "Connections are reused, and opened when a request needs one: the first \
            requests wait for theirs",
        ),
        ("per-request", "Every request opens a connection"),
    ],
    &[],
);

const TRANSPORT: Kind = Kind::Choice(
    &[
        ("http", "Each request is a POST"),
        (
            "websocket",
            "Each request is a message on a WebSocket, and so is each event of its response",
        ),
    ],
    &[],
);

const COMPRESSION: Kind = Kind::Choice(
    &[
        (
            "none",
            "No compression: its time on the server would be measured",
        ),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("any", "Either"),
    ],
    &[],
);

static TIMEOUTS: Block = Block {
    doc: "Time limits of a request.",
    short: None,
    fields: &[
        field(
            "connect",
            Kind::Leaf(&SPAN),
            "From the start of a connection to its completion, including TLS.",
        )
        .default("10s")
        .example("5s")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "read",
            Kind::Leaf(&SPAN),
            "The longest wait for the next byte, including those of the response head. Pauses of \
            llmscen itself do not count.",
        )
        .default("120s")
        .example("60s")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "event",
            Kind::Leaf(&SPAN),
            "The longest wait for the next event of a stream that has begun: content, \
            a finish reason, or more counted tokens. Heartbeats, such as comments and \
            pings, are none. The wait for the first content is limited by `read` and \
            `total`. No limit by default.",
        )
        .example("30s")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "total",
            Kind::Leaf(&SPAN),
            "From send to the end of the response.",
        )
        .default("600s")
        .example("2m"),
    ],
};

static TLS: Block = Block {
    doc: "Certificates of the server and the client.",
    short: None,
    fields: &[
        field(
            "ca",
            Kind::File,
            "A PEM file with additional trusted authorities.",
        )
        .example("ca.pem")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "cert",
            Kind::File,
            "A PEM file with this client's certificate chain.",
        )
        .example("client.pem")
        .rules(&[
            WITHOUT_LOCAL,
            requires(&["key"]).help("A certificate and its key must be used together."),
        ]),
        field("key", Kind::File, "A PEM file with that certificate's key.")
            .example("client.key")
            .rules(&[
                WITHOUT_LOCAL,
                requires(&["cert"]).help("A certificate and its key must be used together."),
            ]),
        field(
            "insecure",
            Kind::Bool,
            "Accept any certificate, with a warning that is also in the report.",
        )
        .default("false")
        .example("true")
        .rules(&[WITHOUT_LOCAL]),
    ],
};

static HTTP: Block = Block {
    doc: "HTTP options.",
    short: None,
    fields: &[
        field(
            "version",
            Kind::Leaf(&VERSION),
            "`auto` is HTTP/2 if TLS negotiates it, otherwise HTTP/1.1; `2` is always HTTP/2.",
        )
        .default("auto")
        .example("2")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "pool",
            POOL,
            "Whether connections are reused, and when they are opened. One that \
        is idle for 60 s is closed.",
        )
        .default("keep-alive")
        .example("per-request")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "compression",
            COMPRESSION,
            "Compression that requests accept. Compressed responses are always decoded.",
        )
        .default("none")
        .example("gzip")
        .rules(&[WITHOUT_LOCAL]),
    ],
};

const BALANCE: Kind = Kind::Choice(
    &[
        (
            "round_robin",
            "Requests in turn, by their number in the plan; the turns of a session too",
        ),
        ("random", "Drawn from the seed for each request"),
        (
            "session",
            "Sessions in turn: all turns of a session are sent to one URL",
        ),
    ],
    &[],
);

static URLS: Leaf = Leaf {
    expected: "a URL or a list of URLs",
    sweepable: true,
    schema: || {
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" },
        "minItems": 1 }] })
    },
    check: |node, review| {
        if matches!(&node.data, Data::List(items) if items.is_empty()) {
            let mistake = Mistake::new(node.at, "`url` is an empty list", "needs a URL");
            return review.push(mistake.help("For example `url: [http://a:8000, http://b:8000]`."));
        }
        if let Some(wrong) = node.one_or_more().iter().find(|item| item.text().is_none()) {
            expect(wrong, URLS.expected, "`http://127.0.0.1:8000`", review);
        }
    },
};

/// Headers that have a fixed meaning.
const TAKEN: [&str; 7] = [
    "accept",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

static SESSION_TOKEN: Block = Block {
    doc: "A token that a response names and the later turns of its session send back. \
    The latest one counts.",
    short: None,
    fields: &[
        field("from", Kind::Text, "Response header.")
            .required()
            .example("x-session-token"),
        field("to", Kind::Text, "Request header.")
            .required()
            .example("x-session-token"),
    ],
};

pub(crate) static TARGET: Block = Block {
    doc: "The server under test. Requests use the proxy in `HTTP_PROXY`, `HTTPS_PROXY` or \
    `ALL_PROXY`, except for loopback addresses and the hosts in `NO_PROXY`.",
    short: None,
    fields: &[
        field("api", API, "The protocol.")
            .default("openai-chat")
            .example("anthropic"),
        field(
            "url",
            Kind::Leaf(&URLS),
            "The URL that requests are posted to, or a list of the URLs of several servers with \
            the same model. A base URL (no path, `…/v1`; `…/api` with `ollama`, `…/api/v1` with \
            `dashscope`) is completed with the path of `api`, and a note shows the result; any \
            other path is used unchanged, and so is every URL with `custom`. `simulator` is the \
            built-in server; `simulator/v1/messages` selects a path.",
        )
        .required_unless("local")
        .example("http://127.0.0.1:8000/v1/chat/completions")
        .rules(&[
            WITHOUT_LOCAL,
            conflicts_with(&["target.api"], &["custom"])
                .when("simulator")
                .message(
                    "`api: custom` needs a path at the \
            simulator",
                )
                .reason("without a path, its protocol is unknown")
                .beside("this URL has no path")
                .help("For example `url: simulator/v1/chat/completions`."),
        ]),
        field(
            "transport",
            TRANSPORT,
            "How requests are sent. By default `websocket` for a \
        `ws://` or `wss://` URL and for `openai-realtime`, otherwise `http`. `openai-responses` \
        has both.",
        )
        .example("websocket")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "balance",
            BALANCE,
            "How requests are distributed over several URLs; `round_robin` \
        if it is not set. Retries use the URL of the request.",
        )
        .example("session")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "model",
            Kind::Leaf(&MODELS),
            "The model that requests name; several \
        share the requests by weight.",
        )
        .example("qwen2.5"),
        field(
            "api_key",
            Kind::SecretOr(&API_KEY),
            "Sent as `Authorization: Bearer \
        …`, or in the header of the API; never printed, never stored. A mapping names \
        a command that prints it, for keys that expire.",
        )
        .example("\"${OPENAI_API_KEY}\"")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "aws",
            Kind::Block(&AWS),
            "Sign requests for a service of AWS (SigV4), with the \
        credentials of the environment or of a profile.",
        )
        .example("{ service: bedrock, region: us-east-1 }")
        .rules(&[
            WITHOUT_LOCAL,
            conflicts_with(&["target.api_key"], &[])
                .reason("signs each request")
                .beside(
                    "this key would be sent without a \
                signature",
                )
                .help("Remove one of them."),
            conflicts_with(&["target.url"], &["simulator*"])
                .reason("would not be checked")
                .beside("this target is part of llmscen")
                .help("Remove it."),
        ]),
        field("headers", Kind::Map(&Kind::Secret), "Further headers.")
            .example("{ X-Team: infra }")
            .rules(&[WITHOUT_LOCAL]),
        field(
            "request_id",
            Kind::Text,
            "Header with a unique id per request, which is also \
        stored with the request, to join with the server's logs.",
        )
        .example("X-Request-Id")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "session_id",
            Kind::Text,
            "Header with an id per session, the same on all of its \
        turns, for routers with session affinity. It depends on the plan and the number of the \
        session alone.",
        )
        .example("X-Session-ID")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "session_token",
            Kind::Block(&SESSION_TOKEN),
            "A token of the server \
        that the later turns of its session send back.",
        )
        .example("{ from: x-session-token, to: x-session-token }")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "keep_headers",
            Kind::List(&Kind::Text),
            "Response headers that are stored with \
        each request, such as the name of the replica. A name with a hyphen is also a tag of \
        limits: `ttft{x-inference-pod=a}.p95`. Headers with credentials cannot be kept.",
        )
        .example("[x-inference-pod]")
        .rules(&[WITHOUT_LOCAL]),
        field(
            "timeouts",
            Kind::Block(&TIMEOUTS),
            "Time limits of a request.",
        )
        .defaults(Default::Empty)
        .example(
            "{ connect: \
            5s, total: 2m }",
        ),
        field("tls", Kind::Block(&TLS), "Certificates.")
            .defaults(Default::Empty)
            .example("{ ca: ca.pem }"),
        field("http", Kind::Block(&HTTP), "HTTP options.")
            .defaults(Default::Empty)
            .example("{ version: 2 }"),
        field(
            "gpus",
            Kind::Whole(1, 1_000_000),
            "GPUs behind the target, for per-GPU \
        figures.",
        )
        .example("8"),
        field(
            "cost",
            Kind::Leaf(&COST),
            "Price of the target, for the `cost_per_…` metrics: per \
        hour, of all of it or per GPU.",
        )
        .example("2.50 USD/h per gpu"),
        field(
            "hardware",
            Kind::Block(&HARDWARE),
            "The GPUs: their name, and their peak \
        performance for `mfu` and `mbu`.",
        )
        .example(
            "{ parameters: 8B, weight_bytes: 16 GB, \
        peak_flops: 989 TFLOPS, peak_bandwidth: 3.35 TB/s }",
        ),
        field(
            "simulator",
            Kind::Block(&simulator::SIMULATOR),
            "The built-in server's \
        parameters; only with `url: simulator`.",
        )
        .example("{ alpha: 2ms }")
        .rules(&[
            WITHOUT_LOCAL,
            only_with(&["target.url"], &["simulator*"])
                .reason("describes a server that is not used")
                .beside("this server is used")
                .help("Remove it, or write `url: simulator`."),
        ]),
        field(
            "ready",
            Kind::Block(&AWAITED),
            "Wait before the first request until a \
        server that is already starting, or all of its workers, are ready.",
        )
        .example("{ url: /health, models: [llama], timeout: 30m }")
        .rules(&[
            WITHOUT_LOCAL,
            conflicts_with(&["target.server"], &[])
                .reason("would be checked before the server starts")
                .beside("this server is started by the run")
                .help("Write `target.server.ready`."),
            conflicts_with(&["target.url"], &["simulator*"])
                .reason("is always ready")
                .beside("this target is part of llmscen")
                .help("Remove it."),
        ]),
        field(
            "server",
            Kind::Block(&server::SERVER),
            "A server that the run starts and stops.",
        )
        .example("{ preset: vllm }")
        .rules(&[
            WITHOUT_LOCAL,
            conflicts_with(&["target.url"], &["simulator*"])
                .reason("would not be used")
                .beside("this target is part of llmscen")
                .help("Remove it, or write its URL: `url: http://127.0.0.1:8000/…`."),
            requires(&["target.server.command", "target.server.preset"]).help(
                "For example `command: vllm serve {{ target.model }} --port \
            8000`, or `preset: vllm`. Presets are `vllm`, \
            `lmdeploy`, `sglang`, `llama-server`, `transformers`, \
            `ollama` and `tgi`.",
            ),
        ]),
        field(
            "metrics",
            Kind::OneOrMore(&telemetry::METRICS),
            "The server's own \
        metrics, scraped during the run: its page, or a list with the pages of its \
        workers.",
        )
        .example("http://127.0.0.1:8000/metrics")
        .rules(&[WITHOUT_LOCAL]),
        local::FIELD,
    ],
};

/// The target of a case. Reports contradictions.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Target> {
    let api = draft.api()?;
    let is_local = api == Api::Local;
    let place = if is_local {
        local::decode_place(draft, review)
    } else {
        decode_place(draft, api, review)
    };
    let models = if is_local {
        local::decode_model(draft, review)
    } else {
        decode_models(draft, review)
    };
    let headers = draft.headers("target.headers", review);
    check_signed_headers(draft, review);
    let websocket = websocket::decode(draft, api, review);
    let request_id = decode_own_header(draft, "target.request_id", REQUEST_ID, review);
    let session_id = decode_own_header(draft, "target.session_id", SESSION_ID, review);
    let session_token = decode_session_token(draft, review);
    let keep_headers = decode_keep_headers(draft, review);
    let tls = decode_tls(draft, review);
    check_cost(draft, review);
    let (server, preset) = server::decode(draft, place.as_ref(), models.as_deref(), review);
    let gpu = draft
        .text("target.hardware.gpu")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    let on_this_machine = server.is_some() || place.as_ref().is_some_and(is_on_this_machine);
    let mut metrics = telemetry::decode_metrics(draft, review);
    if metrics.is_empty() {
        metrics.extend(preset.map(MetricsSource::page));
    }
    Some(Target {
        api,
        location: place.clone()?,
        models: models?,
        api_key: decode_aws(draft)
            .map(ApiKey::Aws)
            .or_else(|| decode_api_key(draft)),
        headers,
        request_id,
        session_id,
        session_token,
        keep_headers,
        timeouts: decode_timeouts(draft.get("target.timeouts")?)?,
        tls: tls?,
        pool: match draft.text("target.http.pool").as_deref() {
            Some("per-request") => Pool::PerRequest,
            Some("on-demand") => Pool::OnDemand,
            _ => Pool::KeepAlive,
        },
        version: draft.read("target.http.version", version)?,
        websocket,
        compression: match draft.text("target.http.compression")?.as_ref() {
            "gzip" => Compression::Gzip,
            "zstd" => Compression::Zstd,
            "any" => Compression::Any,
            _ => Compression::None,
        },
        gpu: gpu_of_target(gpu, draft.root, on_this_machine, review),
        gpus: telemetry::decode_gpus(draft, &metrics, review),
        cost: draft.read("target.cost", cost),
        ready: decode_awaited(
            draft,
            place.as_ref(),
            metrics.iter().any(MetricsSource::is_page),
            review,
        ),
        server,
        metrics,
        hardware: decode_hardware(draft),
        scenario_secrets: Arc::default(),
    })
}

/// Whether requests stay on this machine.
fn is_on_this_machine(place: &TargetLocation) -> bool {
    let is_local = |url: &str| {
        let (_, host, _) = server::split_origin(url);
        is_loopback(host)
    };
    let endpoints = place.endpoints();
    endpoints.is_none_or(|endpoints| endpoints.urls().all(is_local))
}

static API_KEY: Block = Block {
    doc: "A command that prints the key: before the first request, and again during the run. \
    After HTTP 401 it is called at once.",
    short: None,
    fields: &[
        field(
            "command",
            Kind::Leaf(&COMMAND),
            "The program and its arguments: text that is split like in a shell, or a list. No \
            shell runs it. Its output is the key, in one line; it may take 1 minute.",
        )
        .required()
        .example("gcloud auth print-access-token"),
        field(
            "every",
            Kind::Leaf(&SPAN),
            "Time from one call to the next.",
        )
        .default("30m")
        .example("10m"),
    ],
};

/// The key, or the command that prints it.
fn decode_api_key(draft: &Draft<'_>) -> Option<ApiKey> {
    if let Some(key) = draft.string("target.api_key") {
        return (!key.is_empty()).then(|| ApiKey::Fixed(Secret::new(key)));
    }
    Some(ApiKey::Command(KeyCommand {
        argv: draft.get("target.api_key.command").and_then(command)?,
        every: draft.read("target.api_key.every", duration)?,
        keys: ObtainedKeys::default(),
    }))
}

static AWS: Block = Block {
    doc: "Signatures of AWS (SigV4). The keys come from `AWS_ACCESS_KEY_ID`, \
    `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or from the shared credentials and config \
    files. They are never printed and never stored.",
    short: None,
    fields: &[
        field(
            "service",
            Kind::Leaf(&AWS_NAME),
            "The name of the service in signatures.",
        )
        .required()
        .example("bedrock"),
        field(
            "region",
            Kind::Leaf(&AWS_NAME),
            "The region in signatures; by default that of the host name in `url`, else \
            `AWS_REGION`, `AWS_DEFAULT_REGION`, or the region of the profile.",
        )
        .example("us-east-1"),
        field(
            "profile",
            Kind::Text,
            "The profile of the shared files, also if the environment has keys; by default \
            `AWS_PROFILE`, or `default`.",
        )
        .example("dev"),
    ],
};

static AWS_NAME: Leaf = Leaf {
    expected: "lowercase letters, digits and hyphens",
    sweepable: false,
    schema: || serde_json::json!({ "type": "string", "pattern": "^[a-z0-9-]+$" }),
    check: |node, review| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !node
            .text()
            .is_some_and(|text| !text.is_empty() && text.bytes().all(fits))
        {
            expect(node, AWS_NAME.expected, "", review);
        }
    },
};

fn decode_aws(draft: &Draft<'_>) -> Option<AwsSigning> {
    let service = draft.string("target.aws.service")?;
    let of_host = || region_of_host(&draft.string("target.url")?);
    Some(AwsSigning {
        service,
        region: draft.string("target.aws.region").or_else(of_host),
        profile: draft
            .string("target.aws.profile")
            .filter(|name| !name.is_empty()),
        keys: ObtainedKeys::default(),
    })
}

/// The region in the name of an AWS host: `us-east-1` of `bedrock-runtime.us-east-1.amazonaws.com`.
fn region_of_host(url: &str) -> Option<String> {
    let host = UrlParts::of(url).host;
    let name = host
        .strip_suffix(".amazonaws.com")
        .or_else(|| host.strip_suffix(".amazonaws.com.cn"))
        .or_else(|| host.strip_suffix(".api.aws"))?;
    let region = name.rsplit('.').find(|label| is_region(label))?;
    Some(region.to_owned())
}

/// Whether a text has the form of a region: `us-gov-west-1`.
fn is_region(text: &str) -> bool {
    let mut parts = text.rsplit('-');
    let number = parts.next().is_some_and(|last| last.parse::<u8>().is_ok());
    let words: Vec<&str> = parts.collect();
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    number && words.len() >= 2 && words.iter().all(is_word)
}

/// Reports headers that a signature sets itself.
fn check_signed_headers(draft: &Draft<'_>, review: &mut Review) {
    let Some(aws) = draft.entry("target.aws") else {
        return;
    };
    let is_own = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "authorization" || name.starts_with("x-amz-")
    };
    if let Some(node) = draft.get("target.url")
        && node
            .text()
            .is_some_and(|url| UrlParts::of(&url).user.is_some())
    {
        let mistake = Mistake::new(
            node.at,
            "the header `Authorization` has two values",
            "user and password are sent in it",
        );
        review.push(
            mistake
                .also(aws.key_at, "a signature sets this header")
                .help("Remove one of them."),
        );
    }
    if let Some(node) = draft.get("target.request_id")
        && node.string().is_some_and(|name| is_own(&name))
    {
        let mistake = Mistake::new(
            node.at,
            "a header of AWS cannot contain the id",
            "would have to be signed",
        );
        review.push(
            mistake
                .also(aws.key_at, "requests are signed")
                .help("For example `request_id: X-Request-Id`."),
        );
    }
    for entry in draft.entries_at("target.headers") {
        if is_own(&entry.key) {
            let mistake = Mistake::new(
                entry.key_at,
                format!("the header `{}` has two values", entry.key),
                "the same text for all requests",
            );
            review.push(
                mistake
                    .also(aws.key_at, "a signature sets this header")
                    .help("Remove one of them."),
            );
        }
    }
}

static AWAITED: Block = Block {
    doc: "When a server that the run does not start is ready: all conditions are \
    checked once a second.",
    short: Some("url"),
    fields: &[
        field(
            "url",
            Kind::Leaf(&READY_URLS),
            "A GET of this URL, or of this path of each server \
        of the target, returns a status from 200 to 299; several URLs are all required.",
        )
        .example("[/health, \"http://worker-2:8000/health\"]"),
        field(
            "models",
            Kind::List(&Kind::Text),
            "Models that `/v1/models` lists.",
        )
        .example("[llama-70b]"),
        field(
            "metrics",
            Kind::Whole(1, 10_000),
            "This many addresses of the hosts of \
        `target.metrics` answer with the page of a worker, for example the pods behind one DNS \
        name. A page that has only the series of a DCGM exporter does not count.",
        )
        .example("8"),
        field(
            "timeout",
            Kind::Leaf(&SPAN),
            "Maximum time; then the run ends and names what is \
        not ready.",
        )
        .default("10m")
        .example("30m"),
    ],
};

static READY_URLS: Leaf = Leaf {
    expected: "a URL, a path, or a list of them",
    sweepable: false,
    schema: || {
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" },
        "minItems": 1 }] })
    },
    check: |node, review| {
        let is_url = |item: &Node| {
            item.text().is_some_and(|text| {
                text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")
            })
        };
        if let Some(wrong) = node.one_or_more().iter().find(|item| !is_url(item)) {
            expect(wrong, READY_URLS.expected, "", review);
        }
    },
};

/// The conditions of `target.ready`. Reports a block without any, and pages without `target.metrics`.
fn decode_awaited(
    draft: &Draft<'_>,
    place: Option<&TargetLocation>,
    has_metrics: bool,
    review: &mut Review,
) -> Option<Awaited> {
    let entry = draft.entry("target.ready")?;
    let endpoints = place?.endpoints()?;
    let complete = |text: String| {
        if !text.starts_with('/') {
            return vec![text];
        }
        let origins = endpoints.urls().map(|url| server::split_origin(url).0);
        origins.map(|origin| format!("{origin}{text}")).collect()
    };
    let urls = draft
        .get("target.ready.url")
        .map_or(&[][..], Node::one_or_more);
    let urls = urls.iter().filter_map(Node::string).flat_map(complete);
    let models = draft.items_at("target.ready.models").iter();
    let awaited = Awaited {
        urls: urls.collect(),
        models: models.filter_map(Node::string).collect(),
        pages: draft.count("target.ready.metrics"),
        timeout: draft.read("target.ready.timeout", duration)?,
    };
    if awaited.urls.is_empty() && awaited.models.is_empty() && awaited.pages.is_none() {
        let mistake = Mistake::new(
            entry.key_at,
            "`ready` has no condition",
            "needs `url`, `models` or `metrics`",
        );
        review.push(mistake.help("For example `ready: /health`."));
    }
    if let Some(pages) = draft.entry("target.ready.metrics").filter(|_| !has_metrics) {
        let mistake = Mistake::new(
            pages.key_at,
            "there is no metrics page to wait for",
            "needs `target.metrics`",
        );
        review.push(mistake.help("Set `target.metrics` to the page of the server."));
    }
    Some(awaited)
}

static COST: Leaf = Leaf {
    expected: "a price such as `2.50 USD/h per gpu`, or `20 USD/h` for the whole target",
    sweepable: true,
    schema: || json!({ "type": "string", "pattern": "^\\s*[0-9.]+\\s*[A-Za-z$€£¥]+\\s*/\\s*h(\\s+per\\s+gpu)?\\s*$" }),
    check: |node, review| {
        if cost(node).is_none() {
            expect(node, COST.expected, "", review);
        }
    },
};

/// Parses `2.50 USD/h per gpu`.
fn cost(node: &Node) -> Option<Cost> {
    let text = node.text()?;
    let mut words = text.split_whitespace();
    let (price, unit) = (words.next()?, words.next()?);
    let rest: Vec<&str> = words.collect();
    let per_gpu = match rest.as_slice() {
        [] => false,
        ["per", "gpu" | "GPU"] => true,
        _ => return None,
    };
    let currency = unit.strip_suffix("/h")?;
    let per_hour: f64 = price.parse().ok()?;
    let is_valid = per_hour > 0.0 && per_hour.is_finite() && !currency.is_empty();
    is_valid.then(|| Cost {
        per_hour,
        per_gpu,
        currency: currency.to_owned(),
    })
}

/// Reports a price per GPU for an unknown number of GPUs.
fn check_cost(draft: &Draft<'_>, review: &mut Review) {
    let Some(entry) = draft.entry("target.cost") else {
        return;
    };
    let per_gpu = cost(&entry.value).is_some_and(|cost| cost.per_gpu);
    if per_gpu && draft.get("target.gpus").is_none() {
        let mistake = Mistake::new(
            entry.value.at,
            "a price per GPU, but the number of GPUs is not known",
            "needs `target.gpus`",
        );
        review.push(mistake.help("Set `target.gpus` to the number of GPUs behind the target."));
    }
}

fn decode_place(draft: &Draft<'_>, api: Api, review: &mut Review) -> Option<TargetLocation> {
    let entry = draft.entry("target.url")?;
    let url = entry.value.text();
    if let Some(path) = url.as_deref().and_then(simulator_path) {
        check_balance(draft, false, review);
        let path = (!path.is_empty()).then(|| path.to_owned());
        let server = draft.get("target.simulator").and_then(simulator::decode)?;
        return Some(TargetLocation::Simulator {
            server: Box::new(server),
            path,
        });
    }
    if draft.text("target.api").as_deref() == Some(SIMULATOR) {
        let mistake = Mistake::new(
            entry.value.at,
            "`api: simulator` is the built-in server",
            "this URL is not used",
        );
        review.push(mistake.help("Remove `url`, or write the protocol: `api: openai-chat`."));
        return None;
    }
    let nodes = entry.value.one_or_more();
    check_balance(draft, nodes.len() > 1, review);
    let urls: Vec<Option<String>> = nodes
        .iter()
        .map(|node| decode_url(draft, node, api, review))
        .collect();
    let urls: Vec<String> = urls.into_iter().collect::<Option<_>>()?;
    let urls: Vec<String> = urls.into_iter().map(websocket::http_url).collect();
    let urls = websocket::with_model(draft, api, urls);
    check_urls_differ(nodes, &urls, review);
    if let Some(server) = draft.entry("target.server").filter(|_| nodes.len() > 1) {
        let mistake = Mistake::new(
            entry.value.at,
            "a managed server has one URL",
            "several URLs",
        );
        let mistake = mistake.also(server.key_at, "this server is started by the run");
        review.push(
            mistake.help("Write one URL; or start the servers yourself and remove `server`."),
        );
    }
    let balance = draft.text("target.balance");
    let is_set = |known: &Balance| balance.as_deref() == Some(known.name());
    let balance = Balance::ALL.into_iter().find(is_set).unwrap_or_default();
    Endpoints::new(urls, balance).map(TargetLocation::Urls)
}

/// Reports a balance of one server.
fn check_balance(draft: &Draft<'_>, is_several: bool, review: &mut Review) {
    let balance = draft.written("target.balance");
    let Some(balance) = balance.filter(|_| !is_several && !draft.is_swept("target.url")) else {
        return;
    };
    let mistake = Mistake::new(
        balance.key_at,
        "`balance` needs several URLs",
        "has no effect",
    );
    let mistake = match draft.entry("target.url") {
        Some(url) => mistake.also(url.value.at, "all requests are sent to this server"),
        None => mistake,
    };
    review.push(
        mistake.help("Remove it, or list the servers: `url: [http://a:8000, http://b:8000]`."),
    );
}

/// Reports a URL that is listed twice, with or without credentials.
fn check_urls_differ(nodes: &[Node], urls: &[String], review: &mut Review) {
    let keys: Vec<String> = urls.iter().map(|url| comparable_url(url)).collect();
    for (index, node) in nodes.iter().enumerate() {
        let first = keys.iter().position(|other| Some(other) == keys.get(index));
        let Some(first) = first
            .filter(|first| *first < index)
            .and_then(|first| nodes.get(first))
        else {
            continue;
        };
        let mistake = Mistake::new(node.at, "the same URL twice", "the second one");
        review.push(
            mistake
                .also(first.at, "first here")
                .help("Remove one of them."),
        );
    }
}

/// The complete URL of one server.
fn decode_url(draft: &Draft<'_>, node: &Node, api: Api, review: &mut Review) -> Option<String> {
    let (url, at) = (node.string()?, node.at);
    let url = url.as_str();
    if simulator_path(url).is_some() {
        let mistake = Mistake::new(
            at,
            "`simulator` cannot be one of several URLs",
            "the built-in server is the only server of its target",
        );
        review.push(mistake.help("Start servers with `llmscen simulate`, and list their URLs."));
        return None;
    }
    let stream = draft.flag("request.stream").unwrap_or(true);
    let (usual, (_, path)) = (api.path(stream), split_url(url));
    // The run that stored the plan has checked it.
    if review.is_unset(url) {
        return Some(url.to_owned());
    }
    if let Some(error) = url_error(url) {
        let mistake = Mistake::new(at, "this is not a URL", error);
        review.push(mistake.help(format!(
            "Write the whole URL, for example http://127.0.0.1:8000{usual}."
        )));
        return None;
    }
    if let Some(complete_url) =
        url::completed(url, api, stream).filter(|_| url::is_fixed(api, draft.root))
    {
        review.note(at, url::note(&complete_url));
        return Some(complete_url);
    }
    if (path.is_empty() || path == "/" || path.trim_end_matches('/') == "/v1") && !usual.is_empty()
    {
        review.warn(
            at,
            format!(
                "requests are posted to this URL unchanged; the usual path of \
        `api: {api}` is {usual}"
            ),
        );
    }
    Some(url.to_owned())
}

fn decode_models(draft: &Draft<'_>, review: &mut Review) -> Option<Vec<ModelShare>> {
    match draft.get("target.model") {
        Some(node) => models(node),
        None if draft
            .text("target.url")
            .is_some_and(|url| simulator_path(&url).is_some()) =>
        {
            Some(vec![ModelShare {
                name: "sim".to_owned(),
                weight: 1.0,
            }])
        }
        None => {
            let mistake = Mistake::new(
                draft.key_span("target"),
                "`target` needs `model`",
                "`model` is missing",
            );
            review.push(mistake.help("The model name in requests, for example `model: qwen2.5`."));
            None
        }
    }
}

/// What a header that llmscen sets contains, for messages: its value, and an example.
struct OwnHeader {
    value: &'static str,
    example: &'static str,
}

const REQUEST_ID: OwnHeader = OwnHeader {
    value: "an id per request",
    example: "For example `request_id: X-Request-Id`.",
};
const SESSION_ID: OwnHeader = OwnHeader {
    value: "an id per session",
    example: "For example `session_id: X-Session-ID`.",
};
const TOKEN: OwnHeader = OwnHeader {
    value: "a token per session",
    example: "For example `session_token: { from: x-session-token, to: x-session-token }`.",
};

/// The name of a header that llmscen sets, which must not collide with another.
fn decode_own_header(
    draft: &Draft<'_>,
    path: &str,
    own: OwnHeader,
    review: &mut Review,
) -> Option<String> {
    let node = draft.get(path)?;
    let name = node.string()?;
    check_header_name(&name, node.at, review);
    if TAKEN.contains(&name.to_ascii_lowercase().as_str()) {
        let label = format!(
            "cannot contain {}",
            own.value.trim_end_matches(" per request")
        );
        let mistake = Mistake::new(
            node.at,
            format!("the header `{name}` has a fixed meaning"),
            label,
        );
        review.push(mistake.help(own.example));
    }
    let entries = draft.entries_at("target.headers").iter();
    let of_mix = draft.items_at("mix").iter();
    let mut entries = entries.chain(of_mix.flat_map(|item| item.entries_at("headers")));
    let other = entries.find(|entry| entry.key.eq_ignore_ascii_case(&name));
    let ids = [
        "target.request_id",
        "target.session_id",
        "target.session_token.to",
    ];
    let same = ids.iter().filter(|other| **other != path).find(|other| {
        draft
            .text(other)
            .is_some_and(|other| other.eq_ignore_ascii_case(&name))
    });
    let first = other
        .map(|entry| (entry.key_at, "the same text for all requests"))
        .or(same.map(|other| (draft.key_span(other), "another value")));
    if let Some((at, label)) = first {
        let mistake = Mistake::new(
            node.at,
            format!("the header `{name}` has two values"),
            own.value,
        );
        review.push(mistake.also(at, label).help("Remove one of them."));
    }
    Some(name)
}

fn decode_session_token(draft: &Draft<'_>, review: &mut Review) -> Option<SessionToken> {
    let from = draft.get("target.session_token.from")?;
    let name = from.string()?;
    check_header_name(&name, from.at, review);
    Some(SessionToken {
        from: name,
        to: decode_own_header(draft, "target.session_token.to", TOKEN, review)?,
    })
}

/// The names of kept response headers in lower case. Reports those that may contain credentials.
fn decode_keep_headers(draft: &Draft<'_>, review: &mut Review) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for node in draft.items_at("target.keep_headers") {
        let Some(name) = node.string().map(|name| name.to_ascii_lowercase()) else {
            continue;
        };
        check_header_name(&name, node.at, review);
        let is_token = draft
            .text("target.session_token.from")
            .is_some_and(|token| token.eq_ignore_ascii_case(&name));
        if is_token || is_secret_name(&name) || name.contains("authenticat") {
            let mistake = Mistake::new(
                node.at,
                format!("the header `{name}` cannot be kept"),
                "may contain credentials",
            );
            review.push(mistake.help(
                "Kept headers are stored and shown in reports. Keep a header \
            that names the replica, such as `x-inference-pod`.",
            ));
        }
        if names.contains(&name) {
            review.push(Mistake::new(
                node.at,
                format!("`{name}` is listed twice"),
                "the second one",
            ));
        }
        names.push(name);
    }
    names
}

fn decode_tls(draft: &Draft<'_>, review: &mut Review) -> Option<Tls> {
    let file = |path: &str| draft.file(path, review);
    let ca = file("target.tls.ca");
    let cert = file("target.tls.cert");
    let key = file("target.tls.key");
    let insecure = draft.flag("target.tls.insecure")?;
    if insecure && !review.sources.stored {
        let at = draft.key_span("target.tls.insecure");
        review.warn(
            at,
            "`tls.insecure: true`: certificates of the target are not \
        verified; any server can pose as it",
        );
    }
    Some(Tls {
        ca,
        cert,
        key,
        insecure,
    })
}

fn decode_timeouts(node: &Node) -> Option<Timeouts> {
    let span = |path| node.read(path, duration);
    Some(Timeouts {
        connect: span("connect")?,
        read: span("read")?,
        event: span("event"),
        total: span("total")?,
    })
}

const MODEL_SIZE: &[Rule] = &[
    requires(&["target.hardware.parameters"]),
    requires(&["target.hardware.weight_bytes"]),
];

pub(crate) static HARDWARE: Block = Block {
    doc: "The name of the GPUs, for conditions; model size and peak hardware throughput, used to \
    compute `mfu` and `mbu` (with `target.gpus`).",
    short: None,
    fields: &[
        field(
            "gpu",
            Kind::Text,
            "Name of the GPUs, for conditions such as `when: { hardware.gpu: \"MI3*\" \
        }`. By default the name of the GPUs of this machine, if the server runs on it.",
        )
        .example("\"${GPU:-none}\""),
        field(
            "parameters",
            Kind::Leaf(&PARAMETERS),
            "Active parameters per token; of a mixture \
        of experts, without inactive ones.",
        )
        .required_unless("gpu")
        .example("8B")
        .rules(&[requires(&["target.gpus"]).help(
            "`mfu` and `mbu` are shares of what all GPUs \
            can do: set `target.gpus` to their number.",
        )]),
        field(
            "weight_bytes",
            Kind::Leaf(&SIZE),
            "Bytes of weights per decoding step: parameters \
        times bytes per parameter.",
        )
        .required_unless("gpu")
        .example("16 GB"),
        field(
            "kv_bytes_per_token",
            Kind::Leaf(&SIZE),
            "Bytes of KV cache per context token: 2 × \
        layers × KV heads × head size × bytes per value. Not part of `mbu` by default.",
        )
        .example("128 KiB"),
        field(
            "peak_flops",
            Kind::Leaf(&FLOPS),
            "Peak operations per second of one GPU, dense, in \
        the dtype of the model; for `mfu`.",
        )
        .example("989 TFLOPS")
        .rules(MODEL_SIZE),
        field(
            "peak_bandwidth",
            Kind::Leaf(&BANDWIDTH),
            "Peak memory bandwidth of one GPU, in \
        bytes per second; for `mbu`.",
        )
        .example("3.35 TB/s")
        .rules(MODEL_SIZE),
    ],
};

fn decode_hardware(draft: &Draft<'_>) -> Option<Hardware> {
    let node = draft.get("target.hardware")?;
    Some(Hardware {
        parameters: node.read("parameters", parameters)?,
        weight_bytes: node.read("weight_bytes", size)?,
        kv_bytes_per_token: node.read("kv_bytes_per_token", size).unwrap_or(0.0),
        peak_flops: node.read("peak_flops", flops),
        peak_bandwidth: node.read("peak_bandwidth", bandwidth),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_all_protocols() {
        let Kind::Choice(words, _) = API else {
            panic!("not a choice")
        };
        assert!(
            words
                .iter()
                .map(|(word, _)| *word)
                .eq(Api::ALL.map(Api::name).into_iter().chain([SIMULATOR]))
        );
    }

    #[test]
    fn the_region_is_in_the_name_of_an_aws_host() {
        for (host, region) in [
            ("bedrock-runtime.us-east-1.amazonaws.com", Some("us-east-1")),
            (
                "runtime.sagemaker.us-gov-west-1.amazonaws.com:443",
                Some("us-gov-west-1"),
            ),
            (
                "bedrock-runtime.cn-north-1.amazonaws.com.cn",
                Some("cn-north-1"),
            ),
            ("bedrock-mantle.eu-west-2.api.aws", Some("eu-west-2")),
            (
                "vpce-0a1b-2c3d.bedrock-runtime.us-west-2.vpce.amazonaws.com",
                Some("us-west-2"),
            ),
            ("iam.amazonaws.com", None),
            ("us-east-1.example.com", None),
        ] {
            let url = format!("https://{host}/v1/chat/completions");
            assert_eq!(region_of_host(&url).as_deref(), region, "{host}");
        }
    }

    #[test]
    fn simulator_may_have_a_path() {
        assert_eq!(
            (
                simulator_path("simulator"),
                simulator_path("simulator/v1/messages")
            ),
            (Some(""), Some("/v1/messages"))
        );
        assert_eq!(
            (
                simulator_path("simulators"),
                simulator_path("http://simulator/v1")
            ),
            (None, None)
        );
    }
}
