use super::*;
use crate::fetch::hex;
use crate::remote_data::{obtain, pin};
use crate::testing::{hub, hub_with_heads, reply};
use crate::{CacheDir, open};
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::model_hub::HuggingFace;
use llmscen_core::redact::Secret;
use llmscen_core::remote_data::{RemoteData, RemoteReference};
use llmscen_core::seed::Seed;
use llmscen_parquet::testing::write_parquet;
use polars_arrow::array::{Array, Utf8ViewArray};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ROWS: &str = "{\"question\": \"Why?\", \"topic\": \"a\"}\n{\"question\": \"How?\"}\n";

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hub_reference(name: &str, split: Option<&str>) -> HubReference {
    HubReference {
        split: split.map(str::to_owned),
        ..HubReference::parse(name).unwrap()
    }
}

fn reference(name: &str, split: Option<&str>) -> RemoteReference {
    RemoteReference::Hub(hub_reference(name, split))
}

struct Home {
    dir: tempfile::TempDir,
    cache: CacheDir,
}

fn home(address: &str) -> Home {
    let dir = tempfile::tempdir().unwrap();
    let cache = CacheDir {
        dir: dir.path().join("cache"),
        hugging_face: HuggingFace {
            endpoint: address.trim_end_matches("/datasets/").to_owned(),
            ..HuggingFace::default()
        },
        ..CacheDir::default()
    };
    Home { dir, cache }
}

/// The listing of these files; those with a text are large files.
fn listing(files: &[(&str, Option<&str>)]) -> String {
    let sibling = |(path, text): &(&str, Option<&str>)| match text {
        Some(text) => json!({ "rfilename": path, "lfs": { "sha256": sha256(text) } }),
        None => json!({ "rfilename": path }),
    };
    let siblings: Vec<Value> = files.iter().map(sibling).collect();
    let body = json!({ "sha": COMMIT, "siblings": siblings }).to_string();
    reply("200 OK", "", &body)
}

fn resolved(path: &str) -> String {
    format!("/datasets/org/qa/resolve/{COMMIT}/{path}")
}

const MAIN_LISTING: &str = "/api/datasets/org/qa/revision/main?blobs=true";

fn missing() -> String {
    reply("404 Not Found", "", "")
}

fn pinned(cache: &CacheDir, name: &str, split: Option<&str>) -> RemoteData {
    let reference = reference(name, split);
    let pin = pin(&reference, cache).unwrap();
    RemoteData {
        reference,
        pin: Some(pin),
    }
}

fn cached_file(data: &RemoteData, cache: &CacheDir) -> PathBuf {
    let RemoteReference::Hub(reference) = &data.reference else {
        panic!("{}", data.reference);
    };
    Repository { reference, cache }.cached_path(COMMIT, "test.jsonl")
}

fn content(files: &RemoteFiles) -> Vec<String> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    files.paths.iter().map(read).collect()
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = heads.clone();
    let half = ROWS.len() / 2;
    let (address, _) = hub_with_heads(move |path, head| {
        if path == MAIN_LISTING {
            return listing(&[("data/test.jsonl", Some(ROWS))]);
        }
        let range = head
            .lines()
            .find_map(|line| line.strip_prefix("range: "))
            .map(str::to_owned);
        log.lock().unwrap().push(range.clone());
        match range {
            // The connection ends in the middle of the body.
            None => {
                let all = reply("200 OK", "", ROWS);
                all[..all.len() - ROWS.len() + half].to_owned()
            }
            Some(_) => reply(
                "206 Partial Content",
                &format!(
                    "content-range: bytes {half}-{}/{}\r\n",
                    ROWS.len() - 1,
                    ROWS.len()
                ),
                &ROWS[half..],
            ),
        }
    });
    let home = home(&address);
    let data = pinned(&home.cache, "hub:org/qa/data/test.jsonl", None);
    let error = obtain(&data, &home.cache, &|_| ()).err().unwrap();
    assert!(matches!(error.problem, Problem::Connection(_)), "{error}");
    let steps = Mutex::new(Vec::new());
    let files = obtain(&data, &home.cache, &|step| steps.lock().unwrap().push(step)).unwrap();
    assert_eq!(content(&files), [ROWS]);
    assert_eq!(
        *heads.lock().unwrap(),
        [None, Some(format!("bytes={half}-"))]
    );
    let total = ROWS.len() as u64;
    let end = Progress::Download {
        bytes: total,
        total: Some(total),
    };
    assert_eq!(steps.into_inner().unwrap(), [end]);
    let folder = files.paths[0].parent().unwrap();
    let names = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(names, 2, "the file and its digest");
}

