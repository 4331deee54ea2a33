//! Prompt to request body. The template is compiled once; a request costs a walk over its parts. Values are placed as data, so
//! nothing in a prompt can break the JSON.

mod body;
mod draw;
pub(crate) mod leaf;

use crate::model::plan::Case;
use crate::model::prompt::Prompt;
use crate::model::request::RequestSpec;
use crate::model::seed::Seed;
use crate::scenario::sections::request::last;
use body::{Body, Scope, merge};
use serde_json::{Map, Value, json};

/// Why a body cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A text of the template does not compile or evaluate.
    #[error("the template's `{at}` cannot be rendered: {message}")]
    Leaf {
        /// Path of the text in the body, dotted.
        at: String,
        /// What is wrong.
        message: String,
    },
    /// `max_tokens: { from: item.x }` and the row has no such number.
    #[error("the dataset's row has no number `{0}`, which `max_tokens` is to come from")]
    Length(String),
    /// The body is no mapping.
    #[error("a request body is a mapping, this one is not")]
    Shape,
}

/// A body, ready to be sent, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The body as JSON.
    pub bytes: Vec<u8>,
    /// The model it names.
    pub model: String,
    /// Whether it asks for a stream.
    pub streamed: bool,
    /// Output tokens it allows, where it says so.
    pub max_tokens: Option<u64>,
}

/// Makes the bodies of a case.
pub struct Renderer {
    case: Case,
    body: Body,
    extra: Body,
    labels: Map<String, Value>,
    stream_options: Option<Value>,
}

/// Keys by which protocols limit the output.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

impl Renderer {
    /// Compiles the template of a case; `protocol_body` stands in where it has none, such as
    /// `{"model": "{{ model }}", "messages": "{{ messages }}", "stream": true, "stream_options": {"include_usage": true}}`.
    /// Its `stream` and `stream_options` follow `request.stream`.
    ///
    /// # Errors
    /// A text that does not compile; a template that is no mapping.
    pub fn new(case: &Case, protocol_body: &Value) -> Result<Renderer, RenderError> {
        let stream_options = protocol_body.get("stream_options").cloned();
        let template = case.request.template.clone().unwrap_or_else(|| {
            let mut own = protocol_body.clone();
            if let Value::Object(own) = &mut own {
                own.retain(|key, _| key != "stream" && key != "stream_options");
            }
            own
        });
        if !template.is_object() {
            return Err(RenderError::Shape);
        }
        let labels = case.labels.0.iter().map(|(path, value)| (last(path).to_owned(), json!(value))).collect();
        let extra = Value::Object(case.request.extra.clone());
        Ok(Renderer {
            case: case.clone(),
            body: Body::compile(&template, "")?,
            extra: Body::compile(&extra, "")?,
            labels,
            stream_options,
        })
    }

    /// The body of request `seq`. Equal seeds, numbers and prompts give equal bodies.
    ///
    /// # Errors
    /// A variable that the prompt's row does not hold.
    pub fn body(&self, prompt: &Prompt, seq: u64, seed: Seed) -> Result<Rendered, RenderError> {
        let model = draw::model(&self.case.target.models, seed.child("model").child(seq));
        let max_tokens = self.max_tokens(prompt, seed.child("max_tokens").child(seq))?;
        let scope = Scope::new((model, seq, max_tokens), prompt, &self.labels, self.case.dataset.system.as_deref());
        let mut body = match &prompt.body {
            Some(whole) => self.whole(whole, model),
            None => self.template(&scope)?,
        };
        self.fill(&mut body, max_tokens);
        if let Value::Object(extra) = self.extra.eval(&scope)? {
            merge(&mut body, extra);
        }
        Ok(Rendered {
            model: body.get("model").and_then(Value::as_str).unwrap_or(model).to_owned(),
            streamed: body.get("stream") == Some(&Value::Bool(true)),
            max_tokens: LIMITS.iter().find_map(|key| body.get(*key)).and_then(Value::as_u64),
            bytes: serde_json::to_vec(&body).map_err(|_| RenderError::Shape)?,
        })
    }

    fn max_tokens(&self, prompt: &Prompt, seed: Seed) -> Result<Option<u64>, RenderError> {
        let Some(quantity) = &self.case.request.max_tokens else { return Ok(None) };
        let drawn = draw::length(quantity, seed, &prompt.fields);
        match (drawn, quantity) {
            (None, crate::model::request::Quantity::Item(name)) => Err(RenderError::Length(name.clone())),
            (drawn, _) => Ok(drawn),
        }
    }

    fn template(&self, scope: &Scope<'_>) -> Result<Map<String, Value>, RenderError> {
        match self.body.eval(scope)? {
            Value::Object(map) => Ok(map),
            _ => Err(RenderError::Shape),
        }
    }

    /// A body from the data takes the template's place. The model is filled in, for the data cannot know it.
    fn whole(&self, whole: &Map<String, Value>, model: &str) -> Map<String, Value> {
        let mut body = whole.clone();
        body.entry("model").or_insert_with(|| json!(model));
        body
    }

    /// Fields of `request` fill in what the template leaves out.
    fn fill(&self, body: &mut Map<String, Value>, max_tokens: Option<u64>) {
        body.entry("stream").or_insert(Value::Bool(self.case.request.stream));
        if body.get("stream") == Some(&Value::Bool(true))
            && let Some(options) = &self.stream_options
        {
            body.entry("stream_options").or_insert_with(|| options.clone());
        }
        if let Some(max_tokens) = max_tokens.filter(|_| !LIMITS.iter().any(|key| body.contains_key(*key))) {
            body.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        for (key, value) in &self.case.request.sampling {
            body.entry(key.as_str()).or_insert_with(|| value.clone());
        }
    }
}

/// Whether the bodies of a request ask for a stream, as far as that is fixed: `extra` wins over the template, the template
/// over `request.stream`.
pub fn streams(request: &RequestSpec) -> bool {
    let template = request.template.as_ref().and_then(|body| body.get("stream"));
    let said = request.extra.get("stream").or(template).and_then(Value::as_bool);
    said.unwrap_or(request.stream)
}

#[cfg(test)]
mod tests;
