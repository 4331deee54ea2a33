//! `llmscen doctor`: the facts about this machine and a server that a bug report needs.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{Sources, load_text};
use crate::cli::output::plural;
use crate::cli::run::new_context;
use crate::cli::terminal::Terminal;
use crate::cli::try_request::{describe_failure, format_tokens, send_request, since_send};
use crate::run::prepare::identify_server;
use crate::run::single_request::SingleRequest;
use crate::run::stop::Stop;
use clap::Args;
use llmscen_client::http::ServerIdentity;
use llmscen_core::plan::{CaseFilter, Plan};
use llmscen_core::url_secrets::redact_url;
use llmscen_report::format::{bytes, millis, plain};
use llmscen_telemetry::gpu::VisibleGpus;
use llmscen_telemetry::gpu::nvml::Nvidia;
use llmscen_telemetry::host::machine;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The path of requests if the URL has none.
const CHAT_PATH: &str = "/v1/chat/completions";
/// The variable with the API key of the server.
pub const API_KEY: &str = "LLM_API_KEY";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Server to look at: http://127.0.0.1:8000; its key comes from $LLM_API_KEY
    pub url: Option<String>,
    /// Model to ask [default: the first one that the server lists]
    #[arg(long, value_name = "NAME", requires = "url")]
    pub model: Option<String>,
}

/// Prints the facts. With a URL it also sends one request.
pub fn doctor(args: &DoctorArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    for (name, fact) in machine_facts(env) {
        print_fact(name, &fact, terminal);
    }
    match &args.url {
        None => Exit::Pass,
        Some(url) => {
            terminal.print("\n");
            examine_server(url, args.model.as_deref(), env, terminal)
        }
    }
}

fn print_fact(name: &str, fact: &str, terminal: &mut Terminal) {
    terminal.print(&format!("{name:<11} {}\n", plain(fact)));
}

fn machine_facts(env: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let machine = machine();
    let files = getrlimit(Resource::Nofile)
        .current
        .map_or("no limit".to_owned(), |limit| {
            format!("{limit}; a request in flight needs one (raise it: ulimit -n)")
        });
    let gpu = match Nvidia::find(&VisibleGpus::from_env(env, &["CUDA_VISIBLE_DEVICES"])) {
        Ok(found) => {
            let version = |name: &str, version: Option<String>| {
                version.map_or_else(String::new, |version| format!(", {name} {version}"))
            };
            found
                .describe()
                .unwrap_or_else(|| plural(found.count(), "NVIDIA GPU"))
                + &version("driver", found.driver_version())
                + &version("CUDA", found.cuda_version())
        }
        Err(why) => format!("none: {why}"),
    };
    let upper = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
    let set: Vec<&str> = upper
        .into_iter()
        .filter(|name| env.contains_key(*name) || env.contains_key(&name.to_lowercase()))
        .collect();
    let proxies = match set.as_slice() {
        [] => "none".to_owned(),
        set => format!(
            "{} set; loopback addresses never use a proxy",
            set.join(", ")
        ),
    };
    vec![
        ("llmscen", env!("CARGO_PKG_VERSION").to_owned()),
        (
            "system",
            format!("{}, kernel {}", machine.os, machine.kernel),
        ),
        (
            "cores",
            format!("{} usable, {}", machine.cores, machine.cpu),
        ),
        ("memory", bytes(machine.memory as f64)),
        ("open files", files),
        ("timer", timer_fact()),
        ("GPU", gpu),
        ("proxies", proxies),
    ]
}

/// How late this machine wakes a thread: what is late here is late in a measurement.
fn timer_fact() -> String {
    const TICKS: usize = 100;
    let tick = Duration::from_millis(1);
    let mut late: Vec<f64> = (0..TICKS)
        .map(|_| {
            let began = Instant::now();
            std::thread::sleep(tick);
            (began.elapsed().saturating_sub(tick)).as_secs_f64() * 1000.0
        })
        .collect();
    late.sort_by(f64::total_cmp);
    let (p50, p99) = (late[TICKS / 2 - 1], late[TICKS * 99 / 100 - 1]);
    let advice = match p99 {
        p99 if p99 > 1.0 => "; this machine is busy or virtual, so run llmscen on an idle core",
        _ => "",
    };
    format!("late by {} p50, {} p99{advice}", millis(p50), millis(p99))
}

/// The scenario that asks a server for a few tokens. JSON texts are YAML texts.
fn scenario(url: &str, model: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "version: 1\nname: doctor\ntarget: {{ url: {}, model: {}, api_key: \"${{{API_KEY}:-}}\" \
         }}\nrequest: {{ max_tokens: 16 }}\ndataset: {{ kind: prompt, text: Count from one to \
         ten. }}\nload: {{ concurrency: 1, requests: 1 }}\n",
        quoted(&request_url(url)),
        quoted(model)
    )
}

