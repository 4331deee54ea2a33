//! The errors of every invalid scenario in `tests/faults`, and of wrong indentation, quotes and brackets.

use super::{load_file, load_with};

#[test]
fn every_invalid_scenario_reports_all_its_errors() {
    let mut names: Vec<_> = std::fs::read_dir("tests/faults")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    names.sort();
    assert!(names.len() > 40, "{} plans", names.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../tests/faults");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for path in names {
            let faults = load_file(&path).unwrap_err();
            assert!(faults.iter().all(|fault| fault.line() > 0), "{path:?}");
            let text = faults.render(false, 110);
            for word in ["Some(", "None", "Err(", "Error {", "::", "panicked"] {
                assert!(!text.contains(word), "{word} in {text}");
            }
            insta::assert_snapshot!(path.file_stem().unwrap().to_str().unwrap(), text);
        }
    });
}

#[test]
fn six_errors_are_reported_at_their_places() {
    let faults = load_file("tests/faults/six.yaml".as_ref()).unwrap_err();
    let places: Vec<_> = faults
        .iter()
        .map(|fault| (fault.line(), fault.column(), fault.message()))
        .collect();
    assert_eq!(
        places,
        [
            (4, 1, "unknown key `sede`"),
            (7, 21, "`read` must be a duration such as `30s`"),
            (8, 10, "unknown kind `openq`"),
            (12, 3, "duplicate key `requests`"),
            (14, 3, "`load.concurency` cannot be swept"),
            (17, 5, "unknown metric `tpto`"),
        ]
    );
    assert!(
        faults
            .iter()
            .all(|fault| fault.file() == "tests/faults/six.yaml")
    );
    assert!(
        faults
            .to_string()
            .starts_with("tests/faults/six.yaml:4:1: unknown key `sede`\n")
    );
}

#[test]
fn color_changes_nothing_but_color() {
    let faults = load_file("tests/faults/six.yaml".as_ref()).unwrap_err();
    let (plain, color) = (faults.render(false, 80), faults.render(true, 80));
    assert!(color.contains("\u{1b}[") && !plain.contains('\u{1b}'));
    let mut stripped = String::new();
    for (index, piece) in color.split("\u{1b}[").enumerate() {
        stripped += if index == 0 {
            piece
        } else {
            piece.split_once('m').unwrap().1
        };
    }
    assert_eq!(stripped, plain);
}

#[test]
fn missing_file_is_an_error_of_the_command_line() {
    let faults = load_file("tests/faults/nowhere.yaml".as_ref()).unwrap_err();
    let [fault] = faults.iter().as_slice() else {
        panic!("{faults}")
    };
    assert_eq!(
        (fault.file(), fault.message()),
        (
            "command line",
            "scenario file not found: tests/faults/nowhere.yaml"
        )
    );
}

const HEAD: &str = "version: 1\nname: t\n";

/// The errors of a text, without the lines of the frame.
fn rendered(text: &str) -> String {
    load_with(text, &[], &[]).unwrap_err().render(false, 200)
}

