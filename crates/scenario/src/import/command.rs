//! A tool's commands, and which of them a command line starts.

use super::draft::Draft;
use super::line::Flag;
use super::{ImportError, Tool};

/// One command of a tool.
pub(super) struct Command {
    /// Spellings of its name after the tool's own, longer ones first. A script may have a folder in front.
    pub names: &'static [&'static [&'static str]],
    /// Values without a flag, in their order.
    pub positional: &'static [Flag],
    /// Its flags.
    pub flags: &'static [&'static [Flag]],
    /// Puts the scenario together.
    pub translate: fn(&mut Draft) -> Result<(), ImportError>,
}

/// A command line in its parts.
pub(super) struct Invocation {
    /// The variables set in front of the command, in their order.
    pub variables: Vec<(String, String)>,
    /// The command.
    pub command: &'static Command,
    /// What follows it.
    pub args: Vec<String>,
}

/// Finds the command: `[NAME=VALUE …] [python3 [-m]] [TOOL] [COMMAND] FLAGS`. One word with spaces is split as a shell does, line
/// continuations included.
pub(super) fn recognize(tool: Tool, args: &[String]) -> Result<Invocation, ImportError> {
    let mut words = match args {
        [one] if one.contains(char::is_whitespace) => shell_words::split(one).map_err(|_| ImportError::Quote)?,
        _ => args.to_vec(),
    };
    let mut variables = Vec::new();
    while let Some((name, value)) = words.first().and_then(|word| assignment(word)) {
        variables.push((name.to_owned(), value.to_owned()));
        words.remove(0);
    }
    if words.first().is_some_and(|word| is_python(last(word))) {
        words.remove(0);
        if words.first().is_some_and(|word| word == "-m") {
            words.remove(0);
        }
    }
    if words.first().is_some_and(|word| tool.programs().contains(&last(word))) {
        words.remove(0);
    }
    let begins = |name: &&&[&str]| {
        words.len() >= name.len()
            && words
                .iter()
                .zip(name.iter())
                .enumerate()
                .all(|(place, (word, own))| *own == if place == 0 { last(word) } else { word })
    };
    let named = tool.commands().iter().find_map(|command| Some((command, command.names.iter().find(begins)?.len())));
    let (command, length) = match (named, tool.commands()) {
        (Some(found), _) => found,
        (None, [only]) => (only, 0),
        (None, _) => return Err(ImportError::Command { tool: tool.name(), known: tool.usage() }),
    };
    words.drain(..length);
    Ok(Invocation { variables, command, args: words })
}

/// `NAME=VALUE` in front of a command.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, value))
}

fn is_python(word: &str) -> bool {
    word.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The last part of a path.
fn last(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
