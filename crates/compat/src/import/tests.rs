use super::*;
use llmscen_scenario::{Input, reload};
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
    let input = Input {
        path: Path::new("x.yaml"),
        text: Some(imported.yaml.clone()),
        env: &BTreeMap::new(),
        set: &[],
    };
    if let Err(faults) = reload(&input) {
        panic!("{}\n{}", imported.yaml, faults.render(false, 120));
    }
}

fn error(tool: Tool, line: &str) -> String {
    import(tool, &words(line)).unwrap_err().to_string()
}

const LINES: &[(Tool, &str, &str)] = &[
    (
        Tool::Evalscope,
        "evalscope_sweep",
        "evalscope perf --url http://h:8000/v1/chat/completions --parallel 1 4 16 --number 10 40 \
        160 --model qwen2.5 --dataset openqa --api openai --api-key sk-secret --stream \
        --max-tokens 1024 --log-every-n-query 10 --headers X-Team=infra Authorization=abc",
    ),
    (
        Tool::Evalscope,
        "evalscope_rate",
        "perf --url http://h:8000 --rate 5 10 --open-loop --number 100 --model m --dataset random \
        --tokenizer-path Qwen/Qwen2.5-0.5B --min-prompt-length 1024 --max-prompt-length 1024 \
        --prefix-length 128 --extra-args '{\"ignore_eos\": true}' --temperature 0.7 --seed 1",
    ),
    (
        Tool::Evalscope,
        "evalscope_sla",
        "perf --url http://h/v1 --model m --prompt 'say ${HOME} {{ x }}' --sla-auto-tune \
        --sla-variable parallel --sla-params '[{\"p99_ttft\": \"<=2s\", \"avg_tpot\": \"<=50\"}]' \
        --sla-upper-bound 256 --parallel 2",
    ),
    (
        Tool::Vllm,
        "vllm_random",
        "vllm bench serve --backend openai-chat --base-url http://h:8000 --endpoint \
        /v1/chat/completions --model m --dataset-name random --random-input-len 512 \
        --random-output-len 128 --random-range-ratio 0.25 --num-prompts 200 --max-concurrency 16 \
        --goodput ttft:500 tpot:40 --save-result --seed 3",
    ),
    (
        Tool::Vllm,
        "vllm_rate",
        "bench serve --model m --dataset-name sharegpt --dataset-path share.json --request-rate \
        4.5 --burstiness 0.5 --num-prompts 100 --percentile-metrics ttft,tpot --ignore_eos \
        --top-k -1",
    ),
    (
        Tool::Vllm,
        "vllm_ramp",
        "--model m --dataset-name prefix_repetition --ramp-up-strategy linear --ramp-up-start-rps \
        1 --ramp-up-end-rps 9 --num-prompts 50",
    ),
    (
        Tool::Aiperf,
        "aiperf_sweep",
        "aiperf profile --model Qwen/Qwen3-0.6B --url localhost:8000 --endpoint-type chat \
        --streaming --concurrency 1,8,64 --request-count 640 --isl 1000 --isl-stddev 100 --osl \
        200 --extra-inputs ignore_eos:true --extra-inputs min_tokens:200 --random-seed 7 \
        --num-profile-runs 3 --goodput 'time_to_first_token:500 inter_token_latency:40' --ui simple",
    ),
    (
        Tool::Aiperf,
        "aiperf_rate",
        "profile -m m --request-rate 10 --arrival-pattern gamma --arrival-smoothness 2 \
        --benchmark-duration 60 --request-cancellation-rate 5 --request-cancellation-delay 0.5 \
        --workers-max 4",
    ),
    (
        Tool::Guidellm,
        "guidellm_run",
        "guidellm run --backend kind=openai_http,target=http://h:8000/v1,model=m --profile \
        kind=concurrent,streams=1,4,16 --data \
        kind=synthetic_text,prompt_tokens=256,output_tokens=128,turns=2 --constraint \
        kind=max_duration,seconds=30 --tokenizer kind=hf_auto,model=Qwen/Qwen3-0.6B",
    ),
    (
        Tool::Guidellm,
        "guidellm_old",
        "guidellm benchmark --target http://h:8000 --rate-type constant --rate 5,10 --max-seconds \
        30 --data prompt_tokens=256,output_tokens=128 --processor m --warmup-percent 0.1 \
        --output-path out.json",
    ),
    (
        Tool::Guidellm,
        "guidellm_sweep",
        "guidellm run --profile sweep --data '{\"kind\": \"file\", \"path\": \"p.jsonl\"}' --max-requests 50",
    ),
    (
        Tool::Evalscope,
        "evalscope_local",
        "evalscope perf --model models/qwen --number 20 --parallel 2 --api local --max-tokens 64 \
        --min-tokens 64 --connect-timeout 600 --visualizer wandb --wandb-api-key sk-secret --name \
        nightly",
    ),
    (
        Tool::Evalscope,
        "evalscope_vllm",
        "CUDA_VISIBLE_DEVICES=0,1 HF_TOKEN=sk-secret evalscope perf --model Qwen/Qwen2.5-0.5B \
        --api local_vllm --port 9001 --rate -1 --swanlab-api-key sk-secret",
    ),
    (
        Tool::Evalscope,
        "evalscope_trace",
        "evalscope perf --dataset workload_trace --dataset-path trace.jsonl --url \
        http://h/v1/chat/completions --open-loop --dataset-args '{\"speed\": \
        2.0, \"model_mapping\": {\"gpt-4\": \"qwen\"}, \"match_output_length\": true}'",
    ),
    (
        Tool::Sglang,
        "sglang_random",
        "OPENAI_API_KEY=sk-secret python3 -m sglang.bench_serving --backend sglang --host \
        127.0.0.1 --port 30000 --model m --dataset-name random --random-input 1024 \
        --random-output 512 --random-range-ratio 0.5 --num-prompts 2000 --request-rate 100 \
        --max-concurrency 512 --output-file o.jsonl --goodput ttft:500",
    ),
    (
        Tool::Sglang,
        "sglang_prefix",
        "python -m sglang.bench_serving --backend vllm-chat --base-url http://h:8000 --model m \
        --dataset-name generated-shared-prefix --gsp-num-groups 4 --gsp-question-len 64 \
        --max-concurrency 8 --warmup-requests 3 --disable-ignore-eos",
    ),
    (
        Tool::Sglang,
        "sglang_batch",
        "python3 -m sglang.bench_one_batch_server --model None --base-url http://h:30000 \
        --batch-size 1 16 --input-len 1024 --output-len 8 64 --skip-warmup --show-report",
    ),
    (
        Tool::Vllm,
        "vllm_closed",
        "vllm bench serve --model m --request-rate inf --max-concurrency 4 --num-prompts 32",
    ),
    (
        Tool::Lmdeploy,
        "lmdeploy_generation",
        "CUDA_VISIBLE_DEVICES=0 python3 benchmark/profile_generation.py models/qwen -c 1 8 -pt 1 \
        512 -ct 2048 512 --backend pytorch --tp 2 --enable-prefix-caching",
    ),
    (
        Tool::Lmdeploy,
        "lmdeploy_throughput",
        "python profile_throughput.py share.json models/qwen --concurrency 64 --num-prompts 100 \
        --cancel-rate 0.25 --quant-policy 8",
    ),
    (
        Tool::Lmdeploy,
        "lmdeploy_restful",
        "python3 profile_restful_api.py --backend lmdeploy --dataset-name random \
        --random-input-len 100 --random-output-len 50 --model-path models/qwen --multi \
        --request-rate-range 2,8,2 --num-prompt 100 --disable-warmup",
    ),
];

