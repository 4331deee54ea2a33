use super::*;

#[test]
fn names_parse_back_and_match_serde() {
    for kind in FailureKind::ALL {
        assert_eq!(FailureKind::parse(kind.name()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
    assert_eq!(FailureKind::parse("ok"), None);
}

#[test]
fn statuses_are_told_apart() {
    let kinds = [400, 404, 429, 500, 503, 599].map(FailureKind::of_status).map(FailureKind::name);
    assert_eq!(kinds, ["http_4xx", "http_4xx", "http_429", "http_5xx", "http_5xx", "http_5xx"]);
    let kinds = [301, 302, 304, 307, 308, 399].map(FailureKind::of_status);
    assert_eq!(kinds, [FailureKind::Http3xx; 6]);
    assert_eq!([101, 600, 999].map(FailureKind::of_status), [FailureKind::Decode; 3]);
}

#[test]
fn a_message_is_cut_by_characters_not_bytes() {
    assert_eq!(Failure::new(FailureKind::Decode, "é".repeat(600)).message.chars().count(), 500);
}
