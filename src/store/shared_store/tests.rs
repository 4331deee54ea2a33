use super::*;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;

fn folder(path: &Path, run: &str) -> SharedStore {
    SharedStore::open(path.to_str().unwrap(), run, &BTreeMap::new()).unwrap()
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    pairs.iter().map(owned).collect()
}

#[test]
fn a_folder_keeps_the_objects_of_each_run() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (folder(dir.path(), "a/one"), folder(dir.path(), "two"));
    assert_eq!(one.create("hello/3", b"x").unwrap(), Creation::Created);
    let exists = Creation::Exists(b"x".to_vec());
    assert_eq!(one.create("hello/3", b"y").unwrap(), exists);
    assert_eq!(one.get("hello/3").unwrap().unwrap(), b"x");
    assert_eq!(one.get("hello/4").unwrap(), None);
    assert_eq!(one.get("nothing/4").unwrap(), None);
    for content in [b"1", b"2"] {
        one.put("hello/10", content).unwrap();
        assert_eq!(one.get("hello/10").unwrap().unwrap(), content);
    }
    one.put("hello/deep/er", b"").unwrap();
    one.put("hello2", b"").unwrap();
    let keys = ["hello/10", "hello/3", "hello/deep/er"];
    assert_eq!(one.list("hello").unwrap(), keys);
    assert_eq!(one.list("nothing").unwrap(), [""; 0]);
    assert_eq!(two.list("hello").unwrap(), [""; 0]);
    assert_eq!(two.get("hello/3").unwrap(), None);
    assert_eq!(
        one.url(),
        format!("file://{}/a/one", dir.path().to_str().unwrap())
    );
    assert!(one.is_folder());
    // Others may read what the umask lets them read.
    fs::write(dir.path().join("plain"), "").unwrap();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode();
    assert_eq!(mode("a/one/hello/3"), mode("plain"));
    let names = fs::read_dir(dir.path().join("a/one/hello")).unwrap();
    assert_eq!(names.count(), 3, "a temporary file was left");
}

#[test]
fn one_of_several_threads_creates_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let store = folder(dir.path(), "race");
    for key in (0..25).map(|key| format!("hello/{key}")) {
        let start = std::sync::Barrier::new(8);
        let done: Vec<(u8, Creation)> = std::thread::scope(|scope| {
            let create = |nonce: u8| {
                start.wait();
                (nonce, store.create(&key, &[nonce]).unwrap())
            };
            let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || create(i))).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let won = |(_, creation): &&(u8, Creation)| *creation == Creation::Created;
        let winners: Vec<u8> = done.iter().filter(won).map(|(nonce, _)| *nonce).collect();
        assert_eq!(winners.len(), 1, "{key}: {done:?}");
        let exists = Creation::Exists(winners.clone());
        let losers = done.iter().filter(|(nonce, _)| *nonce != winners[0]);
        assert!(
            losers
                .map(|(_, creation)| creation)
                .all(|found| *found == exists)
        );
        assert_eq!(store.get(&key).unwrap().unwrap(), winners);
    }
}

#[test]
fn files_of_any_size_are_copied_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let store = folder(dir.path(), "big");
    let (from, to) = (dir.path().join("from"), dir.path().join("new/to"));
    for size in [0, 1, PART, 2 * PART + 12_345] {
        let bytes: Vec<u8> = (0..size)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(&from, &bytes).unwrap();
        store.upload("rows/0/1.parquet", &from).unwrap();
        store.download("rows/0/1.parquet", &to).unwrap();
        assert!(fs::read(&to).unwrap() == bytes, "{size} bytes differ");
        assert_eq!(store.list("rows").unwrap(), ["rows/0/1.parquet"]);
    }
    fs::remove_file(&to).unwrap();
    let error = store.download("rows/0/2.parquet", &to).unwrap_err();
    assert!(error.is_transient());
    assert_eq!(
        error.to_string(),
        format!(
            "cannot read {}/rows/0/2.parquet: no such object; check that the store can be reached from this host",
            store.url()
        )
    );
    assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
    let error = store.upload("rows/0/3.parquet", &to).unwrap_err();
    assert!(matches!(&error, SharedStoreError::LocalFile { path, .. } if *path == to));
    assert_eq!(store.get("rows/0/3.parquet").unwrap(), None);
}

