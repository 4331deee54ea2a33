//! `request.expect`: what answers are checked for.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::{Block, Kind, Leaf, conflicts_with, field};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Node};
use crate::values::number::percent;
use crate::values::{expect, expect_some};
use llmscen_core::expect::{Expect, ToolCall, Truth};
use llmscen_requests::answers::{LANGUAGES, MAX_REGEX, compile_regex, compile_schema};
use serde_json::json;

pub(crate) static EXPECT: Block = Block {
    doc: "Checks of the answers, without their reasoning; of the first choice, if there are \
          several. They are made after the request has ended. `json_schema`, `regex`, \
          `tool_call`, `repetition` and `language` count towards `valid_rate`, a truth in \
          `equals`, `contains` and `tool_call` towards `match_rate`, `length` towards \
          `length_exact`.",
    short: None,
    fields: &[
        field(
            "json_schema",
            Kind::Template,
            "JSON Schema that the answer is valid against: a JSON or YAML file, or \
            the schema itself. The whole answer must be JSON. References to other \
            documents are not followed.",
        )
        .example("{ type: object, required: [name] }"),
        field(
            "regex",
            Kind::Leaf(&REGEX),
            "Regular expression that matches somewhere in the \
        answer, in the syntax of the Rust crate `regex`.",
        )
        .example("'^\\d+$'"),
        field(
            "equals",
            Kind::Leaf(&TRUTH),
            "Text that the answer equals, apart from white space at both ends: `item.NAME` is a \
            field of the dataset row, which may be a list of accepted texts. Of a conversation, \
            the last answer is compared.",
        )
        .example("item.answer"),
        field(
            "contains",
            Kind::Leaf(&TRUTH),
            "Text that the answer contains; otherwise as \
        `equals`.",
        )
        .example("item.answer"),
        field(
            "tool_call",
            Kind::Leaf(&TOOL),
            "The answer calls tools, each with a name and a JSON object of arguments: `true`, or \
            the name of the first tool, which may be `item.NAME`.",
        )
        .example("item.tool"),
        field(
            "length",
            Kind::Choice(
                &[(
                    "exact",
                    "As many tokens as `max_tokens`, by the server's usage or \
            else by `dataset.tokenizer`",
                )],
                &[],
            ),
            "Number of tokens of the answer, reasoning included.",
        )
        .example("exact")
        .rules(&[conflicts_with(&["request.n"], &["*"])
            .reason("the server counts the tokens of all choices together")
            .beside("several choices")
            .help("Remove one of them.")]),
        field(
            "repetition",
            Kind::Leaf(&BELOW),
            "Limit of the share of sequences of four words that occurred before in the answer \
            (seq-rep-4). An answer of fewer words is not checked.",
        )
        .example("\"< 30%\""),
        field(
            "language",
            Kind::Leaf(&LANGUAGE),
            "Language of the answer. An answer whose language is not certain, such as \
            a short one, is not checked.",
        )
        .example("en"),
        field(
            "keep",
            Kind::Whole(0, 1000),
            "Failed answers to store, per round of a case: their \
        text, secrets redacted, up to 64 KiB.",
        )
        .default("5")
        .example("0"),
    ],
};

const REGEX_EXPECTED: &str = "a regular expression";

static REGEX: Leaf = Leaf {
    expected: REGEX_EXPECTED,
    sweepable: true,
    schema: || json!({ "type": "string", "format": "regex" }),
    check: |node, review| {
        let Some(pattern) = node.text() else {
            return expect(node, REGEX_EXPECTED, "`'^\\d+$'`", review);
        };
        let Err(error) = compile_regex(&pattern) else {
            return;
        };
        let (label, help) = match &error {
            regex::Error::CompiledTooBig(_) => (
                "too large".to_owned(),
                format!(
                    "Its compiled form exceeds {} MiB; use fewer or smaller repetitions.",
                    MAX_REGEX >> 20
                ),
            ),
            error => {
                // The last line has the cause; the lines before repeat the pattern.
                let text = error.to_string();
                let cause = text.lines().last().unwrap_or_default();
                (
                    cause.trim_start_matches("error: ").to_owned(),
                    "The syntax is that of the Rust crate `regex`: no look-around and \
                    no backreferences."
                        .to_owned(),
                )
            }
        };
        review.push(
            Mistake::new(node.at, "this regular expression does not compile", label).help(help),
        );
    },
};

const TRUTH_EXPECTED: &str = "a text, or `item.NAME` for a field of the dataset row";

static TRUTH: Leaf = Leaf {
    expected: TRUTH_EXPECTED,
    sweepable: true,
    schema: || json!({ "type": "string" }),
    check: |node, review| expect_some(truth(node), node, TRUTH_EXPECTED, "`item.answer`", review),
};

