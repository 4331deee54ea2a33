//! A hub on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// A hub that gives each path its answer, and the list of paths that were asked for.
pub fn hub(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/datasets/", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut request = String::new();
            while stream.read_line(&mut request).unwrap_or(0) > 2 {}
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let reply = answer(&path);
            log.lock().unwrap().push(path);
            let _ = stream.get_mut().write_all(reply.as_bytes());
        }
    });
    (address, asked)
}

/// An answer with a body.
pub fn reply(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}
