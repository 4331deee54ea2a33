//! The supported APIs: names, paths, and the body field for each request setting.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;

/// Samples per second of the speech of Realtime, each 16 bits, little-endian, one channel.
pub const SPEECH_RATE: u32 = 24_000;

/// The API of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI chat completions.
    OpenaiChat,
    /// OpenAI text completions.
    OpenaiCompletions,
    /// OpenAI responses.
    OpenaiResponses,
    /// OpenAI Realtime, over WebSocket only.
    OpenaiRealtime,
    /// OpenAI embeddings.
    OpenaiEmbeddings,
    /// Rerank, as Cohere, Jina and vLLM serve it.
    Rerank,
    /// OpenAI transcriptions: audio in, its text out.
    OpenaiTranscriptions,
    /// OpenAI translations: audio in, its English text out.
    OpenaiTranslations,
    /// OpenAI speech: text in, audio out.
    OpenaiSpeech,
    /// OpenAI image generation.
    OpenaiImages,
    /// DashScope's native generation.
    Dashscope,
    /// Anthropic messages.
    Anthropic,
    /// Ollama's native chat (NDJSON).
    Ollama,
    /// Text Generation Inference's native generation.
    Tgi,
    /// Defined by the scenario's template and `request.extract`.
    Custom,
    /// No network API: a model in this process.
    Local,
}

impl Api {
    /// All protocols, in the order of the documentation.
    pub const ALL: [Api; 16] = [
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiRealtime,
        Api::OpenaiEmbeddings,
        Api::Rerank,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::OpenaiSpeech,
        Api::OpenaiImages,
        Api::Dashscope,
        Api::Anthropic,
        Api::Ollama,
        Api::Tgi,
        Api::Custom,
        Api::Local,
    ];

