//! `target.simulator`: the built-in server.

use crate::schema_table::{Block, Default, Kind, field};
use crate::secrets::from_env;
use crate::tree::{Data, Node};
use crate::values::number::{SHARE, share};
use crate::values::target::{SIMULATOR as WORD, simulator_path};
use crate::values::time::{DURATION, duration};
use llmscen_core::api::Api;
use llmscen_core::simulator::{AnswerKind, Answers, Faults, Simulator};
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

const MOST: i64 = u32::MAX as i64;

pub(crate) static SIMULATOR: Block = Block {
    doc: "The built-in server, a batching engine. A step takes alpha + beta × prefill tokens + \
    gamma × decoding sequences + delta × context tokens.",
    short: None,
    fields: &[
        field(
            "admission",
            Kind::Leaf(&DURATION),
            "Time from the arrival of a request to its place in the queue.",
        )
        .default("0s")
        .example("1ms"),
        field(
            "alpha",
            Kind::Leaf(&DURATION),
            "Step time that does not depend on the batch.",
        )
        .default("4ms")
        .example("2ms"),
        field(
            "beta",
            Kind::Leaf(&DURATION),
            "Added per prefill token of the step.",
        )
        .default("20us")
        .example("10us"),
        field(
            "gamma",
            Kind::Leaf(&DURATION),
            "Added per decoding sequence of the step.",
        )
        .default("50us")
        .example("20us"),
        field(
            "delta",
            Kind::Leaf(&DURATION),
            "Added per context token of the decoding sequences.",
        )
        .default("10ns")
        .example("5ns"),
        field(
            "jitter",
            Kind::Number(0.0, 10.0),
            "Relative standard deviation of the step time.",
        )
        .default("0")
        .example("0.1"),
        field(
            "max_batched_tokens",
            Kind::Whole(1, MOST),
            "Maximum number of tokens in one step.",
        )
        .default("2048")
        .example("8192"),
        field(
            "max_num_seqs",
            Kind::Whole(1, MOST),
            "Maximum number of sequences that run at once.",
        )
        .default("256")
        .example("64"),
        field(
            "kv_blocks",
            Kind::Whole(1, MOST),
            "Total number of KV cache blocks.",
        )
        .default("8192")
        .example("4096"),
        field("block_tokens", Kind::Whole(1, MOST), "Tokens per KV block.")
            .default("16")
            .example("32"),
        field(
            "default_output_tokens",
            Kind::Whole(1, MOST),
            "Output tokens where the request sets no `max_tokens`.",
        )
        .default("64")
        .example("128"),
        field(
            "replicas",
            Kind::Whole(1, 1000),
            "Number of engines behind the address, 1 if it is not set. Requests go to \
            them in turn; one with the header `x-session-token` of an earlier \
            response goes to the engine of that response. Responses of several \
            engines have `x-inference-pod` and `x-session-token`.",
        )
        .example("2"),
        field(
            "faults",
            Kind::Block(&FAULTS),
            "Simulated faults, drawn from the seed.",
        )
        .defaults(Default::Empty)
        .example("{ error: 1% }"),
        field(
            "prefix_cache",
            Kind::Bool,
            "Blocks that an earlier prompt started with need no prefill.",
        )
        .default("false")
        .example("true"),
        field(
            "answers",
            Kind::Block(&ANSWERS),
            "The text of the answers, to test `request.expect`; random words up to the limit of \
            the request by default.",
        )
        .example("{ kind: echo, wrong: 5% }"),
    ],
};

static ANSWERS: Block = Block {
    doc: "The text of the answers. An answer may end before the limit of the request.",
    short: None,
    fields: &[
        field(
            "kind",
            Kind::Choice(
                &[
                    ("words", "Random words up to the limit"),
                    ("echo", "The text of the last message, a token per word"),
                    (
                        "json",
                        "A JSON object whose `answer` is the text of the last message",
                    ),
                ],
                &[],
            ),
            "The text of a right answer.",
        )
        .default("words")
        .example("echo"),
        field(
            "wrong",
            Kind::Leaf(&SHARE),
            "Share of wrong answers, drawn from the seed: they repeat one word, and \
            are one token shorter.",
        )
        .default("0")
        .example("5%"),
    ],
};

static FAULTS: Block = Block {
    doc: "Faults, each with the share of affected requests.",
    short: None,
    fields: &[
        field(
            "error",
            Kind::Leaf(&SHARE),
            "Answer with `error_status` and a JSON error.",
        )
        .default("0")
        .example("1%"),
        field(
            "error_status",
            Kind::Whole(400, 599),
            "The status of `error`.",
        )
        .default("500")
        .example("503"),
        field(
            "reset",
            Kind::Leaf(&SHARE),
            "Reset the connection in the middle of the stream.",
        )
        .default("0")
        .example("1%"),
        field(
            "stall",
            Kind::Leaf(&SHARE),
            "Send nothing for `stall_for` in the middle of the stream.",
        )
        .default("0")
        .example("1%"),
        field("stall_for", Kind::Leaf(&DURATION), "Length of a stall.")
            .default("5s")
            .example("2s"),
        field(
            "truncate",
            Kind::Leaf(&SHARE),
            "End the body early, without finish reason and without `[DONE]`.",
        )
        .default("0")
        .example("1%"),
        field(
            "stream_error",
            Kind::Leaf(&SHARE),
            "An error event with HTTP 200 in the middle of the stream.",
        )
        .default("0")
        .example("1%"),
        field(
            "slow_headers",
            Kind::Leaf(&DURATION),
            "Delay of the status line and headers.",
        )
        .default("0s")
        .example("100ms"),
        field(
            "split",
            Kind::Whole(0, MOST),
            "Split each write after this many bytes, 0 for never.",
        )
        .default("0")
        .example("7"),
        field(
            "coalesce",
            Kind::Whole(1, MOST),
            "Number of writes that are sent together, 1 for none.",
        )
        .default("1")
        .example("4"),
        field(
            "tokens_per_chunk",
            Kind::Whole(1, MOST),
            "Tokens per event.",
        )
        .default("1")
        .example("2"),
        field(
            "role_chunk",
            Kind::Bool,
            "Send a first chunk with only the role.",
        )
        .default("true")
        .example("false"),
        field(
            "no_usage",
            Kind::Bool,
            "Never send usage, even if requested.",
        )
        .default("false")
        .example("true"),
        field(
            "reasoning_tokens",
            Kind::Whole(0, MOST),
            "Tokens of reasoning text before the content.",
        )
        .default("0")
        .example("32"),
        field(
            "comment_every",
            Kind::Whole(0, MOST),
            "A keep-alive comment before every n-th event, 0 for never.",
        )
        .default("0")
        .example("10"),
    ],
};

