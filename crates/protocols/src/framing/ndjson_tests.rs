use super::*;
use proptest::prelude::*;

fn lines<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let (mut splitter, mut found) = (Lines::new(limit), Vec::new());
    let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
    pieces
        .into_iter()
        .for_each(|piece| splitter.push(piece, |line| found.push(text(line))));
    splitter.finish(|line| found.push(text(line)));
    (found, splitter.overflowed())
}

#[test]
fn blank_lines_are_skipped_and_the_last_one_needs_no_end() {
    let text = "\u{feff}{\"a\":1}\r\n\n  \r{\"b\":2}\n{}".as_bytes();
    assert_eq!(
        lines(64, [text]),
        (
            vec!["{\"a\":1}".into(), "{\"b\":2}".into(), "{}".into()],
            false
        )
    );
    assert_eq!(lines(64, []), (vec![], false));
}

#[test]
fn a_line_past_the_bound_ends_it() {
    assert_eq!(
        lines(4, [&b"1234\n12345\n1\n"[..]]),
        (vec!["1234".into()], true)
    );
    assert_eq!(lines(4, [&b"12"[..], b"345"]), (vec![], true));
}

proptest! {
    #[test]
    fn any_split_gives_the_same_lines(text in "[ab\n\r]{0,40}", at in 0usize..40) {
        let at = at.min(text.len());
        prop_assert_eq!(lines(8, [&text.as_bytes()[..at], &text.as_bytes()[at..]]), lines(8, [text.as_bytes()]));
    }
}
