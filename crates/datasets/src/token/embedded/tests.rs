use super::*;

/// The built-in tokenizer as the data of a GGUF file, with two additional tokens.
fn data(split: &str) -> Embedded {
    let inner = super::super::builtin_tokenizer();
    let whole: Value = serde_json::from_str(&inner.to_string(false).unwrap()).unwrap();
    let merges = whole["model"]["merges"].as_array().unwrap();
    let merges = merges
        .iter()
        .map(|pair| {
            format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            )
        })
        .collect();
    let mut tokens: Vec<String> = (0..8192).map(|id| inner.id_to_token(id).unwrap()).collect();
    tokens.extend(["<s>".to_owned(), "<end>".to_owned()]);
    let types = (0..8194).map(|id| if id < 8192 { 1 } else { 3 }).collect();
    let template =
        Some("{{ bos_token }}{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}".into());
    let (bos, eos) = (Some(8192), Some(8193));
    Embedded {
        kind: "gpt2".into(),
        pre_tokenizer: split.into(),
        tokens,
        types,
        merges,
        bos,
        eos,
        adds_bos: None,
        template,
    }
}

#[test]
fn it_reads_as_the_file_that_it_was_made_of() {
    let path = Path::new("m.gguf");
    let (gpt, builtin) = (
        Tokenizer::embedded(path, &data("gpt-2")).unwrap().0,
        Tokenizer::builtin(),
    );
    let text = "What would you cook in 1984,  on a rainy\n evening? naïve 中文 🙂";
    assert_eq!(gpt.encode(text, true), builtin.encode(text, true));
    assert_eq!(gpt.decode(&gpt.encode(text, false).unwrap()).unwrap(), text);
    let hi = builtin.encode("hi", false).unwrap();
    assert_eq!(
        gpt.encode("<s>hi<end>", true).unwrap(),
        [&[8192], &hi[..], &[8193]].concat()
    );
    assert_eq!(
        gpt.decode(&[&[8192], &hi[..], &[8193]].concat()).unwrap(),
        "hi"
    );
    let chat = gpt
        .chat(&[json!({ "role": "user", "content": "hi" })], None)
        .unwrap();
    assert_eq!(chat, "<s>hi<end>");
}

fn encoded(split: &str, text: &str) -> Vec<u32> {
    Tokenizer::embedded(Path::new("m.gguf"), &data(split))
        .unwrap()
        .0
        .encode(text, true)
        .unwrap()
}

/// The pieces, each tokenized alone.
fn ids(pieces: &[&str]) -> Vec<u32> {
    let builtin = Tokenizer::builtin();
    pieces
        .iter()
        .flat_map(|piece| builtin.encode(piece, false).unwrap())
        .collect()
}

#[test]
fn families_split_numbers_each_in_its_way() {
    assert_eq!(encoded("qwen2", "1984"), ids(&["1", "9", "8", "4"]));
    assert_eq!(
        encoded("smollm", "in 1984"),
        ids(&["in", " ", "1", "9", "8", "4"])
    );
    assert_eq!(
        encoded("llama-bpe", "1984"),
        [vec![8192], ids(&["198", "4"])].concat()
    );
    assert_eq!(
        encoded("tekken", "1984"),
        [vec![8192], ids(&["1", "9", "8", "4"])].concat()
    );
    assert_eq!(encoded("deepseek-llm", "1984"), ids(&["1984"]));
    assert_eq!(
        encoded("dbrx", "1984"),
        ids(&["198", "4"]),
        "no BOS unless the file asks for one"
    );
}

#[test]
fn every_pre_tokenizer_keeps_the_text() {
    let text = "I'LL cook 12345 naïve  中文 かな 가나 dishes…\n\n\tfn main() { x+=1; } // ¡no! 🙂  \r\n end ";
    let mut seen: Vec<&[&str]> = Vec::new();
    for name in pre_tokenizer::names() {
        let patterns = pre_tokenizer::find(name).unwrap().patterns;
        if seen.contains(&patterns) {
            continue;
        }
        seen.push(patterns);
        let tokenizer = Tokenizer::embedded(Path::new("m.gguf"), &data(name))
            .unwrap()
            .0;
        assert_eq!(
            tokenizer
                .decode(&tokenizer.encode(text, true).unwrap())
                .unwrap(),
            text,
            "{name}"
        );
    }
    assert!(
        pre_tokenizer::names()
            .windows(2)
            .all(|pair| pair[0] < pair[1]),
        "each name is there once"
    );
}

#[test]
fn other_kinds_are_errors_with_the_action() {
    let text = |data: &Embedded| {
        Tokenizer::embedded(Path::new("m.gguf"), data)
            .unwrap_err()
            .to_string()
    };
    let piece = Embedded {
        kind: "llama".into(),
        ..data("gpt-2")
    };
    assert_eq!(
        text(&piece),
        "the tokenizer in m.gguf is not supported: its kind is `llama`; only `gpt2` \
         (byte-level BPE) is supported; add the tokenizer.json of the model to its folder"
    );
    let unknown = text(&data("afmoe"));
    assert!(
        unknown.contains(
            "the pre-tokenizer `afmoe` is not supported; supported are a.x-4.0, bailingmoe, "
        ),
        "{unknown}"
    );
    assert!(
        unknown.ends_with("; add the tokenizer.json of the model to its folder"),
        "{unknown}"
    );
    assert!(text(&data("")).contains("the file does not name its pre-tokenizer"));
}

#[test]
fn the_template_of_the_file_wins_over_the_one_beside_it() {
    let folder = super::super::trained::CHATML.folder("byte-level");
    let path = folder.path().join("m.gguf");
    let message = [json!({ "role": "user", "content": "hi" })];
    let unknown = Embedded {
        pre_tokenizer: "afmoe".into(),
        ..data("afmoe")
    };
    let (own, source) = Tokenizer::embedded(&path, &unknown).unwrap();
    assert_eq!(
        (own.chat(&message, None).unwrap().as_str(), source),
        ("<s>hi<end>", TemplateSource::Gguf)
    );
    let without = Embedded {
        template: None,
        ..unknown
    };
    let (beside, source) = Tokenizer::embedded(&path, &without).unwrap();
    assert!(
        beside
            .chat(&message, None)
            .unwrap()
            .contains("<|im_start|>user"),
        "{:?}",
        beside.chat(&message, None)
    );
    assert_eq!(
        source,
        TemplateSource::File(folder.path().join("tokenizer_config.json"))
    );
    let alone = Tokenizer::embedded(
        Path::new("m.gguf"),
        &Embedded {
            template: None,
            ..data("gpt-2")
        },
    )
    .unwrap();
    assert!(alone.0.chat_template().is_none() && alone.1 == TemplateSource::None);
}

#[test]
fn the_file_says_whether_plain_text_begins_with_bos() {
    let with = |adds_bos: Option<bool>, split: &str| {
        let data = Embedded {
            adds_bos,
            ..data(split)
        };
        Tokenizer::embedded(Path::new("m.gguf"), &data)
            .unwrap()
            .0
            .encode("hi", true)
            .unwrap()
    };
    let hi = ids(&["hi"]);
    let bos = [vec![8192], hi.clone()].concat();
    assert_eq!(
        (with(None, "gpt-2"), with(Some(true), "gpt-2")),
        (hi.clone(), bos.clone())
    );
    assert_eq!(
        (with(None, "llama-bpe"), with(Some(false), "llama-bpe")),
        (bos, hi)
    );
}