#[test]
fn command_lines_become_valid_scenarios() {
    for (tool, name, line) in LINES {
        let imported = imported(*tool, line);
        sound(&imported);
        insta::assert_snapshot!(*name, imported.yaml);
    }
}

#[test]
fn every_flag_of_the_line_is_listed() {
    for (tool, _, line) in LINES.iter() {
        let invocation = command::recognize(tool.spec(), &words(line)).unwrap();
        let flag = |word: &&String| {
            word.starts_with("--")
                || word.len() < 4 && word.starts_with('-') && word[1..].parse::<f64>().is_err()
        };
        let flags = invocation.args.iter().filter(flag).count();
        // LMDeploy's scripts have positional arguments.
        let positional = invocation
            .args
            .iter()
            .take_while(|word| !word.starts_with('-'))
            .count();
        let seen = imported(*tool, line).accounts;
        assert_eq!(
            seen.len(),
            flags + positional + invocation.variables.len(),
            "{line}"
        );
        assert!(
            seen.iter()
                .all(|account| !account.keys.is_empty() || account.note.is_some()),
            "{seen:#?}"
        );
    }
}

/// Flags that a command line needs in addition to the one under test.
fn base(tool: Tool, command: &command::Command) -> &'static str {
    match (tool, command.positional) {
        (Tool::Evalscope, _) => "--model m --url http://h",
        (Tool::Vllm, _) => "--model m --dataset-path x",
        (Tool::Aiperf, _) => "-m m",
        (Tool::Guidellm, _) => "--data prompt_tokens=8",
        (Tool::Sglang, _) | (Tool::Lmdeploy, 0) => "--dataset-path x",
        (Tool::Lmdeploy, 1) => "m",
        (Tool::Lmdeploy, _) => "d m",
    }
}

