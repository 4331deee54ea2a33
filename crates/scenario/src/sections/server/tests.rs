use super::*;
use crate::tests::load_with;
use llmscen_core::plan::Plan;
use llmscen_core::target::Restart;

fn plan(target: &str, more: &str) -> Plan {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ {target} }}\ndataset: {{ kind: prompt, text: x }}\nload: \
        {{ concurrency: 1, requests: 1 }}\n{more}"
    );
    load_with(&text, &[("TOK", "t0ken")], &[])
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan
}

fn server(plan: &Plan, case: usize) -> &ManagedServer {
    plan.cases[case].target.server.as_ref().unwrap()
}

const URL: &str = "url: \"http://127.0.0.1:8000/v1/chat/completions\", model: m";

#[test]
fn command_may_refer_to_the_target_and_has_defaults() {
    let plan = plan(
        &format!(
            "{URL}, server: {{ command: \"serve {{{{ target.model }}}} --at {{{{ target.url \
            }}}}\", ready: {{ log: up }} }}"
        ),
        "",
    );
    let own = server(&plan, 0);
    assert_eq!(
        own.command,
        [
            "serve",
            "m",
            "--at",
            "http://127.0.0.1:8000/v1/chat/completions"
        ]
    );
    assert_eq!(
        (&own.ready, own.log.as_str(), own.restart),
        (&Readiness::Log("up".into()), "server.log", Restart::Variant)
    );
    assert_eq!(
        (own.timeout.secs(), own.interval.secs(), own.grace.secs()),
        (1800.0, 1.0, 10.0)
    );
    assert_eq!(plan.cases[0].target.metrics, []);
}

#[test]
fn preset_fills_in_missing_keys() {
    let plan = plan(
        &format!("{URL}, server: {{ preset: vllm, args: {{ dtype: half }} }}"),
        "",
    );
    let own = server(&plan, 0);
    assert_eq!(
        own.command.join(" "),
        "vllm serve m --host 127.0.0.1 --port 8000 --dtype half"
    );
    assert_eq!(
        own.ready,
        Readiness::Url("http://127.0.0.1:8000/health".into())
    );
    assert_eq!(
        plan.cases[0].target.metrics[0].scrape.url,
        "http://127.0.0.1:8000/metrics"
    );
    let other = self::plan(
        &format!(
            "{URL}, server: {{ preset: ollama, command: [o, 1], ready: {{ url: \"http://h/x\" }}, \
            env: {{ OLLAMA_HOST: \"h:1\", A: b }} }}"
        ),
        "",
    );
    let own = server(&other, 0);
    assert_eq!(
        (own.command.join(" ").as_str(), &own.ready),
        ("o 1", &Readiness::Url("http://h/x".into()))
    );
    let env: Vec<(&str, &str)> = own
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    assert_eq!(env, [("OLLAMA_HOST", "h:1"), ("A", "b")]);
}

#[test]
fn an_objective_on_cached_tokens_makes_a_known_server_report_them() {
    let command = |settings: &str, objective: &str| {
        let plan = plan(
            &format!("{URL}, server: {{ {settings} }}"),
            &format!("slo: [{objective}]\n"),
        );
        server(&plan, 0).command.join(" ")
    };
    let start = "vllm serve m --host 127.0.0.1 --port 8000";
    let share = "cached_share >= 50%";
    let flag = "--enable-prompt-tokens-details";
    assert_eq!(command("preset: vllm", share), format!("{start} {flag}"));
    assert_eq!(command("preset: vllm", "ttft.p95 < 1s"), start);
    let refused = "preset: vllm, args: { no_enable_prompt_tokens_details: true }";
    assert_eq!(
        command(refused, share),
        format!("{start} --no-enable-prompt-tokens-details")
    );
    assert!(command("preset: sglang", share).ends_with(" --enable-cache-report"));
    assert_eq!(
        command("preset: vllm, command: ./start.sh", share),
        "./start.sh"
    );
    assert!(!command("preset: tgi", share).contains("cache"));
}

#[test]
fn a_cache_reset_of_sglang_waits_for_half_of_its_time_limit() {
    let steps = |preset: &str, action: &str| -> Vec<String> {
        let target = format!("{URL}, server: {{ preset: {preset} }}");
        let plan = plan(&target, &format!("hooks: {{ before_case: [{action}] }}\n"));
        let actions = plan.cases[0].hooks.before_case.iter();
        actions.map(|action| action.step.describe()).collect()
    };
    let flush = "POST http://127.0.0.1:8000/flush_cache?timeout=";
    assert_eq!(steps("sglang", "reset_cache"), [format!("{flush}30")]);
    let short = "{ action: reset_cache, timeout: 5s }";
    assert_eq!(steps("sglang", short), [format!("{flush}2.5")]);
    let reset = "POST http://127.0.0.1:8000/reset_prefix_cache";
    assert_eq!(steps("vllm", "reset_cache"), [reset]);
}

