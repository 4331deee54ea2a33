//! Renders prompts to request bodies. The template is compiled once; a request costs a walk over its parts. Values
//! are inserted as data, so a prompt cannot break the JSON.

mod body;
mod form;
mod prompt_hash;
mod speech;
pub mod values;

use crate::render::body::{Body, Scope, TextError};
use crate::render::speech::{Dialog, tools};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
pub use form::describe_form;
use llmscen_core::api::{Api, SPEECH_RATE};
use llmscen_core::dataset::Prompt;
use llmscen_core::expect::{MissingTruth, Truths};
use llmscen_core::plan::Case;
use llmscen_core::quantity::Quantity;
use llmscen_core::request::{RequestSpec, sample_length};
use llmscen_core::seed::Seed;
use llmscen_core::target::ModelShare;
use llmscen_core::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use speech::is_system;
pub use speech::spoken;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::Write;

/// Why a body cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A text of the template does not compile or evaluate.
    #[error("the template's `{at}` cannot be rendered: {message}")]
    Leaf {
        /// Dotted path of the text in the body.
        at: String,
        /// The cause.
        message: String,
    },
    /// `max_tokens: { from: item.x }`, and the row has no such number.
    #[error("the dataset's row has no number `{0}`, which `max_tokens` reads")]
    Length(String),
    /// A check of the answer reads a field that the row does not have.
    #[error(transparent)]
    Truth(#[from] MissingTruth),
    /// A body of Realtime without a message.
    #[error(
        "a request to openai-realtime has no `items`; its body has the keys `session`, `items` and `response`"
    )]
    NoItems,
    /// The body is not a mapping.
    #[error("a request body must be a mapping")]
    Shape,
    /// The API uploads audio, and the row has none.
    #[error("the dataset's row has no audio, which {0} uploads; use `dataset.kind: audio`")]
    Audio(Api),
}

impl From<TextError> for RenderError {
    fn from(TextError { at, message }: TextError) -> RenderError {
        RenderError::Leaf { at, message }
    }
}

/// A rendered body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The body: JSON, or a form; for a WebSocket, a JSON message per line.
    pub bytes: Vec<u8>,
    /// Its `content-type`; None: JSON.
    pub content_type: Option<String>,
    /// The request has audio, of this duration if it is known.
    pub audio: Option<Option<Nanos>>,
    /// The model in it.
    pub model: String,
    /// Whether it requests a stream.
    pub streamed: bool,
    /// Maximum output tokens, where it is known.
    pub max_tokens: Option<u64>,
    /// Number of documents to rank.
    pub items: Option<u64>,
    /// The truths of the answer; None: it is not checked.
    pub truths: Option<Truths>,
    /// Equal for equal prompts.
    pub prompt_hash: u64,
}

/// Renders the bodies of a case.
pub struct Renderer {
    case: Case,
    body: Body,
    /// The body is the protocol's default: fields without a value are omitted.
    is_default_body: bool,
    extra: Body,
    labels: Map<String, Value>,
    /// The protocol has a `stream` field in the body; others use the path or a header.
    has_stream_field: bool,
    stream_options: Option<Value>,
    /// The body has the field `model`.
    has_model_field: bool,
    /// Paths of the output limit in the body, with alternative names.
    limit_paths: Vec<String>,
}

const MAX_TOKENS: &str = "max_tokens";
/// The newer name in OpenAI's chat API.
const NEW_LIMIT: &str = "max_completion_tokens";

impl Renderer {
    /// Compiles the template of a case. Without a template the body of the protocol is used, for a stream or not,
    /// such as `{"model": "{{ model }}", "messages": "{{ messages }}", "stream": true, "stream_options":
    /// {"include_usage": true}}`. `stream` and `stream_options` are added to the finished body; a protocol without
    /// `stream` gets none.
    ///
    /// # Errors
    /// A text that does not compile, or a template that is not a mapping.
    pub fn new(
        case: &Case,
        protocol_body: impl Fn(bool) -> Value,
    ) -> Result<Renderer, RenderError> {
        // A whole body from the dataset may request a stream where the scenario does not.
        let stream_options = protocol_body(true).get("stream_options").cloned();
        let protocol_body = protocol_body(streams(&case.request));
        let is_default_body = case.request.template.is_none();
        let template = case.request.template.clone().unwrap_or_else(|| {
            let mut body = protocol_body.clone();
            if let Value::Object(body) = &mut body {
                body.retain(|key, _| key != "stream" && key != "stream_options");
            }
            body
        });
        if !template.is_object() {
            return Err(RenderError::Shape);
        }
        let labels = case
            .labels
            .0
            .iter()
            .map(|(path, value)| {
                (
                    path.rsplit('.').next().unwrap_or(path).to_owned(),
                    json!(value),
                )
            })
            .collect();
        let limit_path = case
            .target
            .api
            .body_path(MAX_TOKENS)
            .map(|path| path.into_owned());
        let other = (limit_path.as_deref() == Some(MAX_TOKENS)).then(|| NEW_LIMIT.to_owned());
        Ok(Renderer {
            case: case.clone(),
            body: Body::compile(&template, "")?,
            is_default_body,
            extra: Body::compile(&Value::Object(case.request.extra.clone()), "")?,
            labels,
            has_stream_field: !case.target.websocket && protocol_body.get("stream").is_some(),
            stream_options,
            has_model_field: [&template, &protocol_body]
                .iter()
                .any(|body| body.get("model").is_some()),
            limit_paths: limit_path.into_iter().chain(other).collect(),
        })
    }