#[test]
fn every_flag_of_every_tool_has_a_key_or_a_reason() {
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
        "{\"speed\": 2}",
        "wandb",
        "agentx",
        "360p",
        "sglang",
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
        "--visualizer wandb",
        "--api local",
        "--api local_vllm",
        "--scenario agentx",
        "--open-loop --rate 5",
        "--dataset workload_trace --dataset-path x --open-loop",
        "--return-logprob",
        "--multi",
        "--prompt-tokens 5",
        "--completion-tokens 5",
        "--dataset-name image --random-output-len 5",
        "--dataset-name generated-shared-prefix",
        "--dataset-name mooncake",
        "--dataset-name random --random-input-len 5 --random-output-len 5",
    ];
    let commands = Tool::ALL.into_iter().flat_map(|tool| {
        tool.spec()
            .commands
            .iter()
            .map(move |command| (tool, command))
    });
    for (tool, command) in commands {
        let names: Vec<&str> = command.flags.iter().flat_map(flags::Flag::names).collect();
        let own = |more: &&&str| {
            words(more)
                .iter()
                .filter(|word| word.starts_with("--"))
                .all(|word| names.contains(&word.as_str()))
        };
        let beside: Vec<&&str> = beside.iter().filter(own).collect();
        let spelling: Vec<String> = command.names[0]
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        for flag in command.flags.iter().skip(command.positional) {
            // A dropped flag may have many names.
            for name in flag.names().take(if flag.reason.is_empty() {
                1
            } else {
                usize::MAX
            }) {
                let tried = beside
                    .iter()
                    .flat_map(|more| samples.iter().map(move |sample| (more, sample)))
                    .find_map(|(more, sample)| {
                        let value =
                            if matches!(flag.takes, flags::Takes::Nothing | flags::Takes::Switch) {
                                ""
                            } else {
                                sample
                            };
                        let base = words(base(tool, command));
                        let line = [
                            spelling.clone(),
                            base,
                            words(more),
                            vec![name.to_owned()],
                            words(&format!("'{value}'")),
                        ]
                        .concat();
                        let line: Vec<String> =
                            line.into_iter().filter(|word| !word.is_empty()).collect();
                        let mut draft = Draft::new(
                            command::recognize(tool.spec(), &line)
                                .ok()?
                                .parse(tool.spec())
                                .ok()?,
                        );
                        command.apply(&mut draft).ok()?;
                        let own = draft
                            .accounts()
                            .into_iter()
                            .rev()
                            .find(|account| account.flag.split(' ').next() == Some(name))?;
                        (!own.keys.is_empty() || own.note.as_deref() != Some(draft::NO_EFFECT))
                            .then_some(own)
                    });
                assert!(
                    tried.is_some(),
                    "{} {name} is neither carried over nor explained",
                    tool.name()
                );
            }
        }
    }
}

