//! Every bad plan in `tests/faults`, and what a reader is told about it.

use super::tests::load_file;

#[test]
fn every_bad_plan_is_answered_with_all_that_is_wrong() {
    let mut names: Vec<_> = std::fs::read_dir("tests/faults").unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    names.sort();
    assert!(names.len() > 40, "{} plans", names.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../tests/faults");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for path in names {
            let faults = load_file(&path).unwrap_err();
            insta::assert_snapshot!(path.file_stem().unwrap().to_str().unwrap(), faults.render(false, 110));
        }
    });
}

#[test]
fn six_mistakes_are_six_faults_each_in_its_place() {
    let faults = load_file("tests/faults/six.yaml".as_ref()).unwrap_err();
    let places: Vec<_> = faults.iter().map(|fault| (fault.line(), fault.column(), fault.message())).collect();
    assert_eq!(
        places,
        [
            (4, 1, "unknown key `sede`"),
            (7, 21, "`read` must be a duration such as `30s`"),
            (8, 10, "unknown kind `openq`"),
            (12, 3, "duplicate key `requests`"),
            (14, 3, "`load.concurency` is no path to sweep"),
            (17, 5, "unknown metric `tpto`"),
        ]
    );
    assert!(faults.iter().all(|fault| fault.file() == "tests/faults/six.yaml"));
    assert!(faults.to_string().starts_with("tests/faults/six.yaml:4:1: unknown key `sede`\n"));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let faults = load_file("tests/faults/six.yaml".as_ref()).unwrap_err();
    let (plain, color) = (faults.render(false, 80), faults.render(true, 80));
    assert!(color.contains("\u{1b}[") && !plain.contains('\u{1b}'));
    let mut stripped = String::new();
    for (index, piece) in color.split("\u{1b}[").enumerate() {
        stripped += if index == 0 { piece } else { piece.split_once('m').unwrap().1 };
    }
    assert_eq!(stripped, plain);
}

#[test]
fn a_file_that_is_not_there_is_a_fault_of_the_command_line() {
    let faults = load_file("tests/faults/nowhere.yaml".as_ref()).unwrap_err();
    let [fault] = faults.iter().as_slice() else { panic!("{faults}") };
    assert_eq!((fault.file(), fault.message()), ("command line", "scenario file not found: tests/faults/nowhere.yaml"));
}
