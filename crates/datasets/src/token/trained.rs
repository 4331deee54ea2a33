//! Small tokenizers of every kind, trained on the spot, and chat templates in the manner of well-known models.

use super::Tokenizer;
use super::chat::ChatTemplate;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::Metaspace;
use tokenizers::pre_tokenizers::whitespace::Whitespace;
use tokenizers::{AddedToken, Model, ModelWrapper, Tokenizer as Inner, Trainer};

const TEXT: &str = include_str!("../../data/openqa.jsonl");

fn special(name: &str) -> AddedToken {
    AddedToken::from(name, true)
}

fn train<T: Trainer>(
    inner: &mut Inner,
    mut trainer: T,
    wrap: impl Fn(T::Model) -> ModelWrapper,
    mut model: T::Model,
) where
    T::Model: Model,
{
    let words = |line: &str| {
        let mut text = tokenizers::PreTokenizedString::from(line);
        if let Some(split) = inner.get_pre_tokenizer() {
            tokenizers::PreTokenizer::pre_tokenize(split, &mut text).unwrap();
        }
        let parts = text.get_splits(
            tokenizers::OffsetReferential::Original,
            tokenizers::OffsetType::Byte,
        );
        Ok(parts
            .into_iter()
            .map(|(part, ..)| part.to_owned())
            .collect())
    };
    trainer.feed(TEXT.lines(), words).unwrap();
    let special = trainer.train(&mut model).unwrap();
    inner.with_model(wrap(model));
    inner.add_special_tokens(special).unwrap();
}

fn empty() -> Inner {
    Inner::new(BPE::default())
}

fn byte_level() -> Inner {
    let mut inner = empty();
    let bytes = ByteLevel::new(false, true, true);
    inner
        .with_pre_tokenizer(Some(bytes))
        .with_decoder(Some(bytes));
    let trainer = BpeTrainer::builder().vocab_size(900).show_progress(false);
    let trainer = trainer.initial_alphabet(ByteLevel::alphabet().into_iter().collect());
    train(
        &mut inner,
        trainer.special_tokens(vec![special("<|end|>")]).build(),
        ModelWrapper::BPE,
        BPE::default(),
    );
    inner
}

/// No decoder: tokens come back joined by blanks, so that pieces of words fall apart.
fn plain_bpe() -> Inner {
    let mut inner = empty();
    inner.with_pre_tokenizer(Some(Whitespace {}));
    let model = BPE::builder().unk_token("<unk>".into()).build().unwrap();
    let trainer = BpeTrainer::builder()
        .vocab_size(400)
        .show_progress(false)
        .special_tokens(vec![special("<unk>")]);
    train(&mut inner, trainer.build(), ModelWrapper::BPE, model);
    inner
}

fn unigram() -> Inner {
    let mut inner = empty();
    inner
        .with_pre_tokenizer(Some(Metaspace::default()))
        .with_decoder(Some(Metaspace::default()));
    let trainer = UnigramTrainer::builder()
        .vocab_size(600)
        .show_progress(false)
        .unk_token(Some("<unk>".into()))
        .special_tokens(vec![special("<unk>")])
        .build()
        .unwrap();
    train(
        &mut inner,
        trainer,
        ModelWrapper::Unigram,
        Unigram::default(),
    );
    inner
}

fn wordpiece() -> Inner {
    let mut inner = empty();
    inner
        .with_normalizer(Some(BertNormalizer::default()))
        .unwrap();
    inner
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_decoder(Some(tokenizers::decoders::wordpiece::WordPiece::default()));
    let special = ["[UNK]", "[CLS]"].map(special).to_vec();
    let trainer = WordPieceTrainer::builder()
        .vocab_size(700)
        .show_progress(false)
        .special_tokens(special)
        .build();
    train(
        &mut inner,
        trainer,
        ModelWrapper::WordPiece,
        WordPiece::default(),
    );
    inner
}

/// Every kind, by name.
pub static ALL: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
    let trained = [
        ("byte-level", byte_level()),
        ("bpe", plain_bpe()),
        ("unigram", unigram()),
        ("wordpiece", wordpiece()),
    ];
    let trained = trained
        .into_iter()
        .map(|(name, inner)| (name, Tokenizer::wrap(inner, false)));
    trained.chain([("builtin", Tokenizer::builtin())]).collect()
});

/// A chat template, and the tokens of its model.
pub struct Chat {
    pub name: &'static str,
    pub source: &'static str,
    special: &'static [&'static str],
    bos: &'static str,
}

pub const CHATML: Chat = Chat {
    name: "chatml",
    source: "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
             message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt \
             %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    special: &["<|im_start|>", "<|im_end|>"],
    bos: "",
};

pub const LLAMA3: Chat = Chat {
    name: "llama-3",
    source: "{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.role == 'system' %}
        {{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n' }}
    {%- endif %}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
",
    special: &[
        "<|begin_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ],
    bos: "<|begin_of_text|>",
};

pub const MISTRAL: Chat = Chat {
    name: "mistral",
    source: "{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant must take turns') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system is defined %}
            {{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
",
    special: &["<s>", "</s>", "[INST]", "[/INST]"],
    bos: "<s>",
};

pub const CHATS: [Chat; 3] = [CHATML, LLAMA3, MISTRAL];

impl Chat {
    /// The tokenizer_config.json of its model.
    pub fn config(&self) -> Map<String, Value> {
        let object = json!({ "chat_template": self.source, "bos_token": self.bos,
            "eos_token": { "content": "</s>", "lstrip": false } });
        object.as_object().cloned().unwrap_or_default()
    }

    /// A trained tokenizer under this template, its special tokens known.
    pub fn over(&self, kind: &str) -> Tokenizer {
        let (_, plain) = ALL.iter().find(|(name, _)| *name == kind).unwrap();
        let mut inner = plain.inner.clone();
        inner
            .add_special_tokens(self.special.iter().map(|name| special(name)))
            .unwrap();
        let chat = ChatTemplate::new(self.source, &self.config()).unwrap();
        Tokenizer {
            chat: Some(chat),
            ..Tokenizer::wrap(inner, false)
        }
    }

    /// A model folder that holds it.
    pub fn folder(&self, kind: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        self.over(kind)
            .inner
            .save(dir.path().join("tokenizer.json"), false)
            .unwrap();
        std::fs::write(
            dir.path().join("tokenizer_config.json"),
            Value::Object(self.config()).to_string(),
        )
        .unwrap();
        dir
    }
}