#[test]
fn every_spelling_of_a_command_is_recognized() {
    let same = |tool: Tool, lines: &[&str]| {
        let all: Vec<String> = lines.iter().map(|line| imported(tool, line).yaml).collect();
        assert!(all.iter().all(|yaml| *yaml == all[0]), "{all:#?}");
    };
    let flags = "--model m --num-prompts 5";
    let spellings = [
        "",
        "bench_serving ",
        "sglang.bench_serving ",
        "python -m sglang.bench_serving ",
        "python3.12 -m sglang.benchmark.serving ",
        "python3 /opt/sglang/bench_serving.py ",
    ];
    let lines: Vec<String> = spellings
        .iter()
        .map(|spelling| format!("{spelling}{flags}"))
        .collect();
    same(
        Tool::Sglang,
        &lines.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    same(
        Tool::Lmdeploy,
        &[
            "profile_generation m",
            "lmdeploy profile_generation.py m",
            "python3 benchmark/profile_generation.py m",
        ],
    );
    let whole = "python3 -m sglang.bench_serving \\\n  --model m \\\n  --num-prompts 5".to_owned();
    assert_eq!(
        import(Tool::Sglang, &[whole]).unwrap().yaml,
        imported(Tool::Sglang, flags).yaml
    );
    assert_eq!(
        import(Tool::Sglang, &["--model 'm".to_owned()])
            .unwrap_err()
            .to_string(),
        "the command line has an unclosed quote"
    );
    assert_eq!(
        error(Tool::Lmdeploy, "serve api_server m"),
        "the command line has no command of lmdeploy; use one of profile_generation.py, \
        profile_throughput.py, profile_restful_api.py"
    );
    // A unique prefix of a flag is accepted where the tool's parser does that.
    assert_eq!(
        error(Tool::Sglang, "--random-in 5 --prof"),
        "`--prof` is not a flag of sglang; did you mean `--profile`?"
    );
    assert_eq!(
        error(Tool::Aiperf, "-m m --concur 5"),
        "`--concur` is not a flag of aiperf; did you mean `--concurrency`?"
    );
}

#[test]
fn variables_before_the_command_have_a_key_or_a_reason() {
    let accounts = |tool, line| imported(tool, line).accounts;
    let managed = &accounts(
        Tool::Evalscope,
        "A=1 X_TOKEN=hush perf --model m --api local_vllm",
    )[..2];
    assert_eq!(managed[0].keys, ["target.server.env.A"]);
    assert_eq!(
        (managed[1].flag.as_str(), managed[1].keys[0].as_str()),
        ("X_TOKEN=***", "target.server.env.X_TOKEN")
    );
    let remote = &accounts(Tool::Evalscope, "A=1 perf --model m --url http://h")[0];
    assert!(remote.keys.is_empty() && remote.note.is_some());
    assert_eq!(
        accounts(Tool::Sglang, "OPENAI_API_KEY=hush bench_serving --model m")[0].keys,
        ["target.api_key"]
    );
}

#[test]
fn defaults_of_the_tool_are_listed_at_the_top() {
    let head = |line: &str| {
        let yaml = imported(Tool::Evalscope, line).yaml;
        let from = yaml.find("# Defaults").unwrap();
        yaml[from..yaml.find("version:").unwrap()].to_owned()
    };
    let all = head("perf --model m --url http://h");
    assert!(
        all.starts_with("# Defaults of evalscope 1.14.1:\n"),
        "{all}"
    );
    for default in [
        "request.max_tokens 2048",
        "request.temperature 0",
        "load.requests 1000",
        "load.concurrency 1",
        "pause 5s",
        "dataset.kind openqa",
        "target.timeouts.total 21600s",
    ] {
        assert!(
            all.contains(&format!("#   {default}\n")),
            "{default}\n{all}"
        );
    }
    let given = head(
        "perf --model m --url http://h --max-tokens 5 --number 7 --sleep-interval 0 --dataset random",
    );
    assert!(
        !given.contains("max_tokens")
            && !given.contains("load.requests")
            && !given.contains("pause"),
        "{given}"
    );
}

#[test]
fn wandb_key_is_not_written() {
    let seen = imported(
        Tool::Evalscope,
        "perf --model m --url http://h --wandb-api-key sk-hush --visualizer wandb",
    );
    assert!(!format!("{seen:?}").contains("hush"), "{}", seen.yaml);
    for line in ["project: perf_benchmark", "api_key: ${WANDB_API_KEY}"] {
        assert!(seen.yaml.contains(line), "{}", seen.yaml);
    }
    let other = imported(
        Tool::Evalscope,
        "perf --model m --url http://h --visualizer swanlab --swanlab-api-key sk-hush",
    );
    assert!(
        !format!("{other:?}").contains("hush") && !other.yaml.contains("track:"),
        "{}",
        other.yaml
    );
    assert!(other.accounts[2..].iter().all(|account| {
        account
            .note
            .as_deref()
            .unwrap()
            .contains("does not support the tracker swanlab")
    }));
}

#[test]
fn secrets_are_not_written() {
    for (tool, _, line) in LINES.iter() {
        assert!(
            !format!("{:?}", imported(*tool, line)).contains("sk-secret"),
            "{line}"
        );
    }
    let seen = imported(Tool::Evalscope, LINES[0].2);
    for secret in ["sk-secret", "abc"] {
        assert!(
            !seen.yaml.contains(secret) && !format!("{seen:?}").contains(secret),
            "{}",
            seen.yaml
        );
    }
    assert!(seen.yaml.contains("${OPENAI_API_KEY}") && seen.yaml.contains("${AUTHORIZATION}"));
}

#[test]
fn secrets_of_urls_and_bodies_are_not_written() {
    let line = "perf --model m --url http://u:hushpw@h:8000/v1/chat/completions?api_key=hushkey \
    --extra-args '{\"api_key\": \"hushed\", \"a\": \
    {\"token\": \"hush2\", \"max_tokens\": \"7\"}}' --prompt hi --number 5";
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
fn texts_are_escaped() {
    let seen = imported(Tool::Evalscope, LINES[2].2);
    let input = Input {
        path: Path::new("x.yaml"),
        text: Some(seen.yaml),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = reload(&input).unwrap().plan;
    assert!(plan.resolved.contains("say"), "{}", plan.resolved);
    assert!(
        format!("{:?}", plan.cases[0].dataset).contains("say ${HOME} {{ x }}"),
        "{:?}",
        plan.cases[0].dataset
    );
}

#[test]
fn errors_are_explained() {
    assert_eq!(
        error(Tool::Evalscope, "perf --paralel 4"),
        "`--paralel` is not a flag of evalscope; did you mean `--parallel`?"
    );
    assert_eq!(
        error(Tool::Evalscope, "perf --url h --parallel x"),
        "`--parallel x`: expected a number"
    );
    assert_eq!(error(Tool::Evalscope, "perf --url"), "`--url` has no value");
    assert_eq!(
        error(Tool::Vllm, "bench serve --model m oops"),
        "`oops` does not belong to a flag; put a value with spaces in quotes"
    );
    assert!(
        error(
            Tool::Evalscope,
            "perf --url h --parallel 1 2 --number 1 2 3"
        )
        .contains("as many numbers as loads")
    );
    let rate = "expected a rate above 0, or -1 for no rate limit";
    assert_eq!(
        error(Tool::Evalscope, "perf --model m --rate 0"),
        format!("`--rate 0`: {rate}")
    );
    assert_eq!(
        error(Tool::Evalscope, "perf --model m --duration 1e400"),
        "`--duration 1e400`: expected a number"
    );
    let ratio = "expected a number from 0 to below 1, or JSON with `input` and `output`";
    for value in ["1.5", "{\"input\":1,\"output\":0}", "{\"input\":0.5}"] {
        let line = format!("--model m --random-range-ratio '{value}'");
        assert_eq!(
            error(Tool::Vllm, &line),
            format!("`--random-range-ratio {value}`: {ratio}")
        );
    }
    assert!(error(Tool::Vllm, "--dataset-name sharegpt").contains("--dataset-path"));
    assert!(
        error(
            Tool::Guidellm,
            "run --profile concurrent --data prompt_tokens=5"
        )
        .contains("streams")
    );
}

#[test]
fn lengths_pictures_and_batches_are_those_of_the_command_line() {
    let has = |tool: Tool, line: &str, parts: &[&str]| {
        let imported = imported(tool, line);
        sound(&imported);
        for part in parts {
            assert!(
                imported.yaml.contains(part),
                "`{part}` is not in\n{}",
                imported.yaml
            );
        }
    };
    let vllm = |rest: &str, parts: &[&str]| {
        has(
            Tool::Vllm,
            &format!("vllm bench serve --model m {rest}"),
            parts,
        )
    };
    vllm(
        "--dataset-name sonnet --dataset-path s.txt --sonnet-output-len 512 --num-prompts 9",
        &["max_tokens: 512", "tokens: 550", "shared_prefix: 200"],
    );
    vllm(
        "--dataset-name custom --dataset-path s.jsonl --custom-output-len -1 --num-prompts 9",
        &["from: item.output_tokens"],
    );
    vllm(
        "--dataset-name random-mm --num-prompts 9 --random-mm-base-items-per-request 3 \
        --random-mm-bucket-config '{(256, 512, 1): 0.75, (720, 1280, 1): 0.25}'",
        &[
            "api: openai-chat",
            "count: 3",
            "- 512x256\n  - 512x256\n  - 512x256\n  - 1280x720",
        ],
    );
    has(
        Tool::Sglang,
        "python3 -m sglang.bench_one_batch_server --model m --base-url http://h:30000 \
        --batch-size 16 --input-len 100 --output-len 10",
        &["warmup: 1x", "batch: 16"],
    );
    has(
        Tool::Sglang,
        "python3 -m sglang.benchmark.serving --model m --num-prompts 9 --request-rate 4 \
        --max-concurrency 8 --dataset-name random",
        &["of: 8", "then: hold"],
    );
    has(
        Tool::Sglang,
        "python3 -m sglang.bench_serving --model m --dataset-name generated-shared-prefix \
        --gsp-num-groups 2 --gsp-prompts-per-group 3 --gsp-num-turns 4 --max-concurrency 2",
        &["count: 4", "sessions: 6"],
    );
    has(
        Tool::Guidellm,
        "guidellm benchmark --target http://h:1 --rate-type constant --rate 4 --detect-saturation \
        --data prompt_tokens=9",
        &["stop_when_saturated: true"],
    );
    has(
        Tool::Lmdeploy,
        "profile_pipeline_api.py d.json m --log-level ERROR --num-prompts 9 --stream-output",
        &["--log-level ERROR", "a log of the engine"],
    );
    has(
        Tool::Aiperf,
        "aiperf profile --model m --url http://a:1 --url http://b:2 --isl 100 --osl 10 \
        --session-turns-mean 4 --session-turns-stddev 1 --session-turn-delay-mean 500 \
        --concurrency 2 --num-conversations 9 --server-metrics http://a:1/metrics",
        &[
            "- http://a:1/v1/chat/completions",
            "- http://b:2/v1/chat/completions",
            "think_time: 500ms",
            "mean: 4",
            "- url: http://a:1/metrics",
        ],
    );
    has(
        Tool::Aiperf,
        "aiperf profile --model m --isl 100 --osl 10 --request-rate 8 \
        --request-rate-ramp-duration 10 --benchmark-duration 40",
        &["rate: 0/s -> 8/s", "for: 10s", "for: 30s"],
    );
    has(
        Tool::Aiperf,
        "aiperf profile --model m --input-file t.jsonl --custom-dataset-type mooncake_trace \
        --fixed-schedule --synthesis-speedup-ratio 2 --synthesis-max-isl 4096",
        &["speed: 2", "max: 4096"],
    );
    has(
        Tool::Aiperf,
        "aiperf profile --model m --isl 100 --osl 10 --session-turns-mean 4 --concurrency 2 \
        --num-conversations 9 --system-idle-gap-cap-seconds 5",
        &["max_idle: 5s"],
    );
}

#[test]
fn flags_without_which_the_load_is_another_one_are_lost() {
    for (tool, command) in [
        (
            Tool::Aiperf,
            "aiperf profile --model m --isl 100 --request-rate 8 --request-rate-ramp-duration 10",
        ),
        (
            Tool::Aiperf,
            "aiperf profile --model m --isl-osl-pairs 100:10,200:20",
        ),
        (Tool::Aiperf, "aiperf profile --config plan.yaml --model m"),
        (
            Tool::Aiperf,
            "aiperf profile --model m --random-range-ratio 0.5",
        ),
        (Tool::Vllm, "vllm bench serve --model m --self-timed"),
        (
            Tool::Guidellm,
            "guidellm benchmark run --scenario chat --target http://h:1 --rate-type sweep --data prompt_tokens=9",
        ),
        (
            Tool::Guidellm,
            "guidellm run --target http://h:1 --profile kind=constant,rate=4,rampup_duration=5 --data prompt_tokens=9",
        ),
        (
            Tool::Guidellm,
            "guidellm benchmark --target http://h:1 --rate-type concurrent --rate 4 \
            --over-saturation --data prompt_tokens=9",
        ),
    ] {
        let imported = imported(tool, command);
        let lost = imported.accounts.iter().any(|account| account.loses_load);
        assert!(lost, "{command}\n{}", imported.yaml);
    }
}

#[test]
fn a_search_range_that_ends_below_its_start_is_an_error() {
    let command = "evalscope perf --model m --url http://h:1 --dataset openqa --sla-auto-tune \
    --sla-variable parallel --sla-params '[{\"p99_ttft\": \"<=2\"}]' --sla-lower-bound 64 \
    --sla-upper-bound 8";
    assert!(error(Tool::Evalscope, command).contains("--sla-upper-bound"));
}