#[test]
fn a_folder_that_disappears_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (base, away) = (dir.path().join("mnt"), dir.path().join("away"));
    fs::create_dir(&base).unwrap();
    let store = folder(&base, "r");
    store.put("hello/0", b"x").unwrap();
    fs::rename(&base, &away).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "rows").unwrap();
    let errors = [
        store.put("hello/1", b"x").unwrap_err(),
        store.get("hello/0").unwrap_err(),
        store.list("hello").unwrap_err(),
        store.upload("rows/0/0", &file).unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_transient());
        let text = error.to_string();
        assert!(
            text.contains("the folder of the store is gone, perhaps unmounted; "),
            "{text}"
        );
    }
    assert!(!base.exists());
    fs::rename(&away, &base).unwrap();
    assert_eq!(store.list("hello").unwrap(), ["hello/0"]);
}

#[test]
fn a_folder_that_cannot_be_written_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = folder(dir.path(), "r");
    fs::write(dir.path().join("r"), "a file in the way").unwrap();
    let error = store.create("hello/0", b"x").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot write {}/hello/0: Not a directory (os error 20); check that the folder exists \
            and this user may write to it",
            store.url()
        )
    );
    assert!(!error.is_transient());
    let missing = dir.path().join("missing");
    let error = SharedStore::open(missing.to_str().unwrap(), "r", &BTreeMap::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot open the store file://{}: No such file or directory (os error 2); check that \
            the folder exists and this user may write to it",
            missing.display()
        )
    );
}

#[test]
fn only_what_may_pass_is_transient() {
    let generic = |source: Box<dyn Error + Send + Sync>| {
        Failure::Store(object_store::Error::Generic { store: "", source })
    };
    let io = |kind| generic(io::Error::from(kind).into());
    let status =
        |status| generic(format!("Server returned non-2xx status code: {status}: ").into());
    assert!(io(ErrorKind::StaleNetworkFileHandle).is_transient());
    assert!(io(ErrorKind::StorageFull).is_transient());
    assert!(!io(ErrorKind::PermissionDenied).is_transient());
    assert!(!io(ErrorKind::ReadOnlyFilesystem).is_transient());
    assert!(status("503 Service Unavailable").is_transient());
    assert!(status("429 Too Many Requests").is_transient());
    assert!(!status("400 Bad Request").is_transient());
    assert!(!status("501 Not Implemented").is_transient());
    assert!(Failure::Timeout(CALL_LIMIT).is_transient());
}

#[test]
fn a_call_ends_and_may_come_from_a_task() {
    let dir = tempfile::tempdir().unwrap();
    let store = folder(dir.path(), "r");
    let hang = std::future::pending::<object_store::Result<()>>();
    let Err(failure) = store.call(Duration::from_millis(1), hang) else {
        panic!("the call returned a value");
    };
    assert!(matches!(failure, Failure::Timeout(_)));
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { store.put("a", b"x").unwrap() });
    assert_eq!(store.get("a").unwrap().unwrap(), b"x");
}

