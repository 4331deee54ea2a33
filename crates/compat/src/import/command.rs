//! The commands of a tool, and the parser of its command lines.

use crate::import::Translate;
use crate::import::draft::Draft;
use crate::import::flags::{CommandLine, Flag, GivenFlag, ImportError, Takes, Variable};
use llmscen_scenario::document::nearest;

pub(super) struct Command {
    /// Spellings of its name without the tool's, longest first. A script may have a folder in front.
    pub names: Vec<Vec<String>>,
    /// Number of positional arguments, which are its first flags.
    pub positional: usize,
    pub flags: Vec<Flag>,
    pub translate: Translate,
}

impl Command {
    /// Translates the flags of a draft.
    pub fn apply(&self, draft: &mut Draft) -> Result<(), ImportError> {
        draft.carry_flags()?;
        (self.translate)(draft)
    }
}

/// The properties of a tool.
#[derive(Default)]
pub(super) struct ToolSpec {
    pub name: String,
    /// The release whose flags and defaults are implemented.
    pub version: String,
    /// Programs, modules and scripts that start its command lines.
    pub programs: Vec<String>,
    /// Whether its parser accepts unique prefixes of flags, as Python's argparse does.
    pub abbreviates: bool,
    pub commands: Vec<Command>,
}

impl ToolSpec {
    /// Its commands, for an error message.
    fn usage(&self) -> String {
        let names = self
            .commands
            .iter()
            .filter_map(|command| command.names.first());
        names
            .map(|name| name.join(" "))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// A command line split into its parts.
pub(super) struct Invocation {
    /// Variables set in front of the command.
    pub variables: Vec<(String, String)>,
    pub command: &'static Command,
    pub args: Vec<String>,
}

impl Invocation {
    /// Splits the words into flags with their values.
    pub fn parse(&self, tool: &'static ToolSpec) -> Result<CommandLine, ImportError> {
        let variable = |(name, value): &(String, String)| Variable {
            name: name.clone(),
            value: value.clone(),
            keys: Vec::new(),
            note: None,
        };
        let mut given: Vec<GivenFlag> = Vec::new();
        let mut words = self.args.iter().peekable();
        let mut positional = self.command.flags.iter().take(self.command.positional);
        while let Some(word) = words.next() {
            if !is_flag(word) {
                let flag = positional
                    .next()
                    .ok_or_else(|| ImportError::Stray(word.clone()))?;
                given.push(GivenFlag::new(flag, String::new(), vec![word.clone()]));
                continue;
            }
            let (written, inline) = match word
                .split_once('=')
                .filter(|(name, _)| name.starts_with("--"))
            {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            };
            let flag = find_flag(tool, self.command, &written)?;
            let mut values: Vec<String> = inline.into_iter().collect();
            let most = match flag.takes {
                Takes::Nothing => 0,
                Takes::One | Takes::Secret => 1,
                Takes::Many => usize::MAX,
                Takes::Switch => usize::from(
                    words
                        .peek()
                        .is_some_and(|next| matches!(next.as_str(), "true" | "false")),
                ),
            };
            while values.len() < most && words.peek().is_some_and(|next| !is_flag(next)) {
                values.extend(words.next().cloned());
            }
            if values.is_empty() && !matches!(flag.takes, Takes::Nothing | Takes::Switch) {
                return Err(ImportError::Bare(written));
            }
            given.push(GivenFlag::new(flag, written, values));
        }
        Ok(CommandLine {
            variables: self.variables.iter().map(variable).collect(),
            given,
        })
    }
}

/// Finds the command in `[NAME=VALUE …] [python3 [-m]] [TOOL] [COMMAND] FLAGS`. A single argument with spaces is
/// split as a shell does, line continuations included.
pub(super) fn recognize(
    tool: &'static ToolSpec,
    args: &[String],
) -> Result<Invocation, ImportError> {
    let mut words = match args {
        [one] if one.contains(char::is_whitespace) => {
            shell_words::split(one).map_err(|_| ImportError::Quote)?
        }
        _ => args.to_vec(),
    };
    let mut variables = Vec::new();
    while let Some((name, value)) = words.first().and_then(|word| assignment(word)) {
        variables.push((name.to_owned(), value.to_owned()));
        words.remove(0);
    }
    if words.first().is_some_and(|word| is_python(file_name(word))) {
        words.remove(0);
        if words.first().is_some_and(|word| word == "-m") {
            words.remove(0);
        }
    }
    if words
        .first()
        .is_some_and(|word| tool.programs.iter().any(|name| name == file_name(word)))
    {
        words.remove(0);
    }
    let begins = |name: &&Vec<String>| {
        words.len() >= name.len()
            && words
                .iter()
                .zip(name.iter())
                .enumerate()
                .all(|(index, (word, expected))| {
                    *expected == if index == 0 { file_name(word) } else { word }
                })
    };
    let named = tool
        .commands
        .iter()
        .find_map(|command| Some((command, command.names.iter().find(begins)?.len())));
    let (command, length) = match (named, tool.commands.as_slice()) {
        (Some(found), _) => found,
        (None, [only]) => (only, 0),
        // Flags alone are those of the first command, unless it has positional arguments.
        (None, [first, ..])
            if first.positional == 0 && words.first().is_none_or(|word| is_flag(word)) =>
        {
            (first, 0)
        }
        (None, _) => {
            return Err(ImportError::Command {
                tool: &tool.name,
                known: tool.usage(),
            });
        }
    };
    words.drain(..length);
    Ok(Invocation {
        variables,
        command,
        args: words,
    })
}

/// `NAME=VALUE` in front of a command.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()))
        .then_some((name, value))
}

fn is_python(word: &str) -> bool {
    word.strip_prefix("python")
        .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The file name of a path.
fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether a word is a flag; `-1` and `-0.5` are numbers.
fn is_flag(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()))
}

/// Finds a flag by a spelling, or by a unique prefix where the tool accepts that.
fn find_flag(
    tool: &'static ToolSpec,
    command: &'static Command,
    written: &str,
) -> Result<&'static Flag, ImportError> {
    let name_or_prefix = written.replace('_', "-");
    if let Some(found) = command
        .flags
        .iter()
        .find(|flag| flag.names().any(|name| name == name_or_prefix))
    {
        return Ok(found);
    }
    let begins = |flag: &&Flag| flag.names().any(|name| name.starts_with(&name_or_prefix));
    let mut meant = command.flags.iter().filter(begins).filter(|_| {
        tool.abbreviates && name_or_prefix.len() > 3 && name_or_prefix.starts_with("--")
    });
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ImportError::Unknown {
            tool: &tool.name,
            flag: written.to_owned(),
            near: nearest(written, command.flags.iter().flat_map(Flag::names)),
        }),
    }
}