#[test]
fn layout_errors_are_explained_once() {
    let mut wrong = Vec::new();
    let rest = "dataset: openqa\nload: { concurrency: 8, requests: 100 }\n";
    for (target, words) in [
        // Indented too much or too little.
        (
            "target:\n  url: simulator\n   model: m\n",
            &[
                "invalid YAML: unexpected indentation",
                "line 5 is indented by 3 spaces, line 4 by 2",
                "help: align `model` with `url` (if",
            ][..],
        ),
        (
            "target:\n  url: simulator\n model: m\n",
            &[
                "invalid YAML: unexpected indentation",
                "line 5 is indented by 1 space, line 4 by 2",
                "help: align `model` with `url`\n",
            ],
        ),
        (
            "target:\n\turl: simulator\n",
            &[
                "invalid YAML: a tab in the indentation",
                "Indent with spaces",
            ],
        ),
        // Children at the level of their parent.
        (
            "target:\nurl: simulator\nmodel: m\n",
            &[
                "`url` must be indented under `target`",
                "add two spaces before `url` and `model`",
            ],
        ),
        (
            "target:\n  url: simulator\n  timeouts:\n  connect: 5s\n",
            &[
                "`connect` must be indented under `timeouts`",
                "add two spaces before `connect`",
            ],
        ),
        // A missing space after a colon.
        (
            "target:\n  url:simulator\n  model: m\n",
            &[
                "a space is missing after the colon",
                "Write `url: simulator`.",
            ],
        ),
        (
            "target:\n  model: m\n  url:simulator\n",
            &[
                "a space is missing after the colon",
                "Write `url: simulator`.",
            ],
        ),
        (
            "target:\n  url:simulator\n",
            &[
                "a space is missing after the colon",
                "Write `url: simulator`.",
            ],
        ),
        (
            "target: { url:simulator, model: m }\n",
            &[
                "a space is missing after the colon",
                "Write `url: simulator`.",
            ],
        ),
        // Quotes and brackets.
        (
            "target: { url: simulator\n",
            &[
                "invalid YAML: unclosed bracket `{`",
                ":3:9]",
                "Add the closing `}`.",
            ],
        ),
        (
            "target: { url: simulator, gpus: [1 }\n",
            &[
                "invalid YAML: unclosed bracket `[`",
                ":3:33]",
                "Add the closing `]`.",
            ],
        ),
        (
            "target: { url: \"simulator }\n",
            &[
                "invalid YAML: unclosed quote `\"`",
                ":3:16]",
                "Add the closing `\"`.",
            ],
        ),
        (
            "target:\n  url: 'simulator\n",
            &["invalid YAML: unclosed quote `'`", ":4:8]"],
        ),
        (
            "target:\n  url: \"simulator\n  model: \"m\"\n",
            &["invalid YAML: unclosed quote `\"`", ":4:8]"],
        ),
        (
            "target:\n  url: \"sim\"ulator\n",
            &[
                "invalid YAML: text after a closing quote",
                "Quote the whole value",
            ],
        ),
        (
            "target: { url: simulator model: m }\n",
            &["invalid YAML", ":3:"],
        ),
        // Characters with a meaning in YAML.
        (
            "target:\n  url: @simulator\n",
            &[
                "a value begins with `@`",
                "Quote text that begins with `@`.",
            ],
        ),
        (
            "target:\n  url: `simulator`\n",
            &["a value begins with ```", "Quote text"],
        ),
        (
            "target:\n  url: %m\n",
            &["begins with `%`", "Quote text that begins with `%`."],
        ),
        ("%m: 1\ntarget: simulator\n", &["begins with `%`"]),
        (
            "target:\n  url: *simulator\n",
            &[
                "unknown alias `*simulator`",
                "Quote text that begins with `*`.",
            ],
        ),
        (
            "target:\n  url: simulator\n  model: a: b\n",
            &[
                "a second `: ` in one value",
                "Quote text that contains `: `: \"a: b\".",
            ],
        ),
        (
            "target:\n  url: simulator\n  model\n",
            &["invalid YAML: a colon is missing", "Write `model: …`"],
        ),
        (
            "target: { url: simulator }\ntarget: { url: other }\n",
            &["duplicate key `target`", "first value", "second value"],
        ),
    ] {
        let text = rendered(&format!("{HEAD}{target}{rest}"));
        let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
        if !missing.is_empty() || !text.ends_with("1 error in t.yaml. No request was sent.\n") {
            wrong.push(format!("{target}\n{missing:?} in\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn windows_line_ends_and_byte_order_marks_are_ignored() {
    let text = "version: 1\nname: t\ntarget:\n  url: simulator\ndataset: openqa\nload: { \
    concurrency: 8, requests: 100 }\n";
    let plan = |text: &str| load_with(text, &[], &[]).unwrap().plan;
    assert_eq!(plan(&text.replace('\n', "\r\n")), plan(text));
    assert_eq!(plan(&format!("\u{feff}{text}")), plan(text));
    let wrong = rendered(
        &text
            .replace("  url: simulator", "  url: simulator\n   model: m")
            .replace('\n', "\r\n"),
    );
    assert!(
        wrong.contains("line 5 is indented by 3 spaces, line 4 by 2"),
        "{wrong}"
    );
}

#[test]
fn unset_variable_is_one_error_with_all_its_places() {
    let text = std::fs::read_to_string("tests/faults/unset-variable.yaml").unwrap();
    let faults = load_with(&text, &[], &[]).unwrap_err();
    let messages: Vec<_> = faults.iter().map(|fault| fault.message()).collect();
    assert_eq!(
        messages,
        [
            "environment variable `NOPE` is not set",
            "environment variable `OTHER` is not set"
        ]
    );
    let text = faults.render(false, 110);
    assert!(
        text.contains("Used in 4 places: line 4, line 5, line 6, line 7."),
        "{text}"
    );
    let swept = "version: 1\nname: t\nvars: { url: \"${NOPE}\" }\ntarget: { url: \"{{ vars.url \
    }}\", model: \"{{ vars.url }}\" }\ndataset: openqa\nload: { requests: 9 }\nmatrix: { \
    load.concurrency: [1, 2, 3] }\n";
    assert_eq!(load_with(swept, &[], &[]).unwrap_err().len(), 1);
}

#[test]
fn a_bracket_too_many_is_found_where_it_is() {
    let text = "{\"version\": 1,\n \"target\": {\"url\": \"simulator\"}},\n \"load\": \
    {\"requests\": 5, \"concurrency\": 1}\n}\n";
    let loaded = crate::load(&crate::Input {
        path: "j.json".as_ref(),
        text: Some(text.to_owned()),
        env: &Default::default(),
        set: &[],
    });
    let faults = loaded.unwrap_err();
    let places: Vec<_> = faults
        .iter()
        .map(|fault| (fault.line(), fault.message().to_owned()))
        .collect();
    assert_eq!(
        places,
        [(
            2,
            "invalid JSON: text after the end of the value".to_owned()
        )]
    );
}