/// The URL of requests: with a scheme, and with the chat path if there is none.
pub fn request_url(url: &str) -> String {
    let url = match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    };
    let root = url.trim_end_matches('/');
    let path = root
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'))
        .map(|(_, path)| path);
    match path {
        None => format!("{root}{CHAT_PATH}"),
        Some(path) if path == "v1" || path.ends_with("/v1") => {
            format!("{}{CHAT_PATH}", root.trim_end_matches("/v1"))
        }
        Some(_) => url,
    }
}

/// What the server at this URL says about itself. `None` after printing why it cannot be asked.
pub fn identify(
    url: &str,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<ServerIdentity, Exit> {
    let plan = load_text(&scenario(url, "unknown"), env, terminal).ok_or(Exit::Scenario)?;
    let (events, _) = mpsc::channel();
    let context = new_context(env, CaseFilter::default(), Stop::default(), events);
    match identify_server(&plan, &context) {
        Ok(found) => Ok(found.unwrap_or_default()),
        Err(error) => {
            terminal.error(&error.to_string());
            Err(Exit::Error)
        }
    }
}

fn examine_server(
    url: &str,
    model: Option<&str>,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Exit {
    print_fact("server", &redact_url(&request_url(url)), terminal);
    let found = match identify(url, env, terminal) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let engine: Vec<String> = found.owner.into_iter().chain(found.version).collect();
    print_fact(
        "engine",
        &match engine.as_slice() {
            [] => "unknown: neither /v1/models nor /version says it".to_owned(),
            _ => engine.join(" "),
        },
        terminal,
    );
    let models = found.models.unwrap_or_default();
    print_fact(
        "models",
        &match models.as_slice() {
            [] => "not listed by GET /v1/models".to_owned(),
            _ => models.join(", "),
        },
        terminal,
    );
    let Some(model) = model.or(models.first().map(String::as_str)) else {
        terminal.error("no model to ask\n  help: name it with --model");
        return Exit::Error;
    };
    let Some(plan) = load_text(&scenario(url, model), env, terminal) else {
        return Exit::Scenario;
    };
    match ask(&plan, env) {
        Ok(sent) => {
            let exit = print_exchange(&sent, model, terminal);
            if exit == Exit::Pass {
                terminal.status(&format!("next: llmscen init --url {}", redact_url(url)));
            }
            exit
        }
        Err(why) => {
            terminal.error(&why);
            Exit::Error
        }
    }
}

fn ask(plan: &Plan, env: &BTreeMap<String, String>) -> Result<SingleRequest, String> {
    let folder = tempfile::Builder::new()
        .prefix("llmscen-doctor-")
        .tempdir()
        .map_err(|error| format!("cannot create a temporary folder: {error}; set TMPDIR"))?;
    send_request(plan, 0, &Sources::default(), folder.path(), env)
        .map_err(|error| error.to_string())
}

fn print_exchange(sent: &SingleRequest, model: &str, terminal: &mut Terminal) -> Exit {
    let outcome = &sent.outcome;
    let after = |at| millis(since_send(outcome, at).millis());
    if let Err(failure) = &outcome.end {
        let hint = sent
            .hint
            .as_ref()
            .map_or(String::new(), |hint| format!("\n  {hint}"));
        terminal.error(&format!("{}{hint}", describe_failure(failure)));
        return Exit::Error;
    }
    print_fact(
        "request",
        &format!("ok in {}, model {model}", after(outcome.timeline.end)),
        terminal,
    );
    let streaming = match outcome.timeline.tokens.as_slice() {
        [first, ..] if outcome.streamed => format!(
            "yes, first token after {}, {}",
            after(*first),
            plural(outcome.timeline.tokens.len(), "token event")
        ),
        _ => "no: TTFT, ITL and TPOT are unavailable".to_owned(),
    };
    print_fact("streaming", &streaming, terminal);
    let usage = format_tokens(&outcome.usage, None)
        .unwrap_or_else(|| "not reported: set `dataset.tokenizer` to count tokens".to_owned());
    print_fact("usage", usage.trim_start_matches("usage: "), terminal);
    Exit::Pass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_gets_that_of_chat() {
        for (given, expected) in [
            ("http://h:8000", "http://h:8000/v1/chat/completions"),
            ("h:8000/", "http://h:8000/v1/chat/completions"),
            ("https://h/v1", "https://h/v1/chat/completions"),
            (
                "https://h/openai/v1/",
                "https://h/openai/v1/chat/completions",
            ),
            ("http://h/v1/completions", "http://h/v1/completions"),
        ] {
            assert_eq!(request_url(given), expected);
        }
    }

    #[test]
    fn the_scenario_is_valid_whatever_the_url_holds() {
        let env = BTreeMap::new();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = crate::cli::terminal::OutputArgs {
            quiet: false,
            no_color: true,
        };
        let mut terminal = Terminal::new(&mut out, &mut err, (false, false), &env, &args);
        let text = scenario("http://h:1/a\"b: {", "m: \"x\" # no comment");
        // The quote is no part of a URL, so that is the only error.
        assert!(load_text(&scenario("http://h:1", "m: \"x\" #"), &env, &mut terminal).is_some());
        assert!(text.contains("m: \\\"x\\\" # no comment"), "{text}");
    }
}