    /// The body of request `seq`. Equal seeds, numbers and prompts give equal bodies. Model, length and sampling of
    /// the prompt override the scenario.
    ///
    /// # Errors
    /// A variable that the row does not have.
    pub fn body(&self, prompt: &Prompt, seq: u64, seed: Seed) -> Result<Rendered, RenderError> {
        let drawn = || draw_model(&self.case.target.models, seed.child("model").child(seq));
        let model = prompt.model.as_deref().unwrap_or_else(drawn);
        let max_tokens = self.max_tokens(prompt, seed.child("max_tokens").child(seq))?;
        let dialog = Dialog::new(
            prompt,
            self.case.dataset.system.as_deref(),
            self.case.target.api,
        );
        let scope = Scope {
            model,
            seq,
            max_tokens,
            prompt,
            labels: &self.labels,
            dialog,
            context: OnceCell::new(),
        };
        let mut body = match &prompt.body {
            Some(row_body) => self.body_from_data(row_body, prompt, model),
            None => self.render_template(&scope)?,
        };
        self.fill_fields(&mut body, max_tokens, prompt);
        if let Some(previous) = &prompt.previous_response {
            body.insert("previous_response_id".to_owned(), json!(previous.id));
        }
        let expect = self.case.request.expect.as_ref();
        let truths = expect.map(|expect| expect.truths(&prompt.fields));
        let Value::Object(extra) = self.extra.eval(&scope, false)? else {
            return Err(RenderError::Shape);
        };
        self.ask_for_counts(&mut body, &extra);
        body::merge_fields(&mut body, extra);
        self.add_includes(&mut body);
        let (bytes, content_type) =
            self.encode(&body, prompt, seed.child("boundary").child(seq))?;
        Ok(Rendered {
            audio: prompt.audio.as_ref().map(|audio| audio.duration),
            content_type,
            bytes,
            model: body
                .get("model")
                .and_then(Value::as_str)
                .unwrap_or(model)
                .to_owned(),
            streamed: self.is_streamed(&body),
            max_tokens: self.output_limit(&body, max_tokens),
            items: self.count_documents(&body),
            truths: truths.transpose()?,
            prompt_hash: prompt_hash::of(&body, prompt.audio.as_ref()),
        })
    }

    /// The bytes of a body and their `content-type`, unless that is JSON.
    fn encode(
        &self,
        body: &Map<String, Value>,
        prompt: &Prompt,
        seed: Seed,
    ) -> Result<(Vec<u8>, Option<String>), RenderError> {
        let api = self.case.target.api;
        let has_items = || {
            let items = body.get("items").and_then(Value::as_array);
            items.is_some_and(|items| !items.is_empty())
        };
        if api == Api::OpenaiRealtime && prompt.audio.is_none() && !has_items() {
            return Err(RenderError::NoItems);
        }
        if self.case.target.websocket {
            return Ok((messages_of_request(api, body, prompt), None));
        }
        if !api.uploads_audio() {
            let bytes = serde_json::to_vec(body).map_err(|_| RenderError::Shape)?;
            return Ok((bytes, None));
        }
        let file = prompt.audio.as_ref().ok_or(RenderError::Audio(api))?;
        let boundary = form::boundary(seed);
        let bytes = form::encode(body, file, &boundary);
        Ok((bytes, Some(form::content_type(&boundary))))
    }

    fn max_tokens(&self, prompt: &Prompt, seed: Seed) -> Result<Option<u64>, RenderError> {
        let (None, Some(quantity)) = (prompt.max_tokens, &self.case.request.max_tokens) else {
            return Ok(prompt.max_tokens);
        };
        match (draw_length(quantity, seed, &prompt.fields), quantity) {
            (None, Quantity::Item(name)) => Err(RenderError::Length(name.clone())),
            (drawn, _) => Ok(drawn),
        }
    }

