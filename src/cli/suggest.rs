//! `--concurrency 4`: what a scenario says is overridden by `--set`, whatever other tools call their flag.

use crate::cli::args::Cli;
use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory};
use llmscen_scenario::setting_named;

/// The words for an unknown option that is the name of a scenario's field: the command with `--set` instead.
pub fn suggest(error: &clap::Error, args: &[String]) -> Option<String> {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(unknown)) => unknown.to_string(),
        _ => return None,
    };
    let cli = Cli::command();
    let command = args.iter().skip(1).find_map(|arg| cli.find_subcommand(arg))?;
    command.get_arguments().find(|arg| arg.get_id() == "set")?;
    let fuzzy = error.get(ContextKind::SuggestedArg).is_none();
    let is_meant = |flag: &str| setting_named(flag, fuzzy).filter(|_| !is_known(command, &cli, flag));
    is_meant(unknown.strip_prefix("--").filter(|flag| !is_of_another(&cli, flag))?)?;
    let mut words = vec!["llmscen".to_owned()];
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        let (flag, value) = arg.split_once('=').map_or((arg.as_str(), None), |(flag, value)| (flag, Some(value.to_owned())));
        let Some(setting) = flag.strip_prefix("--").and_then(is_meant) else {
            words.push(quoted(arg));
            continue;
        };
        let value = value.or_else(|| args.next_if(|next| !next.starts_with("--")).cloned());
        // A secret on a command line is readable by every user of the machine.
        let value = if setting.secret { "${API_KEY}".to_owned() } else { value.unwrap_or_else(|| "VALUE".to_owned()) };
        words.extend(["--set".to_owned(), quoted(&format!("{}={value}", setting.path))]);
    }
    Some(format!("unknown option {unknown}\n  help: override scenario fields with --set: {}", words.join(" ")))
}

fn is_known(command: &Command, cli: &Command, flag: &str) -> bool {
    command.get_arguments().chain(cli.get_arguments()).any(|arg| arg.get_long() == Some(flag))
        || ["help", "version"].contains(&flag)
}

/// Whether another command has this option: `--output`.
fn is_of_another(cli: &Command, flag: &str) -> bool {
    cli.get_subcommands().flat_map(Command::get_arguments).any(|arg| arg.get_long() == Some(flag))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &str) -> Option<String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        suggest(&Cli::try_parse_from(&args).unwrap_err(), &args)
    }

    #[test]
    fn an_unknown_option_becomes_a_setting_with_its_value() {
        for (line, command) in [
            ("llmscen run x.yaml --concurrency 4", "llmscen run x.yaml --set load.concurrency=4"),
            ("llmscen run x.yaml --rate=8/s --quiet", "llmscen run x.yaml --set load.rate=8/s --quiet"),
            ("llmscen --quiet plan --requests 9 x.yaml", "llmscen --quiet plan --set load.requests=9 x.yaml"),
            ("llmscen run x.yaml --model m --max-tokens 8", "llmscen run x.yaml --set target.model=m --set request.max_tokens=8"),
            ("llmscen run x.yaml --url http://h:8/v1?a", "llmscen run x.yaml --set 'target.url=http://h:8/v1?a'"),
            ("llmscen run x.yaml --duration", "llmscen run x.yaml --set load.duration=VALUE"),
        ] {
            assert!(said(line).is_some_and(|said| said.ends_with(&format!("--set: {command}"))), "{:?}", said(line));
        }
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let said = said("llmscen run x.yaml --api-key sk-hush").unwrap();
        assert!(said.contains("--set 'target.api_key=${API_KEY}'") && !said.contains("sk-hush"), "{said}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        for line in [
            "llmscen run x.yaml --frobnicate",
            "llmscen run",
            "llmscen report x --concurrency 4",
            "llmscen run x --outptu y",
            "llmscen try x --output y",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
