//! `messages`: lists of OpenAI messages.

use super::file::{FormatOptions, Kind, Parse, Row, RowParser};
use super::turns::{Message, as_one_turn, split};
use llmscen_core::prompt::Prompt;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Rows with `messages`, or bare lists of them. With `dataset.turns` a row is a conversation, otherwise one request that
/// holds everything up to the last message of the user or a tool. `tools` and `tool_choice` go into the request.
pub const KIND: Kind = Kind {
    name: "messages",
    formats: FormatOptions { plain_lines: false, bare_lists: true, list_columns: &["messages", "tools"] },
    parse: Parse::Row(parse),
    words: None,
    expected: "rows such as `{\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}`, or a list of messages a line",
    builtin: Some(include_str!("../data/messages.jsonl")),
    remote: None,
};

/// Fields of a request that a row may bring.
const BESIDE: [&str; 2] = ["tools", "tool_choice"];

fn parse(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let (_, list) = row.list_if(&["messages"])?.ok_or_else(|| row.missing_field(&["messages"]))?;
    prompts(row, &list, parser)
}

/// A row's list of messages as prompts.
pub fn prompts(row: Row<'_>, list: &[Value], parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let max_tokens = row.count_if(&["output_tokens", "max_tokens"])?;
    let system = row.text_if(&["system"])?;
    let beside = BESIDE.iter().filter_map(|key| Some(((*key).to_owned(), row.get(&[key])?.1.clone())));
    let sampling: Map<String, Value> = beside.collect();
    let messages = list.iter().map(Message::new).collect::<Result<Vec<_>, _>>()?;
    let turns = if parser.spec.turns.is_some() { split(messages) } else { as_one_turn(messages).into_iter().collect() };
    if turns.is_empty() {
        return Err("the messages hold none of the user".into());
    }
    let fields = Arc::new(row.into_fields());
    let prompt = |(index, turn): (usize, super::turns::Turn)| {
        let mut prompt = turn.prompt(fields.clone());
        prompt.max_tokens = prompt.max_tokens.or(max_tokens);
        prompt.system = prompt.system.or_else(|| system.clone().filter(|_| index == 0));
        prompt.sampling = sampling.clone();
        prompt
    };
    Ok(turns.into_iter().enumerate().map(prompt).collect())
}

#[cfg(test)]
mod tests {
    use crate::testing::{all, file, opened, spec, talks};
    use llmscen_core::dataset::{DatasetSpec, Source, Turns};
    use serde_json::{Value, json};

    fn talk() -> Value {
        json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q1" },
            { "role": "assistant", "content": "a1" },
            { "role": "user", "content": "q2", "wait": 2, "max_tokens": 9 },
            { "role": "assistant", "content": "a2" },
        ])
    }

    #[test]
    fn without_turns_a_row_is_one_request_up_to_its_last_question() {
        let row = json!({ "messages": talk(), "tools": [{ "type": "function" }], "id": 7 });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let prompt = all(&spec(Source::Messages, &path)).remove(0).remove(0);
        let mut known = talk().as_array().unwrap()[..4].to_vec();
        known[3] = json!({ "role": "user", "content": "q2" });
        assert_eq!((prompt.text.as_str(), prompt.messages.unwrap(), prompt.max_tokens), ("q2", known, Some(9)));
        assert_eq!(Value::Object(prompt.sampling), json!({ "tools": [{ "type": "function" }] }));
        assert_eq!((&prompt.fields["id"], &prompt.fields["messages"]), (&json!(7), &talk()));
    }

    #[test]
    fn with_turns_a_row_is_a_conversation_without_its_replies() {
        let row = json!({ "messages": talk(), "max_tokens": 5, "tools": [{ "type": "function" }] });
        let (_dir, path) = file("a.jsonl", format!("{row}\n{}\n", talk()));
        let mut spec = talks(Source::Messages, &path);
        let turns = all(&spec).remove(0);
        let lists: Vec<Value> = turns.iter().map(|turn| turn.messages.clone().unwrap().into()).collect();
        assert_eq!(lists, [json!([talk()[0], talk()[1]]), json!([{ "role": "user", "content": "q2" }])]);
        assert_eq!(turns.iter().map(|turn| turn.max_tokens).collect::<Vec<_>>(), [Some(5), Some(9)]);
        assert_eq!(turns.iter().map(|turn| turn.wait.map(|wait| wait.secs())).collect::<Vec<_>>(), [None, Some(2.0)]);
        assert!(turns.iter().all(|turn| turn.sampling.contains_key("tools")));
        assert_eq!(all(&spec)[1].len(), 2, "a bare list is a row too");
        spec.turns = Some(Turns { max: Some(1), ..Turns::default() });
        assert_eq!(all(&spec).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn only_the_first_turn_can_be_counted() {
        let (_dir, path) = file("a.jsonl", json!({ "messages": talk() }).to_string());
        let spec = DatasetSpec { tokenizer: Some("builtin".into()), ..talks(Source::Messages, &path) };
        let tokens: Vec<Option<u64>> = all(&spec)[0].iter().map(|turn| turn.tokens).collect();
        assert!(tokens[0].is_some_and(|n| n > 1) && tokens[1].is_none(), "{tokens:?}");
    }

    #[test]
    fn rows_without_a_question_do_not_fit() {
        let rows = [
            json!({ "messages": [{ "role": "assistant", "content": "x" }] }),
            json!({ "messages": [{ "content": "x" }] }),
            json!({ "messages": "x" }),
            json!({ "talk": [] }),
        ];
        let (_dir, path) = file("a.jsonl", format!("{}\n{}\n{}\n{}\n{}\n", json!(talk()), rows[0], rows[1], rows[2], rows[3]));
        let strict = |rows: &Value| {
            let (_dir, path) = file("a.jsonl", rows.to_string());
            let strict = DatasetSpec { strict: true, ..spec(Source::Messages, &path) };
            opened(&strict).unwrap_err().to_string().replace(&path, "a.jsonl")
        };
        assert_eq!(opened(&spec(Source::Messages, &path)).unwrap().prompts.dropped(), 4);
        let problems = ["the messages hold none of the user", "a message without a `role`", "`messages` is not a list"];
        for (row, problem) in rows.iter().zip(problems) {
            assert!(strict(row).starts_with(&format!("a.jsonl:1: {problem}; expected")), "{}", strict(row));
        }
        assert!(strict(&rows[3]).starts_with("a.jsonl:1: the row has no `messages` (fields: talk)"));
    }
}