    fn render_template(&self, scope: &Scope<'_>) -> Result<Map<String, Value>, RenderError> {
        match self.body.eval(scope, self.is_default_body)? {
            Value::Object(map) => Ok(map),
            _ => Err(RenderError::Shape),
        }
    }

    /// A body from the dataset replaces the template. The model is filled in; a model that the row names overrides
    /// the body's.
    fn body_from_data(
        &self,
        row_body: &Map<String, Value>,
        prompt: &Prompt,
        model: &str,
    ) -> Map<String, Value> {
        let mut body = row_body.clone();
        if self.has_model_field && (prompt.model.is_some() || !body.contains_key("model")) {
            body.insert("model".to_owned(), json!(model));
        }
        self.override_body(&mut body, prompt);
        body
    }

    /// The length of the row overrides that of its body, under the name that the body uses. Custom protocols use the
    /// names of the chat API.
    fn override_body(&self, body: &mut Map<String, Value>, prompt: &Prompt) {
        let custom = self.case.target.api == Api::Custom;
        let path_of = |field: &str| {
            if custom {
                Some(field.to_owned())
            } else {
                self.case.target.api.body_path(field).map(Cow::into_owned)
            }
        };
        for (field, value) in &prompt.sampling {
            if let Some(path) = path_of(field) {
                body::set_field(body, &path, value.clone());
            }
        }
        let names = if custom {
            &[MAX_TOKENS.to_owned(), NEW_LIMIT.to_owned()][..]
        } else {
            &self.limit_paths
        };
        let path = names
            .iter()
            .find(|path| body::get_field(body, path).is_some())
            .or(names.first());
        if let (Some(max_tokens), Some(path)) = (prompt.max_tokens, path) {
            body::set_field(body, path, json!(max_tokens));
        }
    }

    /// Adds fields of the prompt and of `request` that the template does not have.
    fn fill_fields(&self, body: &mut Map<String, Value>, max_tokens: Option<u64>, prompt: &Prompt) {
        if self.has_stream_field {
            body.entry("stream")
                .or_insert(Value::Bool(self.case.request.stream));
        }
        if let (Some(max_tokens), Some(path)) = (max_tokens, self.limit_paths.first())
            && !self
                .limit_paths
                .iter()
                .any(|path| body::get_field(body, path).is_some())
        {
            body::fill_field(body, path, json!(max_tokens));
        }
        for (field, value) in prompt.sampling.iter().chain(&self.case.request.sampling) {
            let puts = self
                .case
                .target
                .api
                .body_fields(field, &tools(self.case.target.api, field, value));
            // Where the field is present, the fields that accompany it are left alone.
            if puts
                .first()
                .is_some_and(|(path, _)| body::get_field(body, path).is_none())
            {
                puts.into_iter()
                    .for_each(|(path, value)| body::fill_field(body, &path, value));
            }
        }
    }

    /// Requests token counts for a stream, unless the template or `extra` (merged next) sets `stream_options`.
    fn ask_for_counts(&self, body: &mut Map<String, Value>, extra: &Map<String, Value>) {
        if extra.get("stream").or(body.get("stream")) == Some(&Value::Bool(true))
            && let Some(options) = &self.stream_options
        {
            body.entry("stream_options")
                .or_insert_with(|| options.clone());
        }
    }

    /// Adds what a field needs to the body's `include` list, also to that of the template or `extra`.
    fn add_includes(&self, body: &mut Map<String, Value>) {
        let puts = self
            .case
            .request
            .sampling
            .iter()
            .flat_map(|(field, value)| self.case.target.api.body_fields(field, value));
        for (_, needed) in puts.filter(|(path, _)| path == "include") {
            if let (Some(Value::Array(list)), Value::Array(needed)) =
                (body.get_mut("include"), needed)
            {
                let missing: Vec<Value> = needed
                    .into_iter()
                    .filter(|value| !list.contains(value))
                    .collect();
                list.extend(missing);
            }
        }
    }

    /// Number of documents to rank: the response may name only the best. Embeddings are counted in the response.
    fn count_documents(&self, body: &Map<String, Value>) -> Option<u64> {
        let documents = (self.case.target.api == Api::Rerank)
            .then(|| body.get("documents").or_else(|| body.get("texts")));
        Some(documents??.as_array()?.len() as u64)
    }

    /// Whether a body requests a stream; where the protocol has no such field, the scenario decides.
    fn is_streamed(&self, body: &Map<String, Value>) -> bool {
        let stream = body.get("stream").and_then(Value::as_bool);
        stream.unwrap_or(!self.has_stream_field && self.case.request.stream)
    }

