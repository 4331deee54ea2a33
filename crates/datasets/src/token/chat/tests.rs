use super::*;
use crate::token::Tokenizer;
use crate::token::trained::{CHATML, LLAMA3, MISTRAL};

fn talk() -> Vec<Value> {
    let list = json!([{ "role": "system", "content": "Terse." }, { "role": "user", "content": " Hi " },
        { "role": "assistant", "content": "Yes?" }, { "role": "user", "content": "Why?" }]);
    list.as_array().cloned().unwrap()
}

fn rendered(source: &str, messages: &[Value]) -> String {
    ChatTemplate::new(source, &Map::new())
        .unwrap()
        .render(messages, None)
        .unwrap()
}

fn of(source: &str) -> String {
    rendered(source, &talk())
}

#[test]
fn well_known_templates_render_as_their_models_read_them() {
    let render = |chat: &crate::token::trained::Chat| {
        ChatTemplate::new(chat.source, &chat.config())
            .unwrap()
            .render(&talk(), None)
            .unwrap()
    };
    assert_eq!(
        render(&CHATML),
        "<|im_start|>system\nTerse.<|im_end|>\n<|im_start|>user\n Hi \
         <|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        render(&LLAMA3),
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul \
         2024\n\nTerse.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    assert_eq!(
        render(&MISTRAL),
        "<s>[INST]  Hi [/INST] Yes?</s>[INST] Terse.\n\nWhy?[/INST]"
    );
}

#[test]
fn special_tokens_are_those_of_the_template_and_each_is_one() {
    for (chat, special) in [(&CHATML, 3), (&LLAMA3, 6), (&MISTRAL, 3)] {
        let tokenizer = chat.over("byte-level");
        let one = [json!({ "role": "user", "content": "the sky" })];
        let text = tokenizer.chat(&one, None).unwrap();
        let names: Vec<&str> = [
            "<|im_start|>",
            "<|im_end|>",
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<s>",
            "[INST]",
            "[/INST]",
        ]
        .into_iter()
        .filter(|name| text.contains(name))
        .collect();
        let plain = names
            .iter()
            .fold(text, |text, name| text.replace(name, "\u{1}"));
        let words: u64 = plain
            .split('\u{1}')
            .map(|part| tokenizer.count(part).unwrap())
            .sum();
        assert_eq!(plain.matches('\u{1}').count(), special, "{}", chat.name);
        assert_eq!(
            tokenizer.count_messages(&one),
            Some(words + special as u64),
            "{}",
            chat.name
        );
    }
}

#[test]
fn without_a_template_the_contents_are_counted() {
    let builtin = Tokenizer::builtin();
    assert!(builtin.chat_template().is_none());
    assert_eq!(
        builtin.count_messages(&talk()),
        builtin.count("Terse.\n Hi \nYes?\nWhy?")
    );
    let plain = CHATML.over("builtin").for_plain_text();
    assert_eq!(
        plain.count_messages(&talk()),
        builtin.count_messages(&talk())
    );
}

#[test]
fn messages_that_a_template_refuses_are_not_counted() {
    let tokenizer = MISTRAL.over("byte-level");
    let two = [
        json!({ "role": "user", "content": "a" }),
        json!({ "role": "user", "content": "b" }),
    ];
    assert_eq!(tokenizer.count_messages(&two), None);
    let error = tokenizer.chat(&two, None).unwrap_err().to_string();
    assert_eq!(
        error,
        "the chat template rejects the messages: user and assistant must take turns (line 10)"
    );
}

#[test]
fn templates_find_what_they_know_from_python() {
    assert_eq!(
        of("{{ messages[1].content.strip().upper() }}{{ messages[0].get('name', 'x') }}"),
        "HIx"
    );
    assert_eq!(
        of(
            "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role }},{% endfor %}"
        ),
        "system,assistant,user,"
    );
    assert_eq!(
        of("{{ {'b': [1, 2.5, true, none], 'a': \"<'&ü>\"} | tojson }}"),
        "{\"b\": [1, 2.5, true, null], \"a\": \"<'&ü>\"}"
    );
    assert_eq!(
        of("{{ {'b': 1, 'a': 'ü'} | tojson(indent=2, ensure_ascii=true, sort_keys=true) }}"),
        "{\n  \"a\": \"\\u00fc\",\n  \"b\": 1\n}"
    );
    assert_eq!(
        of("{{ strftime_now('%A %-m/%d/%y %H:%M %p 100%%, %q') }}"),
        "Friday 7/26/24 00:00 AM 100%, %q"
    );
    assert_eq!(
        of("{{ tools is none }} {{ tools is defined }} {{ nothing is defined }} {{ nothing }}"),
        "True True False "
    );
}

#[test]
fn blocks_leave_no_blanks_and_generation_marks_leave_nothing() {
    assert_eq!(
        of("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"),
        "a\n  b\nc"
    );
    assert_eq!(of("x {%- generation %} y {% endgeneration -%} z"), "x y z");
    assert_eq!(
        of("x{% generation %}\n{{ '{% generation %}' }}{% endgeneration %}"),
        "x{% if true %}"
    );
}

#[test]
fn contents_come_in_the_form_that_the_template_reads() {
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let talk = [
        json!({ "role": "user", "content": parts }),
        json!({ "role": "user", "content": "c" }),
        json!({ "role": "assistant", "content": null }),
    ];
    assert_eq!(
        rendered(
            "{% for m in messages %}[{{ m.content }}]{% endfor %}",
            &talk
        ),
        "[a\nb][c][]"
    );
    let walks = "{% for m in messages %}[{%- for part in m['content'] | list %}<{{ part.text \
    }}>{% endfor %}]{% endfor %}";
    assert_eq!(rendered(walks, &talk), "[<a><b>][<c>][]");
}

#[test]
fn tool_calls_come_as_data_and_tools_where_the_request_has_them() {
    let call = json!({ "role": "assistant", "tool_calls": [{ "function": { "name": "f",
        "arguments": "{\"x\": 1}" } }] });
    let template = ChatTemplate::new(
        "{{ messages[0].tool_calls[0].function.arguments.x }} {{ tools | tojson }}",
        &Map::new(),
    )
    .unwrap();
    assert_eq!(
        template
            .render(&[call], Some(&json!([{ "a": 1 }])))
            .unwrap(),
        "1 [{\"a\": 1}]"
    );
}

#[test]
fn a_template_that_is_none_says_where() {
    let error = ChatTemplate::new("a\n{% for %}", &Map::new()).unwrap_err();
    assert!(error.ends_with("(line 2)"), "{error}");
}

#[test]
fn what_templates_of_many_models_use_is_understood() {
    let cases = [
        (
            "{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}",
            "uaus",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "4",
        ),
        (
            "{{ ('a</think>\n\nb'.split('</think>')[-1]).lstrip('\n') }}",
            "b",
        ),
        (
            "{{ messages[0].content is string }}{{ messages is iterable }}{{ messages[0] is mapping }}",
            "TrueTrueTrue",
        ),
        (
            "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
            "role=system;content=Terse.;",
        ),
        (
            "{% for k, v in messages[0] | items %}{{ k }},{% endfor %}",
            "role,content,",
        ),
        (
            "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
            "2",
        ),
        (
            "{{ messages | map(attribute='role') | join('|') }}",
            "system|user|assistant|user",
        ),
        (
            "{% for m in messages if m.role != 'system' %}{{ loop.first ~ loop.last }}{% endfor %}",
            "TrueFalseFalseFalseFalseTrue",
        ),
        (
            "{% macro f(x, y=2) %}{{ x * y }}{% endmacro %}{{ f(3) }}",
            "6",
        ),
        (
            "{{ 'system' in messages[0].values() }}{{ 'role' in messages[0] }}{{ 'x' not in 'yz' }}",
            "TrueTrueTrue",
        ),
        (
            "{% for m in messages %}{{ loop.previtem.role[0] if loop.previtem else '-' }}{% endfor %}",
            "-sua",
        ),
        (
            "{{ messages[1:][0]['content'] | trim }}{{ messages[-1].content | length }}{{ none or 'x' }}",
            "Hi4x",
        ),
        (
            "{% for i in range(messages | length - 1, -1, -1) %}{{ i }}{% endfor %}",
            "3210",
        ),
        (
            "{{ 'a %s' | format('b') }}{{ 'ab' | replace('a', 'c') }}{{ '{}-{}'.format(1, 2) }}",
            "a bcb1-2",
        ),
        (
            "{%- if not date is defined %}{% set date = '26 Jul' %}{% endif %}{{ date }}{{ 5 | \
            int + 1 }}{{ 'A' | lower }}",
            "26 Jul6a",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(of(source), expected, "{source}");
    }
}
