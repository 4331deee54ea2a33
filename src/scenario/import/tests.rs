use super::*;
use crate::scenario::{Input, reload};
use std::collections::BTreeMap;
use std::path::Path;

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(found) = rest.trim_start().chars().next() {
        rest = rest.trim_start();
        let (word, after) = match found {
            '\'' => rest[1..].split_once('\'').unwrap(),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after;
    }
    words
}

fn imported(tool: Tool, line: &str) -> Imported {
    import(tool, &words(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn sound(imported: &Imported) {
    let input = Input { path: Path::new("x.yaml"), text: Some(imported.yaml.clone()), env: &BTreeMap::new(), set: &[] };
    if let Err(faults) = reload(&input) {
        panic!("{}\n{}", imported.yaml, faults.render(false, 120));
    }
}

fn error(tool: Tool, line: &str) -> String {
    import(tool, &words(line)).unwrap_err().to_string()
}

const LINES: [(Tool, &str, &str); 11] = [
    (
        Tool::Evalscope,
        "evalscope_sweep",
        "evalscope perf --url http://h:8000/v1/chat/completions --parallel 1 4 16 --number 10 40 160 --model qwen2.5 --dataset openqa --api openai --api-key sk-secret --stream --max-tokens 1024 --log-every-n-query 10 --headers X-Team=infra Authorization=abc",
    ),
    (
        Tool::Evalscope,
        "evalscope_rate",
        "perf --url http://h:8000 --rate 5 10 --open-loop --number 100 --model m --dataset random --tokenizer-path Qwen/Qwen2.5-0.5B --min-prompt-length 1024 --max-prompt-length 1024 --prefix-length 128 --extra-args '{\"ignore_eos\": true}' --temperature 0.7 --seed 1",
    ),
    (
        Tool::Evalscope,
        "evalscope_sla",
        "perf --url http://h/v1 --model m --prompt 'say ${HOME} {{ x }}' --sla-auto-tune --sla-variable parallel --sla-params '[{\"p99_ttft\": \"<=2s\", \"avg_tpot\": \"<=50\"}]' --sla-upper-bound 256 --parallel 2",
    ),
    (
        Tool::Vllm,
        "vllm_random",
        "vllm bench serve --backend openai-chat --base-url http://h:8000 --endpoint /v1/chat/completions --model m --dataset-name random --random-input-len 512 --random-output-len 128 --random-range-ratio 0.25 --num-prompts 200 --max-concurrency 16 --goodput ttft:500 tpot:40 --save-result --seed 3",
    ),
    (
        Tool::Vllm,
        "vllm_rate",
        "bench serve --model m --dataset-name sharegpt --dataset-path share.json --request-rate 4.5 --burstiness 0.5 --num-prompts 100 --percentile-metrics ttft,tpot --ignore_eos --top-k -1",
    ),
    (
        Tool::Vllm,
        "vllm_ramp",
        "--model m --dataset-name prefix_repetition --ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 9 --num-prompts 50",
    ),
    (
        Tool::Aiperf,
        "aiperf_sweep",
        "aiperf profile --model Qwen/Qwen3-0.6B --url localhost:8000 --endpoint-type chat --streaming --concurrency 1,8,64 --request-count 640 --isl 1000 --isl-stddev 100 --osl 200 --extra-inputs ignore_eos:true --extra-inputs min_tokens:200 --random-seed 7 --num-profile-runs 3 --goodput 'time_to_first_token:500 inter_token_latency:40' --ui simple",
    ),
    (
        Tool::Aiperf,
        "aiperf_rate",
        "profile -m m --request-rate 10 --arrival-pattern gamma --arrival-smoothness 2 --benchmark-duration 60 --request-cancellation-rate 5 --request-cancellation-delay 0.5 --workers-max 4",
    ),
    (
        Tool::Guidellm,
        "guidellm_run",
        "guidellm run --backend kind=openai_http,target=http://h:8000/v1,model=m --profile kind=concurrent,streams=1,4,16 --data kind=synthetic_text,prompt_tokens=256,output_tokens=128,turns=2 --constraint kind=max_duration,seconds=30 --tokenizer kind=hf_auto,model=Qwen/Qwen3-0.6B",
    ),
    (
        Tool::Guidellm,
        "guidellm_old",
        "guidellm benchmark --target http://h:8000 --rate-type constant --rate 5,10 --max-seconds 30 --data prompt_tokens=256,output_tokens=128 --processor m --warmup-percent 0.1 --output-path out.json",
    ),
    (
        Tool::Guidellm,
        "guidellm_sweep",
        "guidellm run --profile sweep --data '{\"kind\": \"file\", \"path\": \"p.jsonl\"}' --max-requests 50",
    ),
];

#[test]
fn command_lines_become_sound_scenarios() {
    for (tool, name, line) in LINES {
        let imported = imported(tool, line);
        sound(&imported);
        insta::assert_snapshot!(name, imported.yaml);
    }
}

#[test]
fn every_flag_of_the_line_is_accounted_for() {
    for (tool, _, line) in LINES {
        let flags = words(line).iter().filter(|word| word.starts_with("--") || *word == "-m").count();
        let seen = imported(tool, line).accounts;
        assert_eq!(seen.len(), flags, "{line}");
        assert!(seen.iter().all(|account| !account.keys.is_empty() || account.note.is_some()), "{seen:#?}");
    }
}

/// What a command line of the tool must have beside the flag that is tried.
fn base(tool: Tool) -> &'static str {
    match tool {
        Tool::Evalscope => "--model m --url http://h",
        Tool::Vllm => "--model m --dataset-path x",
        Tool::Aiperf => "-m m",
        Tool::Guidellm => "--data prompt_tokens=8",
    }
}

#[test]
fn every_flag_of_every_tool_is_known_with_its_reason_or_its_key() {
    let samples = [
        "8",
        "0.5",
        "x:1",
        "ttft:5",
        "request_latency:5",
        "{}",
        "[{\"rps\": \">=5\"}]",
        "random",
        "openai",
        "chat",
        "sharegpt",
        "linear",
        "constant",
        "vllm",
        "/v1/completions",
        "openqa",
        "file",
        "{\"kind\": \"max_requests\", \"count\": 5}",
    ];
    let beside = [
        "",
        "--dataset random",
        "--dataset random_vl",
        "--sla-auto-tune --sla-params {\"p99_ttft\":\"<=2s\"}",
        "--multi-turn",
        "--dataset random --prefix-length 5",
        "--dataset-name prefix_repetition",
        "--dataset-name sharegpt",
        "--dataset-name custom",
        "--ramp-up-start-rps 1 --ramp-up-end-rps 2 --ramp-up-strategy linear",
        "--request-rate 2",
        "--input-file x --custom-dataset-type multi_turn",
        "--input-file x --custom-dataset-type mooncake_trace --fixed-schedule",
        "--image-width-mean 64",
        "--endpoint-type embeddings",
        "--endpoint-type rankings",
        "--prefix-prompt-length 8",
        "--request-cancellation-rate 5",
        "--search-recipe x --ttft-sla-ms 5",
        "--rate-type constant --rate 5",
        "--profile kind=concurrent,streams=1",
        "--max-seconds 30",
        "--lora-modules a b",
    ];
    for tool in Tool::ALL {
        let names: Vec<&str> =
            tool.flags().iter().flat_map(|part| part.iter()).flat_map(|flag| flag.names.iter().copied()).collect();
        let own =
            |more: &&&str| words(more).iter().filter(|word| word.starts_with("--")).all(|word| names.contains(&word.as_str()));
        let beside: Vec<&&str> = beside.iter().filter(own).collect();
        for flag in tool.flags().iter().flat_map(|part| part.iter()) {
            // Names of a flag that is left out may be those of many.
            for name in if flag.left.is_empty() { &flag.names[..1] } else { flag.names } {
                let tried =
                    beside.iter().flat_map(|more| samples.iter().map(move |sample| (more, sample))).find_map(|(more, sample)| {
                        let value = if matches!(flag.takes, line::Takes::Nothing | line::Takes::Truth) { "" } else { sample };
                        let line =
                            [words(base(tool)), words(more), vec![(*name).to_owned()], words(&format!("'{value}'"))].concat();
                        let line: Vec<String> = line.into_iter().filter(|word| !word.is_empty()).collect();
                        let mut draft = Draft::new(Line::parse(tool, &line).ok()?);
                        tool.translate(&mut draft).ok()?;
                        let own =
                            draft.accounts().into_iter().rev().find(|account| account.flag.split(' ').next() == Some(name))?;
                        (!own.keys.is_empty() || own.note.as_deref() != Some(draft::UNTOLD)).then_some(own)
                    });
                assert!(tried.is_some(), "{} {name} is neither carried over nor explained", tool.name());
            }
        }
    }
}

#[test]
fn secrets_are_nowhere() {
    let seen = imported(Tool::Evalscope, LINES[0].2);
    for secret in ["sk-secret", "abc"] {
        assert!(!seen.yaml.contains(secret) && !format!("{seen:?}").contains(secret), "{}", seen.yaml);
    }
    assert!(seen.yaml.contains("${OPENAI_API_KEY}") && seen.yaml.contains("${AUTHORIZATION}"));
}

#[test]
fn secrets_of_urls_and_bodies_are_nowhere_either() {
    let line = "perf --model m --url http://u:hushpw@h:8000/v1/chat/completions?api_key=hushkey --extra-args '{\"api_key\": \"hushed\", \"a\": {\"token\": \"hush2\", \"max_tokens\": \"7\"}}' --prompt hi --number 5";
    let seen = imported(Tool::Evalscope, line);
    assert!(!format!("{seen:?}").contains("hush"), "{}", seen.yaml);
    for kept in [
        "http://u:${TARGET_SECRET}@h:8000/v1/chat/completions?api_key=${TARGET_SECRET}",
        "api_key: ${API_KEY}",
        "token: ${TOKEN}",
        "max_tokens: '7'",
    ] {
        assert!(seen.yaml.contains(kept), "{kept}\n{}", seen.yaml);
    }
    let seen = imported(
        Tool::Aiperf,
        "profile -m m --extra-inputs '{\"token\": \"hush\"}' --extra-inputs api_key:hush --url http://h?key=hush",
    );
    assert!(!format!("{seen:?}").contains("hush"), "{}", seen.yaml);
}

#[test]
fn texts_stand_for_themselves() {
    let seen = imported(Tool::Evalscope, LINES[2].2);
    let input = Input { path: Path::new("x.yaml"), text: Some(seen.yaml), env: &BTreeMap::new(), set: &[] };
    let plan = reload(&input).unwrap().plan;
    assert!(plan.resolved.contains("say"), "{}", plan.resolved);
    assert!(format!("{:?}", plan.cases[0].dataset).contains("say ${HOME} {{ x }}"), "{:?}", plan.cases[0].dataset);
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(error(Tool::Evalscope, "perf --paralel 4"), "`--paralel` is no flag of evalscope; did you mean `--parallel`?");
    assert_eq!(error(Tool::Evalscope, "perf --url h --parallel x"), "`--parallel x`: expected a number");
    assert_eq!(error(Tool::Evalscope, "perf --url"), "`--url` has no value");
    assert_eq!(
        error(Tool::Vllm, "bench serve --model m oops"),
        "`oops` belongs to no flag; a value with spaces stands in quotes"
    );
    assert!(error(Tool::Evalscope, "perf --url h --parallel 1 2 --number 1 2 3").contains("as many numbers as loads"));
    assert!(error(Tool::Vllm, "--dataset-name sharegpt").contains("--dataset-path"));
    assert!(error(Tool::Guidellm, "run --profile concurrent --data prompt_tokens=5").contains("streams"));
}
