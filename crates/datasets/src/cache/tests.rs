use super::*;
use crate::rows;
use crate::testing::{hub, reply};
use std::cell::RefCell;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

const REMOTE: Remote = Remote {
    file: "kind/data.jsonl",
    hub_paths: &["first/data.jsonl", "second/data.jsonl"],
};
const DATA: &str = "{\"question\": \"Why?\"}\n";

struct Home {
    _dir: tempfile::TempDir,
    cache: CacheDir,
}

fn home(hub: &str) -> Home {
    let dir = tempfile::tempdir().unwrap();
    let cache = CacheDir {
        dir: dir.path().join("cache"),
        hub: hub.to_owned(),
        ..CacheDir::default()
    };
    Home { _dir: dir, cache }
}

fn held(cached: &Cached) -> String {
    std::fs::read_to_string(&cached.path).unwrap()
}

fn failure(home: &Home) -> String {
    obtain(&REMOTE, &home.cache, &|_| ())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_file_is_downloaded_once_and_its_digest_kept_beside_it() {
    let (address, asked) = hub(|_| reply("200 OK", "", DATA));
    let home = home(&address);
    let steps = RefCell::new(Vec::new());
    let first = obtain(&REMOTE, &home.cache, &|step| steps.borrow_mut().push(step)).unwrap();
    let again = obtain(&REMOTE, &home.cache, &|_| ()).unwrap();
    assert_eq!(
        (held(&first), first.path.clone()),
        (DATA.to_owned(), again.path)
    );
    assert_eq!(*asked.lock().unwrap(), ["/datasets/first/data.jsonl"]);
    let total = DATA.len() as u64;
    assert_eq!(
        steps.into_inner(),
        [Progress::Download {
            bytes: total,
            total: Some(total)
        }]
    );
    let kept = std::fs::read_to_string(digest_path(&first.path)).unwrap();
    assert_eq!(kept, format!("{}  data.jsonl\n", sha256(DATA.as_bytes())));
    let names = std::fs::read_dir(first.path.parent().unwrap())
        .unwrap()
        .count();
    assert_eq!(names, 2, "nothing else is left behind");
}

#[test]
fn the_second_address_is_tried_and_redirects_are_followed() {
    let (address, asked) = hub(|path| match path {
        "/datasets/second/data.jsonl" => reply("302 Found", "location: /elsewhere\r\n", ""),
        "/elsewhere" => reply("200 OK", "", DATA),
        _ => reply("404 Not Found", "", "no"),
    });
    let home = home(&address);
    assert_eq!(held(&obtain(&REMOTE, &home.cache, &|_| ()).unwrap()), DATA);
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "/datasets/first/data.jsonl",
            "/datasets/second/data.jsonl",
            "/elsewhere"
        ]
    );
}

#[test]
fn a_damaged_copy_is_fetched_again_and_must_be_what_it_was() {
    let served = Arc::new(Mutex::new(DATA.to_owned()));
    let source = served.clone();
    let (address, _) = hub(move |_| reply("200 OK", "", &source.lock().unwrap()));
    let home = home(&address);
    let path = obtain(&REMOTE, &home.cache, &|_| ()).unwrap().path;
    std::fs::write(&path, "damaged").unwrap();
    let healed = obtain(&REMOTE, &home.cache, &|_| ()).unwrap();
    assert_eq!(held(&healed), DATA);
    assert_eq!(
        healed.note.unwrap(),
        format!(
            "{} was damaged and has been downloaded again",
            path.display()
        )
    );
    std::fs::write(&path, "damaged").unwrap();
    *served.lock().unwrap() = "other".into();
    let error = failure(&home);
    assert!(
        error.contains("(the cached copy is damaged): the file on the hub has changed"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "damaged",
        "an unexpected file replaces nothing"
    );
}

#[test]
fn the_digest_that_a_hub_announces_is_checked() {
    let announce =
        |digest: String| reply("200 OK", &format!("x-linked-etag: \"{digest}\"\r\n"), DATA);
    let (good, _) = hub(move |_| announce(sha256(DATA.as_bytes())));
    assert!(obtain(&REMOTE, &home(&good).cache, &|_| ()).is_ok());
    let (bad, _) = hub(move |_| announce("0".repeat(64)));
    let error = failure(&home(&bad));
    assert!(
        error.contains(&format!(
            "has the SHA-256 {}, but the server announced 000",
            sha256(DATA.as_bytes())
        )),
        "{error}"
    );
}

#[test]
fn answers_that_are_not_the_file_are_not_kept() {
    let page = reply("200 OK", "content-type: text/html\r\n", "<html>");
    let short = reply("200 OK", "", DATA).replace("content-length: 21", "content-length: 99");
    assert_ne!(short, reply("200 OK", "", DATA));
    let gone = reply("404 Not Found", "", "");
    let cases = [
        (page, "the server sent a web page instead of the file"),
        (short, "end of file before message length reached"),
        (gone, "second/data.jsonl to "),
        (reply("503 Busy", "", ""), "the server answered 503"),
    ];
    for (answer, expected) in cases {
        let (address, _) = hub(move |_| answer.clone());
        let home = home(&address);
        let error = failure(&home);
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!home.cache.dir.join(REMOTE.file).exists());
    }
}

#[test]
fn the_error_without_network_has_the_alternatives() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let home = home(&format!("http://127.0.0.1:{port}"));
    let error = failure(&home);
    let url = format!("http://127.0.0.1:{port}/first/data.jsonl");
    let file = home.cache.dir.join(REMOTE.file);
    assert!(
        error.starts_with(&format!(
            "cannot download {url} to {}: Connection refused",
            file.display()
        )),
        "{error}"
    );
    for way in ["`dataset.path`", "`path: builtin`", "LLMSCEN_HUB"] {
        assert!(error.contains(way), "{error}");
    }
}

#[test]
fn a_download_works_from_inside_a_runtime() {
    let (address, _) = hub(|_| reply("200 OK", "", DATA));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert!(
        runtime
            .block_on(async { obtain(&REMOTE, &home(&address).cache, &|_| ()) })
            .is_ok()
    );
}

#[test]
fn a_dataset_without_a_path_comes_from_the_hub() {
    use llmscen_core::dataset::{DatasetSpec, Source};
    let (address, asked) =
        hub(
            |path| match path.contains("Hello-SimpleAI") || path.contains("LongAlpaca") {
                true => reply(
                    "200 OK",
                    "",
                    "[{\"question\": \"Why?\", \"instruction\": \"Sum it up.\"}]",
                ),
                false => reply("404 Not Found", "", ""),
            },
        );
    let home = home(&address);
    let mut spec = DatasetSpec::new(Source::Openqa);
    for (source, text) in [(Source::Openqa, "Why?"), (Source::Longalpaca, "Sum it up.")] {
        spec.source = source;
        let opened =
            crate::open(&spec, llmscen_core::seed::Seed(1), 0, &home.cache, &|_| ()).unwrap();
        assert_eq!(opened.prompts.session(3).unwrap().turns[0].text, text);
    }
    let paths = [rows::OPENQA, rows::LONGALPACA].map(|kind| kind.remote.unwrap().hub_paths);
    let expected = [paths[0][0], paths[0][1], paths[1][0]].map(|home| format!("/datasets/{home}"));
    assert_eq!(*asked.lock().unwrap(), expected);
}