#[test]
fn matrix_varies_arguments_that_the_scenario_omits() {
    let matrix = "matrix: { target.server.args.max_num_seqs: [64, 128] }\n";
    let plan = plan(
        &format!("{URL}, server: {{ command: s, ready: {{ log: up }} }}"),
        matrix,
    );
    assert_eq!(
        [
            server(&plan, 0).command.join(" "),
            server(&plan, 1).command.join(" ")
        ],
        ["s --max-num-seqs 64", "s --max-num-seqs 128"]
    );
    assert_eq!(plan.cases[1].id, "max_num_seqs=128");
}

#[test]
fn environment_values_are_not_stored() {
    let plan = plan(
        &format!(
            "{URL}, server: {{ command: s, ready: {{ log: up }}, env: {{ HF_TOKEN: \"${{TOK}}\", \
            MY_KEY: secret7, LEVEL: info }} }}"
        ),
        "",
    );
    assert_eq!(server(&plan, 0).env[0].1.expose(), "t0ken");
    assert!(
        !plan.resolved.contains("t0ken") && !plan.resolved.contains("secret7"),
        "{}",
        plan.resolved
    );
    assert!(
        plan.resolved.contains("HF_TOKEN: ${TOK}") && plan.resolved.contains("LEVEL: info"),
        "{}",
        plan.resolved
    );
}

#[test]
fn numbers_keep_their_notation() {
    let server = "server: { command: [s, 1e3, 7], ready: { log: up }, args: { share: 0.90, n: 4, \
    on: true }, env: { OMP_NUM_THREADS: 2, RATE: 0.50, ON: True } }";
    let text = format!(
        "version: 1\nname: t\ntarget: {{ {URL}, {server} }}\ndataset: {{ kind: prompt, text: x \
        }}\nload: {{ concurrency: 1, requests: 1 }}\n"
    );
    let set = [
        ("target.server.env.OTHER", "012"),
        ("target.server.args.hex", "0x10"),
    ];
    let plan = load_with(&text, &[], &set).unwrap().plan;
    let own = self::server(&plan, 0);
    assert_eq!(
        own.command.join(" "),
        "s 1e3 7 --share 0.90 -n 4 --on --hex 0x10"
    );
    let env: Vec<String> = own
        .env
        .iter()
        .map(|(name, value)| format!("{name}={}", value.expose()))
        .collect();
    assert_eq!(
        env,
        ["OMP_NUM_THREADS=2", "RATE=0.50", "ON=True", "OTHER=012"]
    );
    assert_eq!(crate::tests::plan(&plan.resolved), plan);
}

#[test]
fn swept_numbers_keep_their_notation() {
    let matrix = "matrix: { target.server.args.share: [0.80, 0.90, '0.950'], exclude: [{ \
    target.server.args.share: 0.8 }] }\n";
    let target =
        format!("{URL}, server: {{ command: s, ready: {{ log: up }}, args_style: snake }}");
    let plan = plan(&target, matrix);
    let seen: Vec<_> = (0..plan.cases.len())
        .map(|case| {
            (
                server(&plan, case).command.join(" "),
                plan.cases[case].id.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("s --share 0.90".to_owned(), "share=0.90"),
            ("s --share 0.950".to_owned(), "share=0.950")
        ]
    );
    assert_eq!(crate::tests::plan(&plan.resolved), plan);
}

#[test]
fn origin_is_split_into_host_and_port() {
    assert_eq!(
        split_origin("http://h:80/v1"),
        ("http://h:80".into(), "h", "80")
    );
    assert_eq!(
        split_origin("https://u:p@[::1]/x:y@z"),
        ("https://[::1]".into(), "::1", "443")
    );
    assert_eq!(
        split_origin("http://[::1]:9?x"),
        ("http://[::1]:9".into(), "::1", "9")
    );
}

const ON: Endpoint<'static> = Endpoint {
    model: "org/m",
    host: "127.0.0.1",
    port: "8000",
};

#[test]
fn documentation_shows_the_preset_commands() {
    let page = include_str!("../../../../../docs/how-to/managed-servers.md");
    for preset in &PRESETS {
        let env = preset
            .env(&ON)
            .iter()
            .map(|(name, value)| format!("{name}={value} "))
            .collect::<String>();
        let command = env + &preset.command(&ON).join(" ");
        let metrics = preset
            .metrics
            .map_or("none".to_owned(), |path| format!("`{path}`"));
        let row = format!(
            "| `{}` | `{command}` | `{}` | {metrics} |",
            preset.name, preset.ready
        );
        assert!(
            page.contains(&row),
            "docs/how-to/managed-servers.md lacks:\n{row}"
        );
    }
}

#[test]
fn ipv6_address_is_bracketed_before_a_port() {
    let on = Endpoint { host: "::1", ..ON };
    let of = |name: &str| PRESETS.iter().find(|preset| preset.name == name).unwrap();
    assert_eq!(
        of("ollama").env(&on),
        [("OLLAMA_HOST".to_owned(), "[::1]:8000".to_owned())]
    );
    assert_eq!(of("vllm").command(&on)[4], "::1");
}