#[test]
fn bytes_of_another_version_are_downloaded_again() {
    let (address, asked) = hub_with_heads(|path, head| match path {
        MAIN_LISTING => listing(&[("test.jsonl", Some(ROWS))]),
        _ if head.contains("range: bytes=3-") => {
            let range = format!(
                "content-range: bytes 3-{}/{}\r\n",
                ROWS.len() - 1,
                ROWS.len()
            );
            reply("206 Partial Content", &range, &ROWS[3..])
        }
        _ => reply("200 OK", "", ROWS),
    });
    let home = home(&address);
    let data = pinned(&home.cache, "hub:org/qa/test.jsonl", None);
    let path = cached_file(&data, &home.cache);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path.with_extension("jsonl.part"), "old").unwrap();
    assert_eq!(
        content(&obtain(&data, &home.cache, &|_| ()).unwrap()),
        [ROWS]
    );
    assert_eq!(asked.lock().unwrap().len(), 3, "listing, rest, all");
    std::fs::write(&path, "damaged").unwrap();
    let again = obtain(&data, &home.cache, &|_| ()).unwrap();
    assert_eq!(content(&again), [ROWS]);
    assert!(again.notes[0].contains("was damaged and has been downloaded again"));
}

#[test]
fn content_that_differs_from_the_plan_is_refused() {
    let (address, _) = hub(|path| match path {
        MAIN_LISTING => listing(&[("test.jsonl", Some(ROWS))]),
        _ => reply("200 OK", "", "other"),
    });
    let home = home(&address);
    let data = pinned(&home.cache, "hub:org/qa/test.jsonl", None);
    let error = obtain(&data, &home.cache, &|_| ())
        .err()
        .unwrap()
        .to_string();
    let expected = format!(
        "the received file has the SHA-256 {}, but the plan has {}",
        sha256("other"),
        sha256(ROWS)
    );
    assert!(error.contains(&expected), "{error}");
    let path = cached_file(&data, &home.cache);
    assert_eq!(
        std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
        0
    );
}

#[test]
fn the_token_is_sent_to_the_hub_and_not_to_its_storage() {
    let stored = Arc::new(Mutex::new(String::new()));
    let head = stored.clone();
    let (storage, _) = hub_with_heads(move |_, request| {
        *head.lock().unwrap() = request.to_owned();
        reply("200 OK", "", ROWS)
    });
    let (address, _) = hub_with_heads(move |path, head| {
        if !head.contains("authorization: bearer hf_abc") {
            return reply("401 Unauthorized", "", "");
        }
        match path {
            MAIN_LISTING => listing(&[("test.jsonl", Some(ROWS))]),
            _ => reply("302 Found", &format!("location: {storage}x\r\n"), ""),
        }
    });
    let mut home = home(&address);
    let without = pin(&reference("hub:org/qa/test.jsonl", None), &home.cache);
    let Err(PinError::Failed(why)) = without else {
        panic!("{without:?}")
    };
    assert!(
        why.contains(
            "the server answered 401; the repository is gated or private, or does not exist"
        ) && why.contains("no token was found in HF_TOKEN, HF_TOKEN_PATH or HF_HOME/token"),
        "{why}"
    );
    home.cache.hugging_face.token = Some(Secret::new("hf_abc"));
    let data = pinned(&home.cache, "hub:org/qa/test.jsonl", None);
    assert_eq!(
        content(&obtain(&data, &home.cache, &|_| ()).unwrap()),
        [ROWS]
    );
    let head = stored.lock().unwrap().clone();
    assert!(
        head.starts_with("get ") && !head.contains("hf_abc"),
        "{head}"
    );
}

#[test]
fn data_that_were_used_before_are_read_offline() {
    let (address, asked) = hub(|path| match path {
        MAIN_LISTING => listing(&[("test.jsonl", None), ("train.jsonl", Some("x"))]),
        path if path == resolved("test.jsonl") => reply("200 OK", "", ROWS),
        _ => missing(),
    });
    let mut home = home(&address);
    let online = pinned(&home.cache, "hub:org/qa", Some("test"));
    assert_eq!(
        online.pin.as_ref().unwrap().files,
        [("test.jsonl".to_owned(), sha256(ROWS))],
        "a small file gets its digest from its content"
    );
    home.cache.hugging_face.offline = true;
    let requests = asked.lock().unwrap().len();
    let offline = pinned(&home.cache, "hub:org/qa", Some("test"));
    assert_eq!(offline, online);
    assert_eq!(
        content(&obtain(&offline, &home.cache, &|_| ()).unwrap()),
        [ROWS]
    );
    let train = pinned(&home.cache, "hub:org/qa/train.jsonl", None);
    let error = obtain(&train, &home.cache, &|_| ())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("HF_HUB_OFFLINE is set, and the file is not on this machine"),
        "{error}"
    );
    assert_eq!(
        asked.lock().unwrap().len(),
        requests,
        "nothing is requested"
    );
}