/// `api: simulator` is short for `url: simulator`.
pub(crate) fn expand_api(root: &mut Node) {
    let Some(api) = root
        .entry_at("target.api")
        .filter(|api| api.value.text().as_deref() == Some(WORD))
        .cloned()
    else {
        return;
    };
    let url = root.get("target.url").and_then(Node::text);
    if url
        .as_deref()
        .is_none_or(|url| simulator_path(url).is_some())
    {
        let protocol = Node::new(api.value.at, Data::Text(Api::OpenaiChat.name().to_owned()));
        if url.is_none() {
            root.set("target.url", api.key_at, api.value);
        }
        root.set("target.api", api.key_at, protocol);
    }
}

/// Adds the block and the model of the built-in server. If a variable selected another server, as in
/// `${LLM_URL:-simulator}`, the block is removed.
pub(crate) fn add_block(root: &mut Node, swept: &BTreeSet<String>) {
    let url = root
        .get("target.url")
        .filter(|_| !swept.contains("target.url"));
    let always = url
        .and_then(Node::text)
        .is_some_and(|url| simulator_path(&url).is_some());
    if !always && url.is_some_and(from_env) {
        root.set("target.simulator", root.at, Node::new(root.at, Data::Null));
    }
    let at = root.at.before();
    if (always || swept.contains("target.url")) && root.get("target.simulator").is_none() {
        root.set("target.simulator", at, Node::new(at, Data::Map(Vec::new())));
    }
    if always && root.get("target.model").is_none() && !swept.contains("target.model") {
        root.set(
            "target.model",
            at,
            Node::new(at, Data::Text("sim".to_owned())),
        );
    }
}

pub(crate) fn decode(node: &Node) -> Option<Simulator> {
    let span = |path| span(node, path);
    let count = |path| count(node, path);
    Some(Simulator {
        admission: span("admission")?,
        alpha: span("alpha")?,
        beta: span("beta")?,
        gamma: span("gamma")?,
        delta: span("delta")?,
        jitter: node.get("jitter")?.number()?,
        max_batched_tokens: count("max_batched_tokens")?,
        max_num_seqs: count("max_num_seqs")?,
        kv_blocks: count("kv_blocks")?,
        block_tokens: count("block_tokens")?,
        default_output_tokens: count("default_output_tokens")?,
        replicas: count("replicas").unwrap_or(1),
        faults: decode_faults(node.get("faults")?)?,
        prefix_cache: node.read("prefix_cache", Node::flag)?,
        answers: node.get("answers").and_then(decode_answers),
    })
}

/// None where only the matrix sets a key, without defaults for the others.
fn decode_answers(node: &Node) -> Option<Answers> {
    Some(Answers {
        kind: match node.get("kind")?.text()?.as_ref() {
            "echo" => AnswerKind::Echo,
            "json" => AnswerKind::Json,
            _ => AnswerKind::Words,
        },
        wrong: node.read("wrong", share)?,
    })
}

fn decode_faults(node: &Node) -> Option<Faults> {
    let span = |path| span(node, path);
    let count = |path| count(node, path);
    let part = |path| node.read(path, share);
    Some(Faults {
        error: part("error")?,
        error_status: u16::try_from(count("error_status")?).ok()?,
        reset: part("reset")?,
        stall: part("stall")?,
        stall_for: span("stall_for")?,
        truncate: part("truncate")?,
        stream_error: part("stream_error")?,
        slow_headers: span("slow_headers")?,
        split: count("split")?,
        coalesce: count("coalesce")?,
        tokens_per_chunk: count("tokens_per_chunk")?,
        role_chunk: node.read("role_chunk", Node::flag)?,
        no_usage: node.read("no_usage", Node::flag)?,
        reasoning_tokens: count("reasoning_tokens")?,
        comment_every: count("comment_every")?,
    })
}

fn span(node: &Node, path: &str) -> Option<Nanos> {
    node.read(path, duration)
}

fn count(node: &Node, path: &str) -> Option<u32> {
    u32::try_from(node.get(path)?.integer()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::fill;
    use crate::tree::{Data, Span};

    #[test]
    fn table_defaults_equal_model_defaults() {
        let at = Span::default();
        let mut node = Node::new(at, Data::Map(Vec::new()));
        fill(&mut node, &SIMULATOR, &|_| false);
        assert_eq!(decode(&node), Some(Simulator::default()));
    }
}
