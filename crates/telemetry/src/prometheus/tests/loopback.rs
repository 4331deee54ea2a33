//! Pages from a server on loopback: one that changes, breaks off, is none, does not end or does not come.

use super::*;
use llmscen_core::target::{Secret, Tls};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A server that answers one request after another on one connection with these bytes; it ends when they are used up.
fn server(answers: Vec<Vec<u8>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let handle = std::thread::spawn(move || {
        let mut heads = Vec::new();
        let mut connection = None;
        for answer in answers {
            // An answer that closes its connection is followed by a new one.
            let mut stream = connection.take().unwrap_or_else(|| listener.accept().unwrap().0);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            heads.push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            stream.write_all(&answer).unwrap();
            connection = (!answer.windows(5).any(|word| word == b"close")).then_some(stream);
        }
        heads
    });
    (url, handle)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn source(url: &str, interval: u64) -> Prometheus {
    let headers = vec![("X-Token".to_owned(), Secret::new("s3cret"))];
    Prometheus::new(&Scrape { url: url.to_owned(), interval: Nanos::from_millis(interval), headers }, &Tls::default(), Vec::new())
}

/// One reading: the rows, or why there are none; `up` is always among them.
fn read(source: &mut Prometheus) -> (Vec<Row>, Result<(), String>) {
    let mut rows = Vec::new();
    let result = source.sample(Instant::now(), &mut |told| rows.push((told.name.to_owned(), told.labels.to_owned(), told.value)));
    (rows, result)
}

#[test]
fn a_page_is_read_again_and_again_on_one_connection() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(b"sglang:num_running_reqs 2\n").unwrap();
    let (url, server) = server(vec![
        answer("200 OK\r\n", b"vllm:num_requests_running 1\n"),
        answer("200 OK\r\ncontent-encoding: gzip\r\n", &packer.finish().unwrap()),
        answer("503 Busy\r\n", b"not now"),
        answer("200 OK\r\n", b"vllm:num_requests_running 3\n"),
    ]);
    let mut page = source(&url, 5000);
    assert_eq!(read(&mut page), (vec![row("up", "", 1.0), row("server.running", "", 1.0)], Ok(())));
    assert_eq!(read(&mut page), (vec![row("up", "", 1.0), row("server.running", "", 2.0)], Ok(())), "another family");
    let (rows, result) = read(&mut page);
    assert_eq!((rows, result.unwrap_err()), (vec![row("up", "", 0.0)], format!("{url}: the server answered 503")));
    assert_eq!(read(&mut page).0, [row("up", "", 1.0), row("server.running", "", 3.0)]);
    let heads = server.join().unwrap();
    assert_eq!(heads.len(), 4, "one connection served them all");
    assert!(heads[0].starts_with("get /metrics http/1.1\r\n") && heads[0].contains("x-token: s3cret"), "{}", heads[0]);
    assert!(heads[0].contains("accept-encoding: gzip") && heads[0].contains("accept: text/plain;version=0.0.4"), "{}", heads[0]);
    let notes = page.notes();
    assert!(notes[0].starts_with("vLLM's page has no `vllm:num_requests_waiting` (server.waiting), no"), "{notes:?}");
    assert!(notes[1].starts_with("SGLang's page has no `sglang:num_queue_reqs` (server.waiting), no"), "{notes:?}");
    assert_eq!(page.notes(), [] as [&str; 0], "once");
}

#[test]
fn a_page_that_breaks_off_or_is_none_tells_nothing_but_that() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\nconnection: close\r\n\r\nvllm:num_requests_running 12\n".to_vec();
    let (url, server) = server(vec![
        cut,
        answer("200 OK\r\nconnection: close\r\n", b"<html><body>Sign in</body></html>\n"),
        answer("200 OK\r\nconnection: close\r\n", b"\xff\xfe\x00"),
        answer("200 OK\r\nconnection: close\r\n", b""),
        answer("302 Found\r\nlocation: http://192.0.2.1/metrics\r\nconnection: close\r\n", b""),
    ]);
    let mut page = source(&url, 5000);
    let mut reasons = Vec::new();
    for _ in 0..5 {
        let (rows, result) = read(&mut page);
        assert_eq!(rows, [row("up", "", 0.0)]);
        reasons.push(result.unwrap_err().strip_prefix(&format!("{url}: ")).unwrap().to_owned());
    }
    assert!(!reasons[0].is_empty());
    assert_eq!(reasons[1], "this is no Prometheus text: `<html><body>Sign in</body></html>`");
    assert!(reasons[2].starts_with("the page is not text: invalid utf-8"), "{}", reasons[2]);
    assert_eq!(reasons[3..], ["the page is empty", "the server answered 302"]);
    assert_eq!(page.notes(), [] as [&str; 0], "what failed was told when it failed");
    server.join().unwrap();
}

#[test]
fn a_page_that_does_not_end_and_one_that_does_not_come_are_given_up() {
    let large = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec(), vec![b'a'; fetch::LIMIT + 1]].concat();
    let (url, server) = server(vec![large]);
    let (_, result) = read(&mut source(&url, 5000));
    assert_eq!(result.unwrap_err(), format!("{url}: the page is larger than 16 MiB"));
    server.join().unwrap();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", silent.local_addr().unwrap());
    let (rows, result) = read(&mut source(&url, 50));
    assert_eq!((rows, result.unwrap_err()), (vec![row("up", "", 0.0)], format!("{url}: no whole page within 50 ms")));
    drop(silent);
    let (_, result) = read(&mut source(&url, 5000));
    assert!(result.unwrap_err().to_ascii_lowercase().contains("refused"));
}

#[test]
fn settings_that_cannot_be_used_are_told_when_it_is_asked() {
    let tls = Tls { ca: Some("nowhere.pem".to_owned()), ..Tls::default() };
    let scrape = Scrape { url: "http://127.0.0.1:1/".to_owned(), interval: Nanos::from_millis(10), headers: Vec::new() };
    let (rows, result) = read(&mut Prometheus::new(&scrape, &tls, Vec::new()));
    assert_eq!(rows, [row("up", "", 0.0)]);
    assert!(result.unwrap_err().starts_with("http://127.0.0.1:1/: nowhere.pem: "));
}
