//! How a response's bytes are framed.

use crate::model::outcome::{Failure, FailureKind};

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
    fn any_other_type_is_named() {
        for given in ["text/html; charset=utf-8", "text/plain", ""] {
            let failure = shape_of(Some(given), true).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Decode);
            assert!(failure.message.contains(&format!("`{given}`")), "{}", failure.message);
        }
    }
}