/// A text that starts with `item.` names a field.
fn truth(node: &Node) -> Option<Truth> {
    let text = node.text()?;
    let field = text.strip_prefix("item.");
    let is_name = |field: &&str| !field.contains(char::is_whitespace);
    Some(match field.filter(is_name) {
        Some("") => return None,
        Some(field) => Truth::Item(field.to_owned()),
        None if text.trim().is_empty() => return None,
        None => Truth::Text(text.into_owned()),
    })
}

const TOOL_EXPECTED: &str = "`true`, the name of a tool, or `item.NAME`";

static TOOL: Leaf = Leaf {
    expected: TOOL_EXPECTED,
    sweepable: true,
    schema: || json!({ "anyOf": [{ "const": true }, { "type": "string" }] }),
    check: |node, review| expect_some(tool_call(node), node, TOOL_EXPECTED, "`item.tool`", review),
};

fn tool_call(node: &Node) -> Option<ToolCall> {
    match node.data {
        Data::Bool(true) => Some(ToolCall::WellFormed),
        Data::Bool(false) => None,
        _ => truth(node).map(ToolCall::Named),
    }
}

const BELOW_EXPECTED: &str = "an upper limit such as `< 30%`";

static BELOW: Leaf = Leaf {
    expected: BELOW_EXPECTED,
    sweepable: true,
    schema: || json!({ "type": "string", "pattern": r"^\s*<\s*[0-9]*\.?[0-9]+\s*%\s*$" }),
    check: |node, review| expect_some(below(node), node, BELOW_EXPECTED, "", review),
};

fn below(node: &Node) -> Option<f64> {
    let text = node.text()?;
    let share = percent(
        text.trim()
            .strip_prefix('<')?
            .trim()
            .strip_suffix('%')?
            .trim(),
    )?;
    (share > 0.0 && share <= 1.0).then_some(share)
}

const LANGUAGE_EXPECTED: &str = "an ISO 639-1 code such as `en`";

static LANGUAGE: Leaf = Leaf {
    expected: LANGUAGE_EXPECTED,
    sweepable: true,
    schema: || json!({ "type": "string", "pattern": "^[a-z]{2}$" }),
    check: |node, review| {
        let codes = LANGUAGES.iter().map(|(code, _)| *code);
        let Some(code) = node.text() else {
            return expect(node, LANGUAGE_EXPECTED, "", review);
        };
        if codes.clone().any(|known| known == code) {
            return;
        }
        let by_name = LANGUAGES
            .iter()
            .find(|(_, language)| language.eng_name().eq_ignore_ascii_case(&code))
            .map(|(known, _)| *known);
        let label = meant_or(
            by_name.or_else(|| nearest(&code, codes.clone())),
            "not supported",
        );
        let mistake = Mistake::new(
            node.at,
            format!("`{code}` is not a language that can be detected"),
            label,
        );
        review.push(mistake.help(format!("Languages are {}.", list(codes, "and"))));
    },
};

/// None without `request.expect`. Reports a schema that does not compile.
pub(super) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Expect> {
    let node = draft.get("request.expect")?;
    check_length(draft, node, review);
    let schema = node.get("json_schema");
    let json_schema = schema.and_then(|schema| decode_schema(schema, review));
    Some(Expect {
        json_schema,
        regex: node.get("regex").and_then(Node::string),
        equals: node.get("equals").and_then(truth),
        contains: node.get("contains").and_then(truth),
        tool_call: node.get("tool_call").and_then(tool_call),
        exact_length: node.get("length").is_some(),
        repetition: node.get("repetition").and_then(below),
        language: node.get("language").and_then(Node::string),
        keep: u32::try_from(node.get("keep")?.integer()?).ok()?,
    })
}

/// Reports `length` where no request has a length to compare with.
fn check_length(draft: &Draft<'_>, node: &Node, review: &mut Review) {
    let has_length = [
        "request.max_tokens",
        "dataset.lengths",
        "request.extra",
        "request.template",
    ]
    .iter()
    .any(|path| draft.get(path).is_some())
        || draft.text("dataset.kind").as_deref() == Some("trace");
    if let Some(entry) = node.entry("length").filter(|_| !has_length) {
        let mistake = Mistake::new(
            entry.key_at,
            "`length: exact` needs the length that a request asks for",
            "compared with `max_tokens`",
        );
        review.push(mistake.help("Set `request.max_tokens`."));
    }
}

fn decode_schema(node: &Node, review: &mut Review) -> Option<serde_json::Value> {
    let schema = files::mapping(node, &files::SCHEMA, review)?.json();
    if let Err(reason) = compile_schema(&schema) {
        let what = format!("this JSON Schema does not compile: {reason}");
        let help = "A schema must be complete: other documents are not read. Patterns \
        have no look-around.";
        review.push(Mistake::new(node.at, what, "used here").help(help));
    }
    Some(schema)
}