    /// The name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Api::OpenaiChat => "openai-chat",
            Api::OpenaiCompletions => "openai-completions",
            Api::OpenaiResponses => "openai-responses",
            Api::OpenaiRealtime => "openai-realtime",
            Api::OpenaiEmbeddings => "openai-embeddings",
            Api::Rerank => "rerank",
            Api::OpenaiTranscriptions => "openai-transcriptions",
            Api::OpenaiTranslations => "openai-translations",
            Api::OpenaiSpeech => "openai-speech",
            Api::OpenaiImages => "openai-images",
            Api::Dashscope => "dashscope",
            Api::Anthropic => "anthropic",
            Api::Ollama => "ollama",
            Api::Tgi => "tgi",
            Api::Custom => "custom",
            Api::Local => "local",
        }
    }

    /// Parses [`Api::name`].
    pub fn parse(name: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.name() == name)
    }

    /// The usual URL path, which may depend on streaming. Empty: there is no usual path.
    pub fn path(self, stream: bool) -> &'static str {
        match self {
            Api::OpenaiChat => "/v1/chat/completions",
            Api::OpenaiCompletions => "/v1/completions",
            Api::OpenaiResponses => "/v1/responses",
            Api::OpenaiRealtime => "/v1/realtime",
            Api::OpenaiEmbeddings => "/v1/embeddings",
            Api::Rerank => "/v1/rerank",
            Api::OpenaiTranscriptions => "/v1/audio/transcriptions",
            Api::OpenaiTranslations => "/v1/audio/translations",
            Api::OpenaiSpeech => "/v1/audio/speech",
            Api::OpenaiImages => "/v1/images/generations",
            Api::Dashscope => "/api/v1/services/aigc/text-generation/generation",
            Api::Anthropic => "/v1/messages",
            Api::Ollama => "/api/chat",
            Api::Tgi if stream => "/generate_stream",
            Api::Tgi => "/generate",
            Api::Custom | Api::Local => "",
        }
    }

    /// Whether the API generates text, and so can stream.
    pub fn generates(self) -> bool {
        !matches!(
            self,
            Api::OpenaiEmbeddings | Api::Rerank | Api::OpenaiSpeech | Api::OpenaiImages
        )
    }

    /// Whether the request is a form (`multipart/form-data`) with an audio file.
    pub fn uploads_audio(self) -> bool {
        matches!(self, Api::OpenaiTranscriptions | Api::OpenaiTranslations)
    }

    /// Whether the request holds one text as its only input.
    pub fn takes_one_text(self) -> bool {
        matches!(
            self,
            Api::OpenaiCompletions | Api::Tgi | Api::OpenaiSpeech | Api::OpenaiImages
        )
    }

    /// Whether a conversation can be sent as one text, which the reply continues.
    pub fn continues_text(self) -> bool {
        self.takes_one_text() && self.generates()
    }

    /// Whether requests can be messages on a WebSocket.
    pub fn has_websocket(self) -> bool {
        matches!(self, Api::OpenaiResponses | Api::OpenaiRealtime)
    }

    /// Whether responses can be audio.
    pub fn speaks(self) -> bool {
        matches!(self, Api::OpenaiSpeech | Api::OpenaiRealtime)
    }

    /// Whether the audio of a request is sent in pieces at playback speed, as samples of [`SPEECH_RATE`].
    pub fn streams_audio(self) -> bool {
        self == Api::OpenaiRealtime
    }

    /// Whether the server keeps the conversation of a connection.
    pub fn keeps_conversation(self) -> bool {
        self == Api::OpenaiRealtime
    }

    /// Whether the request holds a list of messages, so that a system message is possible.
    pub fn takes_messages(self) -> bool {
        !matches!(
            self,
            Api::OpenaiCompletions
                | Api::OpenaiEmbeddings
                | Api::Rerank
                | Api::OpenaiTranscriptions
                | Api::OpenaiTranslations
                | Api::OpenaiSpeech
                | Api::OpenaiImages
                | Api::Tgi
        )
    }

    /// The dotted path in the body for a field of `request:` (`max_tokens`, `temperature`, `stop`, …). None: the API
    /// has no such field, or the API is `custom`, whose template places every field.
    pub fn body_path(self, field: &str) -> Option<Cow<'static, str>> {
        let same = |known: &[&str]| known.contains(&field).then(|| Cow::Owned(field.to_owned()));
        let under = |head: &str, known: &[&str]| {
            known
                .contains(&field)
                .then(|| Cow::Owned(format!("{head}.{field}")))
        };
        match (self, field) {
            (Api::OpenaiChat | Api::OpenaiCompletions, _) => Some(Cow::Owned(field.to_owned())),
            (Api::OpenaiResponses, "max_tokens") => Some("max_output_tokens".into()),
            (Api::OpenaiResponses, "logprobs") => Some("top_logprobs".into()),
            (Api::OpenaiResponses, "n") => None,
            (Api::OpenaiResponses, _) => Some(Cow::Owned(field.to_owned())),
            (Api::OpenaiRealtime, "max_tokens") => Some("response.max_output_tokens".into()),
            (Api::OpenaiRealtime, _) => under("response", &["tools", "tool_choice"]),
            (Api::OpenaiEmbeddings | Api::Rerank | Api::OpenaiSpeech | Api::Custom, _) => None,
            (Api::OpenaiImages, _) => same(&["n"]),
            // OpenAI documents the temperature only; the others are vLLM's.
            (Api::OpenaiTranscriptions | Api::OpenaiTranslations, "max_tokens") => {
                Some("max_completion_tokens".into())
            }
            (Api::OpenaiTranscriptions | Api::OpenaiTranslations, _) => same(&[
                "temperature",
                "top_p",
                "top_k",
                "min_p",
                "frequency_penalty",
                "presence_penalty",
                "repetition_penalty",
                "seed",
            ]),
            (Api::Dashscope, _) => under(
                "parameters",
                &[
                    "max_tokens",
                    "temperature",
                    "top_p",
                    "top_k",
                    "presence_penalty",
                    "repetition_penalty",
                    "stop",
                    "n",
                    "seed",
                    "logprobs",
                    "tools",
                    "tool_choice",
                ],
            ),
            (Api::Anthropic, "stop") => Some("stop_sequences".into()),
            (Api::Anthropic, _) => same(&[
                "max_tokens",
                "temperature",
                "top_p",
                "top_k",
                "tools",
                "tool_choice",
            ]),
            (Api::Ollama, "max_tokens") => Some("options.num_predict".into()),
            (Api::Ollama, "repetition_penalty") => Some("options.repeat_penalty".into()),
            (Api::Ollama, "logprobs" | "tools") => Some(Cow::Owned(field.to_owned())),
            (Api::Ollama, _) => under(
                "options",
                &[
                    "temperature",
                    "top_p",
                    "top_k",
                    "min_p",
                    "frequency_penalty",
                    "presence_penalty",
                    "stop",
                    "seed",
                ],
            ),
            (Api::Local, _) => same(&[
                "max_tokens",
                "temperature",
                "top_p",
                "top_k",
                "min_p",
                "repetition_penalty",
                "stop",
                "seed",
                "ignore_eos",
            ]),
            (Api::Tgi, "max_tokens") => Some("parameters.max_new_tokens".into()),
            (Api::Tgi, _) => under(
                "parameters",
                &[
                    "temperature",
                    "top_p",
                    "top_k",
                    "frequency_penalty",
                    "repetition_penalty",
                    "stop",
                    "seed",
                ],
            ),
        }
    }

    /// The body fields (dotted path and value) that a field of `request:` sets. Usually one field with the same
    /// value; `logprobs` is a flag or a count of alternatives, and each API encodes it differently. Empty: the API
    /// has no such field.
    pub fn body_fields(self, field: &str, value: &Value) -> Vec<(Cow<'static, str>, Value)> {
        let Some(place) = self.body_path(field) else {
            return Vec::new();
        };
        let requested = *value != Value::Bool(false);
        match (self, field) {
            (Api::OpenaiCompletions | Api::OpenaiResponses, "logprobs") if !requested => Vec::new(),
            (Api::OpenaiCompletions, "logprobs") if value.is_boolean() => vec![(place, json!(1))],
            (Api::OpenaiResponses, "logprobs") => {
                let count = if value.is_boolean() {
                    json!(0)
                } else {
                    value.clone()
                };
                vec![
                    (place, count),
                    ("include".into(), json!(["message.output_text.logprobs"])),
                ]
            }
            (Api::OpenaiChat | Api::Dashscope | Api::Ollama, "logprobs") if value.is_number() => {
                let top = if self == Api::Dashscope {
                    "parameters.top_logprobs"
                } else {
                    "top_logprobs"
                };
                vec![(place, json!(true)), (top.into(), value.clone())]
            }
            _ => vec![(place, value.clone())],
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_match_serde() {
        for api in Api::ALL {
            assert_eq!(Api::parse(api.name()), Some(api));
            assert_eq!(serde_json::to_value(api).unwrap(), api.name());
        }
        assert_eq!(Api::parse("openai"), None);
    }

    #[test]
    fn each_api_has_a_path_for_max_tokens() {
        let path = |api: Api| api.body_path("max_tokens").map(|path| path.into_owned());
        let spelled = Api::ALL.map(path);
        let known = [
            Some("max_tokens"),
            Some("max_tokens"),
            Some("max_output_tokens"),
            Some("response.max_output_tokens"),
            None,
            None,
            Some("max_completion_tokens"),
            Some("max_completion_tokens"),
            None,
            None,
            Some("parameters.max_tokens"),
            Some("max_tokens"),
            Some("options.num_predict"),
            Some("parameters.max_new_tokens"),
            None,
            Some("max_tokens"),
        ];
        assert_eq!(spelled, known.map(|path| path.map(str::to_owned)));
        assert_eq!(
            (Api::Anthropic.body_path("seed"), Api::Ollama.body_path("n")),
            (None, None)
        );
    }

    #[test]
    fn each_api_encodes_logprobs() {
        let encode = |api: Api, value: Value| {
            let puts = api.body_fields("logprobs", &value);
            serde_json::to_value(
                puts.into_iter()
                    .map(|(path, value)| (path.into_owned(), value))
                    .collect::<Vec<_>>(),
            )
            .unwrap()
        };
        let include = json!(["include", ["message.output_text.logprobs"]]);
        for (api, yes, three, no) in [
            (
                Api::OpenaiChat,
                json!([["logprobs", true]]),
                json!([["logprobs", true], ["top_logprobs", 3]]),
                json!([["logprobs", false]]),
            ),
            (
                Api::OpenaiCompletions,
                json!([["logprobs", 1]]),
                json!([["logprobs", 3]]),
                json!([]),
            ),
            (
                Api::OpenaiResponses,
                json!([["top_logprobs", 0], include]),
                json!([["top_logprobs", 3], include]),
                json!([]),
            ),
            (
                Api::Dashscope,
                json!([["parameters.logprobs", true]]),
                json!([
                    ["parameters.logprobs", true],
                    ["parameters.top_logprobs", 3]
                ]),
                json!([["parameters.logprobs", false]]),
            ),
            (
                Api::Ollama,
                json!([["logprobs", true]]),
                json!([["logprobs", true], ["top_logprobs", 3]]),
                json!([["logprobs", false]]),
            ),
            (Api::Anthropic, json!([]), json!([]), json!([])),
        ] {
            assert_eq!(
                (
                    encode(api, json!(true)),
                    encode(api, json!(3)),
                    encode(api, json!(false))
                ),
                (yes, three, no),
                "{api}"
            );
        }
        assert_eq!(
            Api::Ollama.body_fields("top_k", &json!(4)),
            [("options.top_k".into(), json!(4))]
        );
    }
}
