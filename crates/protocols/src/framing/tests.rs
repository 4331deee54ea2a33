use super::*;
use crate::replay::cut_up;
use proptest::prelude::*;

type Found = Vec<(String, String)>;
type Rule = (
    &'static str,
    &'static [u8],
    &'static [(&'static str, &'static str)],
);

fn decode<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Found, bool) {
    let (mut sse, mut seen) = (Sse::new(limit), Found::new());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for piece in pieces {
        sse.push(piece, |event| {
            seen.push((text(event.name), text(event.data)))
        });
    }
    sse.finish(|event| seen.push((text(event.name), text(event.data))));
    (seen, sse.overflowed())
}

/// One case per rule: the input, and the (name, data) of the resulting events.
const RULES: &[Rule] = &[
    ("LF", b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]),
    (
        "CRLF",
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        &[("", "a"), ("", "b")],
    ),
    ("CR", b"data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]),
    (
        "mixed ends",
        b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n",
        &[("", "a"), ("", "b"), ("", "c")],
    ),
    (
        "no space, one space, two",
        b"data:a\n\ndata: a\n\ndata:  a\n\n",
        &[("", "a"), ("", "a"), ("", " a")],
    ),
    (
        "lines are joined",
        b"data: a\ndata: b\ndata\ndata:\ndata: c\n\n",
        &[("", "a\nb\n\n\nc")],
    ),
    (
        "comments are nothing",
        b": ping\n\n:\n\ndata: a\n: between\ndata: b\n\n",
        &[("", "a\nb")],
    ),
    (
        "names",
        b"event: x\ndata: a\n\ndata: b\nevent:y\n\n",
        &[("x", "a"), ("y", "b")],
    ),
    (
        "the last name counts",
        b"event: x\nevent: y\ndata: a\n\n",
        &[("y", "a")],
    ),
    (
        "a name without data is dropped",
        b"event: x\n\ndata: a\n\n",
        &[("", "a")],
    ),
    (
        "id and retry mean nothing",
        b"id: 7\nretry: 5\ndata: a\nid\n\n",
        &[("", "a")],
    ),
    (
        "unknown fields",
        b"datum: a\n data: b\nDATA: c\ndata: d\n\n",
        &[("", "d")],
    ),
    (
        "empty data is an event",
        b"data\n\ndata:\n\ndata: \n\n",
        &[("", ""), ("", ""), ("", "")],
    ),
    (
        "a colon in the value",
        b"data: {\"a\": 1}\n\n",
        &[("", "{\"a\": 1}")],
    ),
    (
        "BOM",
        b"\xEF\xBB\xBFdata: a\n\n\xEF\xBB\xBFdata: b\n\n",
        &[("", "a")],
    ),
    (
        "no blank line at the end",
        b"data: a\n\ndata: b\n",
        &[("", "a"), ("", "b")],
    ),
    (
        "no line end at the end",
        b"data: a\n\ndata: b\r\ndata: c",
        &[("", "a"), ("", "b\nc")],
    ),
    ("blank lines only", b"\n\r\n\r\r\n\n", &[]),
    ("nothing", b"", &[]),
    (
        "UTF-8",
        "data: a\u{1F600}é\n\n".as_bytes(),
        &[("", "a\u{1F600}é")],
    ),
];

#[test]
fn rules_in_one_piece_and_byte_by_byte() {
    for (rule, bytes, expected) in RULES {
        let expected: Found = expected
            .iter()
            .map(|(name, data)| (name.to_string(), data.to_string()))
            .collect();
        assert_eq!(decode(64, [*bytes]), (expected.clone(), false), "{rule}");
        assert_eq!(
            decode(64, bytes.chunks(1)),
            (expected, false),
            "{rule}, byte by byte"
        );
    }
}

#[test]
fn the_limit_applies_to_events_lines_and_comments() {
    let ok = ("".to_string(), "ok".to_string());
    for long in [
        &b"data: 456789ABCDEFG\n\n"[..],
        b"data: 45678\ndata: 45678\ndata:12345\n\n",
        b": 23456789ABCDEFG\n",
        b"data: 0123456789ABCDEFGH",
    ] {
        let bytes = [b"data: ok\n\n", long, b"\n\ndata: late\n\n"].concat();
        for size in [1, 7, 1000] {
            assert_eq!(
                decode(16, bytes.chunks(size)),
                (vec![ok.clone()], true),
                "{}",
                String::from_utf8_lossy(long)
            );
        }
    }
    let just = b"data: 456789ABCD\n\ndata: 1234567\ndata: 12345678\n\n";
    assert!(!decode(16, [&just[..]]).1);
}

#[test]
fn text_outside_of_events_is_kept() {
    let stray = |bytes: &[u8]| {
        let mut sse = Sse::new(1 << 10);
        sse.push(bytes, |_| {});
        sse.finish(|_| {});
        String::from_utf8(Framer::Sse(sse).stray_text().to_vec()).unwrap()
    };
    assert_eq!(
        stray(b"data: a\n\n{\"error\":\n  \"full\"}"),
        "{\"error\":\n  \"full\"}\n"
    );
    assert_eq!(stray(b": ping\nid: 7\nretry: 5\nevent: x\ndata: a\n\n"), "");
    assert_eq!(stray(&b"x\n".repeat(9000)).len(), MAX_STRAY);
}

#[test]
fn the_first_bytes_show_the_framing() {
    for (body, expected) in [
        ("data: a", Beginning::Events),
        ("\n\n event:x", Beginning::Events),
        (": ping", Beginning::Events),
        ("\u{feff}id: 7", Beginning::Events),
        ("retry: 5", Beginning::Events),
        (" {\"a\":1}", Beginning::Json),
        ("[1]", Beginning::Json),
        ("<html>", Beginning::Other),
        ("database", Beginning::Other),
        ("RIFF", Beginning::Other),
    ] {
        let first = (1..=body.len()).find_map(|end| sniff(&body.as_bytes()[..end]));
        assert_eq!(
            (first, sniff(body.as_bytes())),
            (Some(expected), Some(expected)),
            "{body}"
        );
    }
    assert_eq!(
        [sniff(b""), sniff(b"  "), sniff(b"\xEF"), sniff(b"dat")],
        [None; 4]
    );
    assert_eq!(sniff(&[b' '; 2000]), Some(Beginning::Other));
}

#[test]
fn no_memory_is_kept_beyond_the_limit() {
    let mut sse = Sse::new(1 << 16);
    (0..100).for_each(|_| sse.push(&[b'x'; 1 << 12], |_| {}));
    assert!(sse.overflowed());
    assert_eq!(sse.line.capacity(), 0);
}

proptest! {
    #[test]
    fn splits_change_nothing(
        words in prop::collection::vec(
            prop::sample::select(vec![&b"data: a"[..], b"data", b"event: x", b":", b"\r", b"\n",
                b"\r\n", b"\xEF\xBB\xBF", b"\xFF"]),
            0..24,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = words.concat();
        prop_assert_eq!(decode(20, cut_up(&bytes, &cuts)), decode(20, [&bytes[..]]));
    }
}