#[test]
fn files_of_other_programs_are_used() {
    let (address, asked) = hub(|_| missing());
    let mut home = home(&address);
    let folder = home.dir.path().join("hf/datasets--org--qa");
    let data = folder.join("snapshots").join(COMMIT).join("data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(folder.join("refs")).unwrap();
    std::fs::write(folder.join("refs/main"), COMMIT).unwrap();
    std::fs::write(data.join("test.jsonl"), ROWS).unwrap();
    home.cache.hugging_face.cache = Some(home.dir.path().join("hf"));
    home.cache.hugging_face.offline = true;
    let data = pinned(&home.cache, "hub:org/qa", Some("test"));
    assert_eq!(data.pin.as_ref().unwrap().commit.as_deref(), Some(COMMIT));
    assert_eq!(
        content(&obtain(&data, &home.cache, &|_| ()).unwrap()),
        [ROWS]
    );
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn the_parquet_shards_of_a_split_are_read_in_order() {
    let mut home = home("http://127.0.0.1:9");
    let folder = home
        .dir
        .path()
        .join("hf/datasets--org--qa/snapshots")
        .join(COMMIT);
    std::fs::create_dir_all(&folder).unwrap();
    for (shard, prompts) in [(1, ["c"]), (0, ["a"])] {
        let column: Box<dyn Array> = Utf8ViewArray::from_slice_values(prompts).boxed();
        let name = format!("test-0000{shard}-of-00002.parquet");
        let bytes = write_parquet(&["prompt"], vec![vec![column]]);
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    home.cache.hugging_face.cache = Some(home.dir.path().join("hf"));
    home.cache.hugging_face.offline = true;
    let spec = DatasetSpec {
        remote: Some(RemoteData {
            reference: RemoteReference::Hub(HubReference {
                revision: Some(COMMIT.into()),
                ..hub_reference("hub:org/qa", Some("test"))
            }),
            pin: None,
        }),
        ..DatasetSpec::new(Source::Rows)
    };
    let opened = open(&spec, Seed(1), 0, &home.cache, &|_| ()).unwrap();
    let text = |seq| opened.prompts.session(seq).unwrap().turns[0].text.clone();
    assert_eq!([text(0), text(1)], ["a", "c"]);
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    let (address, _) = hub(|path| match path {
        MAIN_LISTING => listing(&[("test.jsonl", Some(ROWS)), ("README.md", None)]),
        "/api/datasets/org/qa/refs" => {
            let refs = json!({ "branches": [{ "name": "main" }], "tags": [{ "name": "v1" }] });
            reply("200 OK", "", &refs.to_string())
        }
        _ => missing(),
    });
    let home = home(&address);
    let unknown = |part, value: &str, available: &[&str]| {
        Err(PinError::Unknown {
            part,
            value: value.to_owned(),
            available: available.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    assert_eq!(
        pin(&reference("hub:org/qa/tset.jsonl", None), &home.cache),
        unknown("file", "tset.jsonl", &["test.jsonl"])
    );
    let revision = RemoteReference::Hub(HubReference {
        revision: Some("v2".into()),
        ..hub_reference("hub:org/qa", Some("test"))
    });
    assert_eq!(
        pin(&revision, &home.cache),
        unknown("revision", "v2", &["main", "v1"])
    );
    let endpoint = &home.cache.hugging_face.endpoint;
    assert_eq!(
        pin(&reference("hub:org/other", None), &home.cache),
        Err(PinError::Failed(format!(
            "{endpoint} has no dataset `org/other`"
        )))
    );
}

#[test]
fn a_dataset_without_data_files_is_read_from_the_converted_branch() {
    let (address, _) = hub(|path| match path {
        MAIN_LISTING => listing(&[("qa.py", None)]),
        "/api/datasets/org/qa/revision/refs%2Fconvert%2Fparquet?blobs=true" => listing(&[
            ("main/questions/0000.parquet", Some("a")),
            ("main/questions/0001.parquet", Some("b")),
            ("main/test/0000.parquet", Some("c")),
        ]),
        _ => missing(),
    });
    let home = home(&address);
    let data = pinned(&home.cache, "hub:org/qa", Some("questions"));
    let files = data.pin.unwrap().files;
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["main/questions/0000.parquet", "main/questions/0001.parquet"]
    );
}

#[test]
fn the_files_of_a_split_are_one_dataset() {
    let (address, _) = hub(|path| match path {
        MAIN_LISTING => listing(&[
            ("test-00000-of-00002.csv", None),
            ("test-00001-of-00002.csv", None),
            ("dev/a.jsonl", None),
            ("dev/b.jsonl", None),
        ]),
        path if path.ends_with("00000-of-00002.csv") => {
            reply("200 OK", "", "question,topic\none,a\ntwo,b")
        }
        path if path.ends_with("00001-of-00002.csv") => {
            reply("200 OK", "", "question,topic\nthree,a\n")
        }
        path if path.ends_with("a.jsonl") => reply("200 OK", "", "{\"question\": \"x\"}"),
        path if path.ends_with("b.jsonl") => reply("200 OK", "", "{\"question\": \"y\"}"),
        _ => missing(),
    });
    let home = home(&address);
    let texts = |split: &str| -> Vec<String> {
        let spec = DatasetSpec {
            remote: Some(RemoteData {
                reference: reference("hub:org/qa", Some(split)),
                pin: None,
            }),
            ..DatasetSpec::new(Source::Openqa)
        };
        let opened = open(&spec, Seed(1), 0, &home.cache, &|_| ()).unwrap();
        let count = opened.prompts.len().unwrap();
        let text = |seq| opened.prompts.session(seq).unwrap().turns[0].text.clone();
        (0..count).map(text).collect()
    };
    assert_eq!(texts("test"), ["one", "two", "three"]);
    assert_eq!(texts("validation"), ["x", "y"]);
}

#[test]
fn a_file_is_downloaded_by_one_process_at_a_time() {
    let (address, asked) = hub(|path| match path {
        MAIN_LISTING => listing(&[("test.jsonl", Some(ROWS))]),
        _ => reply("200 OK", "", ROWS),
    });
    let home = home(&address);
    let data = pinned(&home.cache, "hub:org/qa/test.jsonl", None);
    let complete = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let files = obtain(&data, &home.cache, &|_| ()).unwrap();
                assert_eq!(content(&files), [ROWS]);
                complete.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(complete.into_inner(), 4);
    let requests = asked.lock().unwrap();
    let downloads = requests
        .iter()
        .filter(|path| **path == resolved("test.jsonl"));
    assert_eq!(downloads.count(), 1);
}

#[test]
fn a_split_of_which_parts_are_missing_is_an_error() {
    let names = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    for (files, missing) in [
        (
            &["a-00000-of-00002.parquet", "a-00001-of-00002.parquet"][..],
            None,
        ),
        (
            &["a-00000-of-00002.parquet"],
            Some("a-00001-of-00002.parquet"),
        ),
        (&["data/b-1-of-2.jsonl"], Some("data/b-0-of-2.jsonl")),
        (
            &[
                "best-of-breed.jsonl",
                "part-x-of-y.csv",
                "a-1-of-4000000000.csv",
            ],
            None,
        ),
    ] {
        assert_eq!(missing_part(&names(files)).as_deref(), missing, "{files:?}");
    }
}

#[test]
fn an_answer_about_a_repository_is_bounded() {
    let mut answer = Answer(vec![0; bounds::CONFIG as usize - 1]);
    answer.write_all(b"x").unwrap();
    let error = answer.write_all(b"x").unwrap_err();
    assert_eq!(error.to_string(), "the answer has more than 64 MiB");
}

#[test]
fn the_file_of_a_url_is_downloaded_once_and_pinned() {
    let content_of = Arc::new(Mutex::new(ROWS.to_owned()));
    let served = content_of.clone();
    let (address, asked) = hub(move |path| match path.ends_with("/qa.jsonl?v=1") {
        true => reply("200 OK", "", &served.lock().unwrap()),
        false => missing(),
    });
    let home = home(&address);
    let url = |path: &str| RemoteReference::parse(&format!("{address}{path}")).unwrap();
    let reference = url("a/qa.jsonl?v=1");
    let looked_up = pin(&reference, &home.cache).unwrap();
    assert_eq!(
        (looked_up.commit.as_ref(), looked_up.files.as_slice()),
        (None, &[("qa.jsonl".to_owned(), sha256(ROWS))][..])
    );
    let data = RemoteData {
        reference,
        pin: Some(looked_up),
    };
    let files = obtain(&data, &home.cache, &|_| ()).unwrap();
    assert_eq!(content(&files), [ROWS]);
    assert!(files.name.to_string_lossy().ends_with("a/qa.jsonl"));
    assert_eq!(asked.lock().unwrap().len(), 1, "downloaded once");

    // Another machine, where the URL has other bytes.
    *content_of.lock().unwrap() = "other\n".to_owned();
    let elsewhere = CacheDir {
        dir: home.dir.path().join("elsewhere"),
        ..home.cache.clone()
    };
    let error = obtain(&data, &elsewhere, &|_| ()).err().unwrap();
    assert!(error.to_string().contains("but the plan has"), "{error}");
    let error = pin(&url("b.jsonl"), &home.cache).unwrap_err();
    let PinError::Failed(why) = error else {
        panic!("{error:?}");
    };
    assert!(
        why.contains("answered 404") && why.contains("set `dataset.path` to the file"),
        "{why}"
    );
}