    /// Output tokens that a body allows. With `api: custom` the place is not known, so the drawn length is used.
    fn output_limit(&self, body: &Map<String, Value>, max_tokens: Option<u64>) -> Option<u64> {
        let limit = self
            .limit_paths
            .iter()
            .find_map(|path| body::get_field(body, path))
            .and_then(Value::as_u64);
        limit.or(max_tokens.filter(|_| self.case.target.api == Api::Custom))
    }
}

/// The messages that send a body over a WebSocket, one per line. What only HTTP uses is left out.
fn messages_of_request(api: Api, body: &Map<String, Value>, prompt: &Prompt) -> Vec<u8> {
    const OF_HTTP: [&str; 3] = ["type", "stream", "background"];
    let mut lines = Lines::default();
    if api != Api::OpenaiRealtime {
        let fields = body.iter().map(|(field, value)| (field.as_str(), value));
        let fields = fields.filter(|(field, _)| !OF_HTTP.contains(field));
        lines.push("response.create", fields);
        return lines.0;
    }
    // The server that has the conversation so far has the settings of the session, too, unless the turn replaces them.
    let mut added = prompt.messages.iter().flatten();
    let is_new = !prompt.continues || prompt.system.is_some() || added.any(is_system);
    let session = body.get("session").filter(|_| is_new);
    if let Some(session) = session {
        let with_audio = prompt.audio.as_ref().map(|_| with_audio_input(session));
        let session = with_audio.as_ref().unwrap_or(session);
        lines.push("session.update", [("session", session)]);
    }
    let has_text = prompt.audio.is_none() || !prompt.text.is_empty();
    let items = body.get("items").and_then(Value::as_array);
    let items = items.filter(|_| has_text);
    if let Some(audio) = &prompt.audio {
        for piece in audio.bytes.chunks(AUDIO_PIECE) {
            let samples = Value::from(STANDARD.encode(piece));
            lines.push("input_audio_buffer.append", [("audio", &samples)]);
        }
        lines.push("input_audio_buffer.commit", []);
    }
    for item in items.into_iter().flatten() {
        lines.push("conversation.item.create", [("item", item)]);
    }
    let response = body.get("response").map(|response| ("response", response));
    lines.push("response.create", response);
    lines.0
}

/// Bytes of audio per event: 100 ms, in steps of 6 bytes, which are whole samples and whole groups of base64.
const AUDIO_PIECE: usize = SPEECH_RATE as usize * 2 / 10;

/// The settings of a session whose turns end with `input_audio_buffer.commit`, not where the server detects silence.
fn with_audio_input(session: &Value) -> Value {
    let mut session = session.clone();
    if let Value::Object(fields) = &mut session {
        let format = json!({ "type": "audio/pcm", "rate": SPEECH_RATE });
        body::fill_field(fields, "audio.input.format", format);
        body::fill_field(fields, "audio.input.turn_detection", Value::Null);
    }
    session
}

/// Events as JSON, one per line.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push<'a>(&mut self, kind: &str, fields: impl IntoIterator<Item = (&'a str, &'a Value)>) {
        if !self.0.is_empty() {
            self.0.push(b'\n');
        }
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{{\"type\":\"{kind}\"");
        for (field, value) in fields {
            let _ = write!(self.0, ",{}:{value}", Value::from(field));
        }
        self.0.push(b'}');
    }
}

/// Whether the bodies of a request ask for a stream: `extra` overrides the template, the template overrides
/// `request.stream`.
pub fn streams(request: &RequestSpec) -> bool {
    let template = request
        .template
        .as_ref()
        .and_then(|body| body.get("stream"));
    let stream = request
        .extra
        .get("stream")
        .or(template)
        .and_then(Value::as_bool);
    stream.unwrap_or(request.stream)
}

/// Draws a length of at least 1. None where `fields` does not have it as a number.
pub(super) fn draw_length(
    quantity: &Quantity,
    seed: Seed,
    fields: &Map<String, Value>,
) -> Option<u64> {
    sample_length(quantity, fields, &mut ChaCha8Rng::seed_from_u64(seed.0)).filter(|n| *n >= 1)
}

/// Draws a model by weight.
pub(super) fn draw_model(models: &[ModelShare], seed: Seed) -> &str {
    let total: f64 = models.iter().map(|share| share.weight).sum();
    let mut left = ChaCha8Rng::seed_from_u64(seed.0).random::<f64>() * total;
    for share in models {
        left -= share.weight;
        if left < 0.0 {
            return &share.name;
        }
    }
    models.last().map_or("", |share| &share.name)
}

#[cfg(test)]
mod tests;
