//! Any protocol whose messages are JSON: the scenario's template goes out, its JSONPaths read what comes back.

mod extracted;
mod paths;
mod tree;

use crate::{Decoder, Protocol, Shape, shape_of};
use extracted::Extracted;
use llmscen_core::outcome::Failure;
use llmscen_core::request::{Extract, Framing};
use paths::{Path, Paths};
use serde_json::{Value, json};
use std::sync::Arc;

/// What `request.extract` says.
pub struct Custom {
    framing: Option<Framing>,
    paths: Arc<Paths>,
}

impl Custom {
    /// Compiles the paths.
    ///
    /// # Errors
    /// The key and the path that is wrong, and why.
    pub fn new(extract: Option<&Extract>) -> Result<Custom, String> {
        let extract = extract.ok_or("`api: custom` needs `request.extract`, which says what of a response is what")?;
        Ok(Custom { framing: extract.framing, paths: Arc::new(Paths::new(extract)?) })
    }
}

/// Whether this is a JSONPath (RFC 9535).
///
/// # Errors
/// What is wrong with it, and where.
pub fn check_path(path: &str) -> Result<(), String> {
    Path::new(path).map(drop)
}

impl Protocol for Custom {
    /// Nothing: a request of one's own needs a template.
    fn body(&self, _stream: bool) -> Value {
        json!({})
    }

    fn shape(&self, content_type: Option<&str>, asked_stream: bool) -> Result<Shape, Failure> {
        match self.framing {
            Some(Framing::Sse) => Ok(Shape::Stream),
            Some(Framing::Ndjson) => Ok(Shape::Lines),
            Some(Framing::Json) => Ok(Shape::Whole),
            None => shape_of(content_type, asked_stream),
        }
    }

    fn decoder(&self, shape: Shape, keep_text: bool) -> Box<dyn Decoder> {
        let extracted = Extracted::new(Arc::clone(&self.paths), keep_text);
        shape.decoder(extracted)
    }
}

#[cfg(test)]
mod peers;
#[cfg(test)]
mod tests;
