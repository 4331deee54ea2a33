//! How a response's bytes are framed.

use llmscen_core::outcome::{Failure, FailureKind};

/// How a response's bytes are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Server-sent events.
    Stream,
    /// A JSON document a line.
    Lines,
    /// One JSON document.
    Whole,
}

/// The shape that a successful response's `content-type` announces; without that header, the one that was asked for.
///
/// Any other type is a `decode` failure: a proxy's HTML page under status 200 is no reply.
pub fn shape_of(content_type: Option<&str>, asked_stream: bool) -> Result<Shape, Failure> {
    let Some(given) = content_type else {
        return Ok(if asked_stream { Shape::Stream } else { Shape::Whole });
    };
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => Ok(Shape::Stream),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => Ok(Shape::Lines),
        "application/json" => Ok(Shape::Whole),
        _ => Err(Failure::new(
            FailureKind::Decode,
            format!("the response is `{given}`, not `text/event-stream` or `application/json`; check `target.url`"),
        )),
    }
}

/// The shape of an API that never streams: its `content-type`, if there is one, must be that of JSON.
///
/// # Errors
/// `decode`, as for [`shape_of`].
pub fn whole_only(content_type: Option<&str>) -> Result<Shape, Failure> {
    match shape_of(content_type, false)? {
        Shape::Whole => Ok(Shape::Whole),
        Shape::Stream | Shape::Lines => {
            let message =
                format!("the response is a stream (`{}`), which this API never gives", content_type.unwrap_or_default());
            Err(Failure::new(FailureKind::Decode, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_decides_not_what_was_asked() {
        for asked in [true, false] {
            assert_eq!(shape_of(Some("text/event-stream; charset=utf-8"), asked), Ok(Shape::Stream));
            assert_eq!(shape_of(Some("Application/JSON"), asked), Ok(Shape::Whole));
            assert_eq!(shape_of(Some("application/x-ndjson"), asked), Ok(Shape::Lines));
        }
        assert_eq!(shape_of(None, true), Ok(Shape::Stream));
        assert_eq!(shape_of(None, false), Ok(Shape::Whole));
    }

    #[test]
    fn an_api_without_streams_takes_whole_documents_only() {
        assert_eq!(whole_only(None), Ok(Shape::Whole));
        assert_eq!(whole_only(Some("application/json; charset=utf-8")), Ok(Shape::Whole));
        for given in ["text/event-stream", "application/x-ndjson", "text/html"] {
            let failure = whole_only(Some(given)).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(failure.message.contains(&format!("`{given}`")), "{}", failure.message);
        }
    }

    #[test]
    fn any_other_type_is_named() {
        for given in ["text/html; charset=utf-8", "text/plain", ""] {
            let failure = shape_of(Some(given), true).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(failure.message.contains(&format!("`{given}`")), "{}", failure.message);
        }
    }
}
