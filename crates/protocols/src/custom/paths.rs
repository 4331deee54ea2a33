//! What a scenario's `extract` says, compiled: RFC 9535 JSONPaths into each event or the whole reply.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::{QueryRef, js_path_process};
use llmscen_core::request::{Done, Extract};
use serde_json::Value;

/// One compiled path.
#[derive(Debug)]
pub struct Path(JpQuery);

impl Path {
    /// Compiles a path.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn new(path: &str) -> Result<Path, String> {
        parse_json_path(path).map(Path).map_err(|error| format!("`{path}` is no JSONPath: {}", in_a_line(&error.to_string())))
    }

    /// The values that it selects, each with its own path.
    pub fn select<'a>(&self, value: &'a Value) -> Vec<QueryRef<'a, Value>> {
        // The error is a path that selects no node, which the grammar does not allow.
        js_path_process(&self.0, value).unwrap_or_default()
    }

    /// The first value that it selects.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.select(value).into_iter().next().map(|node| node.val)
    }
}

/// The parser draws the place of a mistake over several lines; a message has one.
fn in_a_line(drawn: &str) -> String {
    let place = drawn.lines().find_map(|line| line.split_once("--> 1:")).map(|(_, place)| place);
    let words = drawn.lines().find_map(|line| line.trim_start().strip_prefix("= "));
    match (place, words) {
        (Some(place), Some(words)) => format!("at character {}, {words}", place.trim()),
        _ => drawn.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// The end marker of a stream.
#[derive(Debug)]
pub enum End {
    /// An event with this data.
    Data(Vec<u8>),
    /// An event of this name.
    Event(Vec<u8>),
    /// An event in which the path selects this value; without one, anything but null and false.
    Value(Path, Option<Value>),
}

/// All paths of a scenario.
#[derive(Debug)]
pub struct Paths {
    /// Generated texts.
    pub text: Vec<Path>,
    /// Numbers of choices.
    pub choice: Option<Path>,
    /// Tokens of the prompt, of the output, of reasoning among it, and of the prompt from the cache.
    pub usage: [Option<Path>; 4],
    /// Why a choice ended.
    pub finish: Option<Path>,
    /// Id of the response.
    pub id: Option<Path>,
    /// An error.
    pub error: Option<Path>,
    /// The end marker.
    pub done: Option<End>,
}

impl Paths {
    /// Compiles all paths, once for a run.
    ///
    /// # Errors
    /// The place and the path of the first that is wrong, and why.
    pub fn new(extract: &Extract) -> Result<Paths, String> {
        let one = |key: &str, path: &str| Path::new(path).map_err(|error| format!("`request.extract.{key}`: {error}"));
        let maybe = |key: &str, path: &Option<String>| path.as_deref().map(|path| one(key, path)).transpose();
        if extract.text.is_empty() {
            return Err("`request.extract.text` names no path, so that no token could be seen".into());
        }
        let usage = &extract.usage;
        Ok(Paths {
            text: extract.text.iter().map(|path| one("text", path)).collect::<Result<_, _>>()?,
            choice: maybe("choice", &extract.choice)?,
            usage: [
                maybe("usage.prompt", &usage.prompt)?,
                maybe("usage.output", &usage.output)?,
                maybe("usage.reasoning", &usage.reasoning)?,
                maybe("usage.cached", &usage.cached)?,
            ],
            finish: maybe("finish", &extract.finish)?,
            id: maybe("id", &extract.id)?,
            error: maybe("error", &extract.error)?,
            done: match &extract.done {
                None => None,
                Some(Done::Data(data)) => Some(End::Data(data.trim_ascii().as_bytes().to_vec())),
                Some(Done::Event(name)) => Some(End::Event(name.as_bytes().to_vec())),
                Some(Done::Value { path, equals }) => Some(End::Value(one("done", path)?, equals.clone())),
            },
        })
    }
}