#[test]
fn urls() {
    let long = [
        ("/scratch/me/runs/", "file:///scratch/me/runs"),
        ("file:///scratch/me/my%20runs", "file:///scratch/me/my runs"),
        ("file:///", "file://"),
        ("s3://bench", "s3://bench"),
        ("s3://bench/", "s3://bench"),
        ("s3://bench/a/b/", "s3://bench/a/b"),
        ("gs://bench/a", "gs://bench/a"),
        ("az://bench/a", "az://bench/a"),
    ];
    for (url, shown) in long {
        assert_eq!(Location::parse(url).unwrap().to_string(), shown, "{url}");
    }
    let relative = "it is neither a URL nor an absolute path";
    let credentials =
        "`@`, `?` and `#` are not supported, and credentials belong in the environment";
    let absolute = "its path is not absolute; write file:///FOLDER";
    let wrong = [
        ("runs", "runs", relative),
        ("", "", relative),
        ("./runs", "./runs", relative),
        ("file://runs", "file://runs", absolute),
        ("file://runs/a", "file://runs/a", absolute),
        ("http://host/a", "http://host/a", "unknown scheme `http`"),
        ("S3://bench", "S3://bench", "unknown scheme `S3`"),
        ("s3://", "s3://", "the bucket is missing"),
        ("s3:///a", "s3:///a", "the bucket is missing"),
        ("s3://id:pass@bench/a", "s3://bench/a", credentials),
        ("az://bench/a?sig=pass", "az://bench/a", credentials),
        (
            "http://id:pass@host",
            "http://host",
            "unknown scheme `http`",
        ),
        ("id:pass@host", "host", relative),
        (
            "s3://b/a//c",
            "s3://b/a//c",
            "the prefix cannot be part of an object's name",
        ),
        (
            "s3://b/../c",
            "s3://b/../c",
            "the prefix cannot be part of an object's name",
        ),
        (
            "s3://b/\u{1b}[1m",
            "s3://b/\\u{1b}[1m",
            "the prefix cannot be part of an object's name",
        ),
    ];
    for (url, shown, reason) in wrong {
        let error = SharedStore::open(url, "r", &BTreeMap::new()).unwrap_err();
        assert!(!error.is_transient());
        assert_eq!(
            error.to_string(),
            format!(
                "`{shown}` is no store: {reason}; pass file:///FOLDER, s3://BUCKET/PREFIX, \
                gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            )
        );
    }
}

#[test]
fn run_keys() {
    for key in ["nightly-17", "123.0", "team/nightly 17", "a..b", "-", "é"] {
        check_run_key(key).unwrap_or_else(|error| panic!("{error}"));
    }
    let dots = "a part of it is empty, `.` or `..`";
    let wrong = [
        ("", "", "it is empty"),
        ("a/../b", "a/../b", dots),
        ("..", "..", dots),
        ("/a", "/a", dots),
        ("a/", "a/", dots),
        ("a\nb", "a\\nb", "it contains a control character"),
        (
            "a#1",
            "a#1",
            "it contains a character that object names cannot have",
        ),
    ];
    for (key, shown, reason) in wrong {
        assert_eq!(
            check_run_key(key).unwrap_err().to_string(),
            format!("`{shown}` is no run key: {reason}; pass a name such as nightly-17")
        );
    }
}

#[test]
fn settings_come_from_the_given_environment() {
    let env = env(&[
        ("AZURE_STORAGE_ACCOUNT", "bench"),
        ("AZURE_STORAGE_KEY", "c2VjcmV0"),
        ("AWS_SECRET_ACCESS_KEY", "other"),
        ("PATH", "/bin"),
    ]);
    let found: Vec<_> = settings(&env, Scheme::Az).collect();
    assert_eq!(
        found,
        [
            (
                "azure_storage_account_name".to_string(),
                &"bench".to_string()
            ),
            (
                "azure_storage_account_key".to_string(),
                &"c2VjcmV0".to_string()
            ),
        ]
    );
    let store = SharedStore::open("az://runs/a", "r", &env).unwrap();
    assert_eq!(format!("{store:?}"), "SharedStore(az://runs/a/r)");
    assert!(!store.is_folder());
    SharedStore::open(
        "gs://runs",
        "r",
        &self::env(&[("GOOGLE_SKIP_SIGNATURE", "true")]),
    )
    .unwrap();
    let error = SharedStore::open("az://runs", "r", &BTreeMap::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open the store az://runs: Account must be specified; check the container, \
        AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    );
}

#[test]
fn no_message_shows_a_secret() {
    // A server that refuses, and repeats the headers as S3 does for a wrong signature.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let body = format!(
                "<Error><Code>Denied</Code><Message>{}</Message></Error>",
                head.join(" ")
            );
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 403 Forbidden\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    let secrets = ["AKIDEXAMPLE", "SecretExample", "SessionExample"];
    let env = env(&[
        ("AWS_ACCESS_KEY_ID", secrets[0]),
        ("AWS_SECRET_ACCESS_KEY", secrets[1]),
        ("AWS_SESSION_TOKEN", secrets[2]),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ]);
    let store = SharedStore::open("s3://bench", "r", &env).unwrap();
    let error = store.get("hello/0").unwrap_err();
    assert!(!error.is_transient());
    let (text, debug) = (error.to_string(), format!("{error:?} {store:?}"));
    assert!(
        text.starts_with(
            "cannot read s3://bench/r/hello/0: HTTP 403 (Denied: GET /bench/r/hello/0 "
        ),
        "{text}"
    );
    // The session token and the key id were repeated, and removed.
    assert!(
        text.contains("x-amz-security-token: ***") && text.contains("Credential=***/"),
        "{text}"
    );
    for secret in secrets {
        assert!(
            !text.contains(secret) && !debug.contains(secret),
            "{text} {debug}"
        );
    }
    let mut wrong = env.clone();
    wrong.insert("AWS_ALLOW_HTTP".into(), "SecretExample".into());
    let error = SharedStore::open("s3://bench", "r", &wrong).unwrap_err();
    assert!(!error.to_string().contains("SecretExample"), "{error}");
}
