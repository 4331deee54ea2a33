use super::*;

#[test]
fn the_content_type_decides() {
    for asked in [true, false] {
        assert_eq!(
            framing_of_content_type(Some("text/event-stream; charset=utf-8"), asked),
            Ok(Framing::Sse)
        );
        assert_eq!(
            framing_of_content_type(Some("Application/JSON"), asked),
            Ok(Framing::Json)
        );
        assert_eq!(
            framing_of_content_type(Some("application/x-ndjson"), asked),
            Ok(Framing::Ndjson)
        );
    }
    assert_eq!(framing_of_content_type(None, true), Ok(Framing::Sse));
    assert_eq!(framing_of_content_type(None, false), Ok(Framing::Json));
}

#[test]
fn an_api_without_streaming_accepts_json_only() {
    assert_eq!(require_json(None), Ok(Framing::Json));
    assert_eq!(
        require_json(Some("application/json; charset=utf-8")),
        Ok(Framing::Json)
    );
    for given in ["text/event-stream", "application/x-ndjson", "text/html"] {
        let failure = require_json(Some(given)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Decode);
        assert!(
            failure.message.contains(&format!("`{given}`")),
            "{}",
            failure.message
        );
    }
}

#[test]
fn any_other_type_is_named() {
    for given in ["text/html; charset=utf-8", "text/plain", ""] {
        let failure = framing_of_content_type(Some(given), true).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Decode);
        assert!(
            failure.message.contains(&format!("`{given}`")),
            "{}",
            failure.message
        );
    }
}
