use super::*;

fn read(json: &str) -> [Option<u64>; 4] {
    let usage = parse_usage(serde_json::from_str(json).unwrap());
    [usage.prompt, usage.output, usage.reasoning, usage.cached]
}

fn usage(prompt: u64, output: u64, reasoning: Option<u64>) -> Usage {
    Usage {
        prompt: Some(prompt),
        output: Some(output),
        reasoning,
        cached: None,
    }
}

#[test]
fn absent_is_not_zero() {
    assert_eq!(
        read(
            r#"{"prompt_tokens":15,"completion_tokens":6,"total_tokens":21,
                    "completion_tokens_details":{"reasoning_tokens":0},"prompt_tokens_details":{"cached_tokens":14}}"#
        ),
        [Some(15), Some(6), Some(0), Some(14)]
    );
    assert_eq!(
        read(
            r#"{"prompt_tokens":15,"completion_tokens":0,"completion_tokens_details":null,"prompt_tokens_details":{}}"#
        ),
        [Some(15), Some(0), None, None]
    );
}

#[test]
fn each_way_of_naming_them_is_read() {
    for (json, expected) in [
        (
            r#"{"input_tokens":15,"output_tokens":6,"input_tokens_details":{"cached_tokens":14,"cache_write_tokens":1},
                    "output_tokens_details":{"reasoning_tokens":2}}"#,
            [Some(15), Some(6), Some(2), Some(14)],
        ),
        (
            r#"{"prompt_tokens":15,"completion_tokens":6,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":7,
                    "completion_tokens_details":{"reasoning_tokens":3}}"#,
            [Some(15), Some(6), Some(3), Some(8)],
        ),
        (
            r#"{"prompt_tokens":15,"completion_tokens":6,"cached_tokens":9,"reasoning_tokens":4}"#,
            [Some(15), Some(6), Some(4), Some(9)],
        ),
        (
            r#"{"prompt_tokens":15,"input_tokens":16,"output_tokens":6}"#,
            [Some(15), Some(6), None, None],
        ),
    ] {
        assert_eq!(read(json), expected, "{json}");
    }
}

#[test]
fn reasoning_that_the_output_leaves_out_is_found_by_the_total() {
    let read = |total: u64| {
        read(&format!(
            r#"{{"prompt_tokens":32,"completion_tokens":9,"total_tokens":{total},
                    "completion_tokens_details":{{"reasoning_tokens":94}}}}"#
        ))
    };
    assert_eq!(read(135), [Some(32), Some(103), Some(94), None]);
    assert_eq!(read(41)[1], Some(9), "it is among the output");
}

#[test]
fn thoughts_are_billed_beside_the_candidates() {
    let read = |json: &str| {
        let usage = parse_usage_metadata(serde_json::from_str(json).unwrap());
        [usage.prompt, usage.output, usage.reasoning, usage.cached]
    };
    // With and without a total, which may count tool results too.
    assert_eq!(
        read(
            r#"{"promptTokenCount":32,"candidatesTokenCount":9,"thoughtsTokenCount":94,"totalTokenCount":140}"#
        ),
        [Some(32), Some(103), Some(94), None]
    );
    assert_eq!(
        read(r#"{"candidates_token_count":9,"thoughts_token_count":94}"#)[1],
        Some(103)
    );
    assert_eq!(read(r#"{"thoughtsTokenCount":94}"#)[1], Some(94));
    assert_eq!(read(r#"{"candidatesTokenCount":9}"#)[1], Some(9));
}

#[test]
fn only_counts_of_tokens_are_negative_counts() {
    let negative = |json: &str| has_negative_count(serde_json::from_str(json).unwrap());
    assert!(negative(r#"{"prompt_tokens":-1}"#));
    assert!(negative(
        r#"{"completion_tokens_details":{"reasoning_tokens":-1}}"#
    ));
    assert!(!negative(
        r#"{"prompt_tokens":1,"cost":-0.5,"details":{"balance":-3}}"#
    ));
}

#[test]
fn bad_counts_are_absent() {
    assert_eq!(
        read(r#"{"prompt_tokens":"15","completion_tokens":6}"#),
        [None, Some(6), None, None]
    );
    assert_eq!(
        read(r#"{"prompt_tokens":-1,"completion_tokens":2.5}"#),
        [None; 4]
    );
    assert_eq!(read("[]"), [None; 4]);
    assert_eq!(read("7"), [None; 4]);
}

#[test]
fn running_counts_replace_each_other_and_choices_add_up() {
    assert_eq!(
        merge_latest(usage(15, 1, Some(1)), usage(15, 2, None)),
        usage(15, 2, Some(1))
    );
    assert_eq!(
        sum_choices(usage(15, 3, Some(1)), usage(15, 4, Some(2))),
        usage(15, 7, Some(3))
    );
    assert_eq!(
        sum_choices(Usage::default(), usage(15, 4, None)),
        usage(15, 4, None)
    );
    assert_eq!(
        max_counts(usage(15, 3, Some(1)), usage(15, 4, None)),
        usage(15, 4, Some(1))
    );
}
