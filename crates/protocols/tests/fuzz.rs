//! The checks of the fuzz targets, on the recordings that are their first inputs.

#[path = "../../../tests/fuzz/src/lib.rs"]
mod fuzz;

use llmscen_core::api::Api;
use llmscen_protocols::protocol;
use std::fs;

/// Control bytes after a body: how it is framed, and where it is cut.
const CONTROLS: [[u8; 8]; 4] = [
    [0, 8, 40, 80, 120, 160, 200, 240],
    [4, 1, 0, 0, 0, 0, 0, 0],
    [9, 9, 0, 0, 0, 0, 0, 255],
    [2, 3, 0, 0, 0, 0, 0, 0],
];

#[test]
fn recordings_pass_the_checks_of_the_fuzz_targets() {
    let mut bodies = vec![b"data: {\"a\": 1}\n\ndata: [DONE]\n\n".to_vec()];
    for folder in ["../../tests/wire", "../../tests/wire/spec"] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let bytes = fs::read(&path).unwrap();
                let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
                bodies.push(bytes[head.map_or(0, |at| at + 4)..].to_vec());
            }
        }
    }
    assert!(bodies.len() > 90, "{} bodies", bodies.len());
    let custom = fuzz::extracts().map(fuzz::custom_request);
    let mut protocols: Vec<_> = custom
        .iter()
        .map(|request| protocol(Api::Custom, Some(request)).unwrap())
        .collect();
    let known = Api::ALL.iter().filter(|api| **api != Api::Custom);
    protocols.extend(known.map(|api| protocol(*api, None).unwrap()));
    for body in &bodies {
        for control in CONTROLS {
            let input = [&body[..], &control].concat();
            protocols
                .iter()
                .for_each(|protocol| fuzz::check(&**protocol, &input));
            for path in ["$..*", "$.choices[*].delta.content", "$["] {
                fuzz::check_with_path(&[path.as_bytes(), b"\n", &input].concat());
            }
        }
    }
}
