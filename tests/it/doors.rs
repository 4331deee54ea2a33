//! Excessive input: endless files, long or deeply nested texts, and many errors.

use crate::lab::*;
use crate::local_models::shipped_model;
use llmscen_scenario::{Input, load};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const SIM: &str =
    "version: 1\nname: t\ntarget: { api: simulator }\nload: { concurrency: 1, requests: 1 }\n";

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
}

/// The error of a command for a scenario that it must refuse with this exit code, in time.
#[track_caller]
fn refused(lab: &Lab, command: &str, scenario: &str, code: i32) -> String {
    lab.file("s.yaml", scenario);
    let mut child = lab.spawn(&[command, "s.yaml"]);
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("no end within 60 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    finish(child).expect(code).err
}

/// A named pipe that no program writes to.
fn pipe(lab: &Lab, name: &str) {
    assert!(
        std::process::Command::new("mkfifo")
            .arg(lab.path().join(name))
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn files_without_end_are_refused_wherever_a_scenario_names_one() {
    let lab = Lab::new();
    pipe(&lab, "pipe");
    let dataset = "dataset: { kind: prompt, text: x }\n";
    for (path, why) in [
        ("/dev/zero", "this is a device"),
        ("/dev/urandom", "this is a device"),
        ("pipe", "this is a named pipe"),
    ] {
        for text in [
            format!("extends: {path}\n{SIM}{dataset}"),
            format!("{SIM}dataset: {{ kind: prompt, text: \"@{path}\" }}\n"),
            format!("{SIM}{dataset}request: {{ template: {path} }}\n"),
            format!("{SIM}{dataset}baseline: {path}\nslo: [ \"ttft.p50 < 2 * baseline\" ]\n"),
        ] {
            says(
                &refused(&lab, "validate", &text, 2),
                &["cannot read", path, why],
            );
        }
    }
    says(
        &refused(
            &lab,
            "validate",
            &format!("extends: /proc/kmsg\n{SIM}{dataset}"),
            2,
        ),
        &["this is a file of the kernel"],
    );
    says(
        &refused(&lab, "validate", &format!("extends: .\n{SIM}{dataset}"), 2),
        &["this is a folder, not a file"],
    );
    for path in ["/dev/zero", "/proc/kmsg", "."] {
        let text = format!("{SIM}dataset: {{ kind: line_by_line, path: {path} }}\n");
        says(
            &refused(&lab, "plan", &text, 3),
            &["cannot read the dataset", "this is a"],
        );
        let text = format!("{SIM}dataset: {{ kind: random, tokens: 8, tokenizer: {path} }}\n");
        says(&refused(&lab, "plan", &text, 3), &[path]);
    }
    says(
        &lab.llmscen(&["validate", "/dev/zero"]).expect(2).err,
        &["this is a device"],
    );
    says(
        &lab.llmscen(&["baseline", "show", "/dev/zero"])
            .expect(2)
            .err,
        &["this is a device"],
    );
}

#[test]
fn a_pipe_without_a_writer_does_not_hang_a_dataset() {
    let lab = Lab::new();
    pipe(&lab, "pipe");
    let said = refused(
        &lab,
        "plan",
        &format!("{SIM}dataset: {{ kind: line_by_line, path: pipe }}\n"),
        3,
    );
    says(&said, &["no program wrote to this pipe within 5 s"]);
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let lab = Lab::new();
    lab.file("long.txt", vec![b'x'; (16 << 20) + 1]);
    let said = refused(
        &lab,
        "validate",
        &format!("{SIM}dataset: {{ kind: prompt, text: \"@long.txt\" }}\n"),
        2,
    );
    says(&said, &["cannot read `long.txt`: longer than 16 MiB"]);
}

#[test]
fn an_endless_line_in_a_compressed_dataset_is_refused_with_its_row() {
    let lab = Lab::new();
    let mut packer = flate2::write::GzEncoder::new(b"".to_vec(), flate2::Compression::fast());
    packer.write_all(b"first\n").unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..200).for_each(|_| packer.write_all(&piece).unwrap());
    lab.file("bomb.gz", packer.finish().unwrap());
    let text = format!("{SIM}dataset: {{ kind: line_by_line, path: bomb.gz, order: shuffle }}\n");
    let said = refused(&lab, "plan", &text, 3);
    says(&said, &["bomb.gz:2: the row is longer than 64 MiB"]);
}

#[test]
fn an_error_far_into_a_line_is_shown_with_an_excerpt() {
    let lab = Lab::new();
    let padding = "é\u{301}漢\t".repeat(25_000);
    for (begin, end) in [("", ""), ("\u{feff}", ""), ("", "\r\n")] {
        let text = format!(
            "{begin}{{\"version\": 1, \"name\": \"t\", \"description\": \"{padding}\", \"target\": {{\"api\": \"simulator\"}}, \
             \"dataset\": \"openqa\", \"load\": {{\"concurency\": 1, \"requests\": 1}}}}{end}"
        );
        assert!(text.len() > 200_000);
        let said = refused(&lab, "validate", &text, 2);
        says(
            &said,
            &[
                "unknown key `concurency`",
                "did you mean `concurrency`?",
                "s.yaml:1:",
            ],
        );
        assert!(said.len() < 4000, "{} bytes", said.len());
    }
    let word = "k".repeat(100_000);
    let said = refused(&lab, "validate", &format!("{SIM}dataset: {word}\n"), 2);
    says(&said, &["unknown kind", "kkk…"]);
    assert!(said.len() < 20_000, "{} bytes", said.len());
}

#[test]
fn fifty_errors_are_shown_and_the_rest_counted() {
    let lab = Lab::new();
    let strange: String = (0..20_000).map(|n| format!("strange_{n}: 1\n")).collect();
    let said = refused(
        &lab,
        "validate",
        &format!("{SIM}dataset: openqa\n{strange}"),
        2,
    );
    says(
        &said,
        &[
            "unknown key `strange_0`",
            "… and 19,950 more errors\n",
            "20,000 errors in s.yaml",
        ],
    );
    assert_eq!(said.matches("unknown key").count(), 50);
}

/// The time that a text takes to be read, the less of two.
fn took(text: &str) -> f64 {
    let once = || {
        let begun = Instant::now();
        let env = BTreeMap::new();
        let loaded = load(&Input {
            path: Path::new("s.yaml"),
            text: Some(text.to_owned()),
            env: &env,
            set: &[],
        });
        if let Err(faults) = loaded {
            faults.render(false, 100);
        }
        begun.elapsed().as_secs_f64()
    };
    (0..2).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[test]
fn four_times_the_text_takes_nowhere_near_sixteen_times_the_time() {
    let vars = |n: usize| {
        let vars: String = (0..n).map(|i| format!("  v{i}: {i}\n")).collect();
        let uses: String = (0..n)
            .map(|i| format!("    h{i}: \"{{{{ vars.v{i} }}}}\"\n"))
            .collect();
        format!("{SIM}dataset: openqa\nvars:\n{vars}request:\n  extra:\n{uses}")
    };
    let strange = |n: usize| {
        format!(
            "{SIM}dataset: openqa\n{}",
            (0..n).map(|i| format!("s{i}: 1\n")).collect::<String>()
        )
    };
    let twice = |n: usize| format!("{SIM}dataset: openqa\nvars: {{{}}}\n", "a: 1, ".repeat(n));
    let unset = |n: usize| {
        let uses: String = (0..n).map(|i| format!("v{i}: \"${{NO_{i}}}\", ")).collect();
        format!("{SIM}dataset: openqa\nrequest: {{ extra: {{{uses}}} }}\n")
    };
    let lost = |n: usize| {
        let uses: String = (0..n)
            .map(|i| format!("v{i}: \"{{{{ vars.x{i} }}}}\", "))
            .collect();
        format!("{SIM}dataset: openqa\nvars: {{ a: 1 }}\nrequest: {{ extra: {{{uses}}} }}\n")
    };
    let slo = |n: usize| {
        format!(
            "{SIM}dataset: openqa\nslo: [{}]\n",
            "ttft.p95 < 1s, ".repeat(n)
        )
    };
    let shapes: [(&str, &dyn Fn(usize) -> String); 6] = [
        ("keys", &vars),
        ("objectives", &slo),
        ("unknown keys", &strange),
        ("duplicate keys", &twice),
        ("variables", &unset),
        ("references", &lost),
    ];
    for (name, text) in shapes {
        let (small, large) = (took(&text(1_000)), took(&text(4_000)));
        println!("{name}: {small:.3} s, {large:.3} s");
        assert!(
            large < 10.0 * small.max(0.01),
            "{name}: {small:.3} s, then {large:.3} s for four times as much"
        );
    }
}

#[test]
fn templates_that_cannot_be_rendered_are_found_by_validate_and_plan_with_their_place() {
    let lab = Lab::new();
    let with = |extra: &str| {
        format!(
            "{SIM}dataset: {{ kind: prompt, text: x }}\nrequest:\n  extra:\n    tag: \"{extra}\"\n"
        )
    };
    for (extra, words) in [
        (
            format!("{{{{ {}true }}}}", "not ".repeat(20_000)),
            [
                "the template nests or chains more than 100 operators",
                "s.yaml:8:",
            ],
        ),
        (
            format!("{{{{ a{} }}}}", ".b".repeat(50_000)),
            [
                "the template nests or chains more than 100 operators",
                "s.yaml:8:",
            ],
        ),
        (
            "{{ prompt | shout }}".to_owned(),
            ["unknown filter `shout`", "s.yaml:8:23"],
        ),
        (
            "{{ shout(prompt) }}".to_owned(),
            ["unknown variable `shout`", "s.yaml:8:14"],
        ),
        (
            "{{ 1 / 0 }}".to_owned(),
            ["this template cannot be rendered", "s.yaml:8:"],
        ),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
                .to_owned(),
            ["the maximum number of steps", "s.yaml:8:"],
        ),
        (
            "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}".to_owned(),
            ["more than 64 MiB of text", "s.yaml:8:"],
        ),
    ] {
        for command in ["validate", "plan"] {
            says(&refused(&lab, command, &with(&extra), 2), &words);
        }
    }
    // What only the data shows is found by `plan`, with the first row.
    lab.file("d.jsonl", "{\"question\": \"x\", \"n\": \"one\"}\n");
    let text = format!(
        "{SIM}dataset: {{ kind: openqa, path: d.jsonl }}\nrequest:\n  extra:\n    tag: \"{{{{ item.n + 1 }}}}\"\n"
    );
    says(
        &refused(&lab, "plan", &text, 2),
        &["first row of the data", "s.yaml:8:10"],
    );
}

/// Templates that grow or nest without bound, in a body and as the chat template of a tokenizer.
#[test]
fn a_template_has_a_limit_on_memory_time_and_nesting() {
    let lab = Lab::new();
    let doubled = "{% set s = s ~ s %}".repeat(40);
    let nested = "|replace('a', 'aaaaaaaaaa')".repeat(10);
    let in_loop = |set: &str| {
        format!(
            "{{% set n = namespace(v='abcdefgh') %}}{{% for i in range(60) %}}{{% set n.v = {set} %}}{{% endfor %}}{{{{ n.v }}}}"
        )
    };
    // A slow machine may reach the limit on time before the one that is meant.
    let memory = "takes more than 256 MiB of memory";
    let time = "takes more than 3 s";
    let steps = "the maximum number of steps";
    let bombs = [
        (
            format!("{{% set s = 'abcdefgh' %}}{doubled}{{{{ s | length }}}}"),
            memory,
        ),
        (in_loop("n.v ~ n.v"), memory),
        (in_loop("n.v | replace('a', n.v)"), memory),
        (in_loop("[n.v, n.v]"), memory),
        (in_loop("n"), "a value contains itself"),
        (
            in_loop(&format!("{}n.v{}", "[".repeat(30), "]".repeat(30)))
                .replace("range(60)", "range(99999)"),
            steps,
        ),
        (format!("{{{{ 'aaaaaaaaaa'{nested} | length }}}}"), memory),
        (
            "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ 1 if 'b' in s }}{% endfor %}"
                .to_owned(),
            time,
        ),
    ];
    for (bomb, words) in &bombs {
        let body = format!(
            "{SIM}dataset: {{ kind: prompt, text: x }}\nrequest:\n  extra:\n    tag: \"{bomb}\"\n"
        );
        let error = refused(&lab, "validate", &body, 2);
        says(&error, &["s.yaml:8:"]);
        assert!(
            error.contains(words) || error.contains(time),
            "`{words}` is missing in:\n{error}"
        );
    }
    // The text of a stranger, which every count of tokens renders.
    let tokenizer = shipped_model("qwen2").join("tokenizer.json");
    std::fs::create_dir(lab.path().join("m")).unwrap();
    std::fs::copy(tokenizer, lab.path().join("m/tokenizer.json")).unwrap();
    let random = format!("{SIM}dataset: {{ kind: random, tokens: 64, tokenizer: m }}\n");
    for (bomb, words) in &bombs[..2] {
        lab.file("m/chat_template.jinja", bomb);
        let error = refused(&lab, "plan", &random, 3);
        assert!(
            error.contains(words) || error.contains(time),
            "`{words}` is missing in:\n{error}"
        );
    }
}

#[test]
fn deep_and_growing_texts_are_errors() {
    let lab = Lab::new();
    let with = |rest: &str| format!("{SIM}dataset: {{ kind: prompt, text: x }}\n{rest}\n");
    let around = |n: usize, open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    refused(
        &lab,
        "validate",
        &with(&format!("vars: {{ a: {} }}", around(20_000, "[", "1", "]"))),
        2,
    );
    let chain: String = (1..500)
        .map(|n| format!("  a{n}: &a{n} [*a{}]\n", n - 1))
        .collect();
    let said = refused(
        &lab,
        "validate",
        &with(&format!("vars:\n  a0: &a0 1\n{chain}")),
        2,
    );
    says(&said, &["more than 100 levels of nesting"]);
    let nested = with(&format!(
        "description: \"{}\"",
        around(20_000, "${NO:-", "x", "}")
    ));
    says(
        &refused(&lab, "validate", &nested, 2),
        &["more than 16 nested defaults"],
    );
    let growing: String = (1..16)
        .map(|n| {
            format!(
                "  a{n}: \"{}\"\n",
                format!("{{{{ vars.a{} }}}}", n - 1).repeat(10)
            )
        })
        .collect();
    let said = refused(
        &lab,
        "validate",
        &with(&format!(
            "description: \"{{{{ vars.a15 }}}}\"\nvars:\n  a0: xxxxxxxxxx\n{growing}"
        )),
        2,
    );
    says(
        &said,
        &["the variables of this scenario expand to more than 64 MiB"],
    );
    let custom = "version: 1\nname: t\ntarget: { api: custom, url: \"http://h/x\", model: m }\ndataset: openqa\nload: { concurrency: 1, requests: 1 }\n";
    let path = format!("$[?{}]", around(500, "(", "@.a", ")"));
    let said = refused(
        &lab,
        "validate",
        &format!("{custom}request: {{ template: {{ a: 1 }}, extract: {{ text: \"{path}\" }} }}\n"),
        2,
    );
    says(&said, &["nested more than 20 deep"]);
}
