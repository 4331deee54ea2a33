//! Pre-tokenizers: how text is split before byte pairs are merged, by the names that GGUF files give them
//! (`tokenizer.ggml.pre`).
//!
//! The names are those of llama.cpp. The patterns are those of the models' own tokenizer.json files where these are
//! known, and the equivalent ones of llama.cpp otherwise. Not supported are SentencePiece-like ones (`gemma4`), those
//! of embedding models, and those that need more than patterns (`afmoe`, `superbpe`).

/// A way to split text.
#[derive(Debug)]
pub struct PreTokenizer {
    pub names: &'static [&'static str],
    /// Applied one after another to the pieces of the previous one: matches and the text between them become pieces.
    pub patterns: &'static [&'static str],
    /// Text is normalized to NFC first.
    pub composed: bool,
    /// A piece that is a token as a whole is not merged from bytes.
    pub ignore_merges: bool,
    /// Plain text begins with the BOS token unless the file says otherwise.
    pub adds_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Letters of scripts with two cases, as DeepSeek LLM lists them.
const CASED: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const CJK: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
const HAN_KANA: &str = r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DIGIT: &str = r"\p{N}";
const DIGITS_3: &str = r"\p{N}{1,3}";

const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    patterns: &[],
    composed: false,
    ignore_merges: false,
    adds_bos: false,
};

static ALL: [PreTokenizer; 26] = [
    PreTokenizer {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        patterns: &[DIGIT, GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        patterns: &[LLAMA3],
        ignore_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        patterns: &[LLAMA3],
        ..PLAIN
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen2"],
        patterns: &[QWEN2],
        composed: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "deepseek-r1-qwen",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "kormo",
            "grok-2",
        ],
        patterns: &[QWEN2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        patterns: &[QWEN35],
        composed: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"],
        patterns: &[GPT4O],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tiny_aya", "cohere2moe"],
        patterns: &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        patterns: &[TEKKEN],
        ignore_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["kimi-k2"],
        patterns: &[KIMI],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            CASED,
            r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            CJK,
            r"\p{N}+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[DIGITS_3, HAN_KANA, DEEPSEEK3],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        patterns: &[BLOOM],
        ..PLAIN
    },
    PreTokenizer {
        names: &["viking"],
        patterns: &[BLOOM, DIGIT],
        ..PLAIN
    },
    PreTokenizer {
        names: &["seed-coder"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        patterns: &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["exaone-moe"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["jais-2"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["minicpm5"],
        patterns: &[
            DIGITS_3,
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["ufakzeka"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["laguna"],
        patterns: &[r"[^\n]+|[\n]+", QWEN2],
        ..PLAIN
    },
];

/// The pre-tokenizer of that name.
pub fn find(name: &str) -> Option<&'static PreTokenizer> {
    ALL.iter().find(|each| each.names.contains(&name))
}

/// The names of all, in order of the alphabet.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = ALL
        .iter()
        .flat_map(|each| each.names.iter().copied())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_all() {
        let page = include_str!("../../../../docs/how-to/local-models.md");
        for name in names() {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/how-to/local-models.md lacks `{name}`"
            );
        }
    }
}
