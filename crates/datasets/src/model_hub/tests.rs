use super::*;
use crate::loopback::{hub, reply};
use crate::open;
use crate::token::trained::CHATML;
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::seed::Seed;
use std::net::TcpListener;

fn cache(hub: &str) -> (tempfile::TempDir, CacheDir) {
    let dir = tempfile::tempdir().unwrap();
    let cache = CacheDir { dir: dir.path().join("cache"), hub: hub.to_owned() };
    (dir, cache)
}

fn files() -> (String, String) {
    let folder = CHATML.folder("byte-level");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    (read("tokenizer.json"), read("tokenizer_config.json"))
}

#[test]
fn a_model_s_tokenizer_comes_with_its_template_and_is_fetched_once() {
    let (tokens, config) = files();
    let (address, asked) = hub(move |path| match path {
        "/org/model-1.5/resolve/main/tokenizer.json" => reply("200 OK", "", &tokens),
        "/models/org/model-1.5/resolve/master/tokenizer_config.json" => reply("200 OK", "", &config),
        _ => reply("404 Not Found", "", ""),
    });
    let (_dir, cache) = cache(&address);
    let spec = DatasetSpec { tokenizer: Some("org/model-1.5".into()), ..DatasetSpec::of(Source::Prompt("Why?".into())) };
    let opened = open(&spec, Seed(1), 0, &cache, &|_| ()).unwrap();
    let tokenizer = opened.tokenizer.unwrap();
    assert!(tokenizer.chat_template().is_some() && !tokenizer.approximate());
    let first = asked.lock().unwrap().len();
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "/org/model-1.5/resolve/main/tokenizer_config.json",
            "/models/org/model-1.5/resolve/master/tokenizer_config.json",
            "/org/model-1.5/resolve/main/chat_template.jinja",
            "/models/org/model-1.5/resolve/master/chat_template.jinja",
            "/org/model-1.5/resolve/main/tokenizer.json",
        ]
    );
    assert!(open(&spec, Seed(1), 0, &cache, &|_| ()).is_ok());
    assert_eq!(asked.lock().unwrap().len(), first, "a second opening asks for nothing");
    assert!(cache.dir.join("tokenizers/org--model-1.5/tokenizer.json.sha256").exists());
}

#[test]
fn a_damaged_template_is_fetched_again() {
    let (tokens, config) = files();
    let (address, _) = hub(move |path| match path.rsplit('/').next().unwrap() {
        "tokenizer.json" => reply("200 OK", "", &tokens),
        "tokenizer_config.json" => reply("200 OK", "", &config),
        _ => reply("404 Not Found", "", ""),
    });
    let (_dir, cache) = cache(&address);
    let mut notes = Vec::new();
    tokenizer("org/model", &cache, &|_| (), &mut notes).unwrap();
    let config = cache.dir.join("tokenizers/org--model/tokenizer_config.json");
    std::fs::write(&config, "damaged").unwrap();
    assert!(tokenizer("org/model", &cache, &|_| (), &mut notes).unwrap().chat_template().is_some());
    assert_eq!(notes, [format!("{} was damaged and has been downloaded again", config.display())]);
}

#[test]
fn failures_name_the_address_the_file_and_the_reason() {
    let (address, _) = hub(|_| reply("401 Unauthorized", "", ""));
    let (_dir, cache) = cache(&address);
    let tell = |name: &str, cache: &CacheDir| tokenizer(name, cache, &|_| (), &mut Vec::new()).unwrap_err().to_string();
    let error = tell("org/gated", &cache);
    let base = address.trim_end_matches("/datasets/");
    let file = cache.dir.join("tokenizers/org--gated/tokenizer_config.json");
    let start = format!(
        "cannot download {base}/org/gated/resolve/main/tokenizer_config.json to {}: the server answered 401",
        file.display()
    );
    assert!(error.starts_with(&start) && error.contains("dataset.tokenizer") && error.contains("LLMSCEN_HUB"), "{error}");

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let offline = CacheDir { hub: format!("http://127.0.0.1:{port}/datasets"), ..cache.clone() };
    assert!(tell("org/model", &offline).contains("Connection refused"));
    let (nothing, _) = hub(|_| reply("404 Not Found", "", ""));
    let nothing = CacheDir { hub: nothing, ..cache.clone() };
    assert!(tell("org/none", &nothing).contains("tokenizer.json: the server answered 404"));
    for path in ["/nowhere/model", "./models/qwen", "models/qwen/tokenizer.json", "qwen", "models/tokenizer.json"] {
        assert!(tell(path, &nothing).starts_with(&format!("cannot read the tokenizer {path}: No such file")), "{path}");
    }
}

#[test]
fn each_hub_has_its_own_places() {
    let of = |hub| homes(hub, "org", "m", "f");
    assert_eq!(of("https://www.modelscope.cn/datasets"), ["https://www.modelscope.cn/models/org/m/resolve/master/f"]);
    assert_eq!(of("https://huggingface.co/datasets/"), ["https://huggingface.co/org/m/resolve/main/f"]);
    assert_eq!(
        of("https://hf.example"),
        ["https://hf.example/org/m/resolve/main/f", "https://hf.example/models/org/m/resolve/master/f"]
    );
}
