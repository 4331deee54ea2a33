//! Documents on a terminal.

/// A JSON document indented, and any other text unchanged.
pub fn indented(text: &str) -> String {
    let document = serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    document.map_or_else(|| text.to_owned(), |value| format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_indented_and_texts_are_not() {
        assert_eq!(indented(r#"{"b":1.0,"a":[]}"#), "{\n  \"b\": 1.0,\n  \"a\": []\n}");
        assert_eq!(indented("data: {}\n\n"), "data: {}\n\n");
        assert_eq!(indented("12"), "12");
    }
}
