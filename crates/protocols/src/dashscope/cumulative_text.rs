//! Texts that a server sends either in pieces (deltas) or cumulatively in every event.
//!
//! DashScope does either, depending on `incremental_output`, and the events do not show which. While each text starts
//! with the previous one, texts are treated as cumulative; the first that does not proves that they are pieces. A
//! text equal to the previous one is a repetition without new content, except if no text has grown so far, the token
//! count has, and the response is not at its end: then it is treated as a second equal piece, without deciding the
//! mode.

/// The texts of one response, by position.
#[derive(Debug)]
pub struct CumulativeTexts<P> {
    keep: bool,
    /// Texts are known to be pieces.
    pieces: bool,
    /// A text has grown cumulatively.
    grew: bool,
    texts: Vec<Text<P>>,
}

#[derive(Debug)]
struct Text<P> {
    place: P,
    text: String,
    /// Its length after each event, in case these were pieces.
    lengths: Vec<usize>,
}

impl<P: Copy + PartialEq> CumulativeTexts<P> {
    /// No texts. Without `keep`, nothing is stored once texts are known to be pieces.
    pub fn new(keep: bool) -> CumulativeTexts<P> {
        CumulativeTexts {
            keep,
            pieces: false,
            grew: false,
            texts: Vec::new(),
        }
    }

    /// Adds the text of a position in one event; returns its new content, if any. `more`: the token count increased
    /// since the previous event, and this is not the last event.
    pub fn take<'a>(&mut self, place: P, text: &'a str, more: bool) -> Option<&'a str> {
        if text.is_empty() {
            return None;
        }
        let known = self
            .texts
            .iter()
            .position(|known| known.place == place)
            .unwrap_or_else(|| {
                self.texts.push(Text {
                    place,
                    text: String::new(),
                    lengths: Vec::new(),
                });
                self.texts.len() - 1
            });
        let before = &mut self.texts[known];
        match text
            .strip_prefix(before.text.as_str())
            .filter(|_| !self.pieces)
        {
            Some(new) => {
                let first = before.text.is_empty();
                before.text.push_str(new);
                before.lengths.push(before.text.len());
                self.grew |= !first && !new.is_empty();
                match new {
                    "" if more && !self.grew => Some(text),
                    "" => None,
                    new => Some(new),
                }
            }
            None => {
                self.split();
                if self.keep {
                    self.texts[known].text.push_str(text);
                }
                Some(text)
            }
        }
    }

    /// Switches to pieces, including the texts so far.
    fn split(&mut self) {
        if self.pieces {
            return;
        }
        self.pieces = true;
        for known in &mut self.texts {
            let lengths = std::mem::take(&mut known.lengths);
            let pieces = lengths
                .into_iter()
                .filter(|_| self.keep)
                .filter_map(|length| known.text.get(..length));
            known.text = pieces.collect();
        }
    }

    /// The complete texts.
    pub fn texts(&self) -> impl Iterator<Item = (P, &str)> {
        self.texts
            .iter()
            .map(|known| (known.place, known.text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these texts have new content, and the complete text. A leading `+`: the token count increased.
    fn run(texts: &[&str]) -> (Vec<bool>, String) {
        let mut growth = CumulativeTexts::new(true);
        let new = texts
            .iter()
            .map(|text| {
                let more = text.starts_with('+');
                growth.take(0, text.trim_start_matches('+'), more).is_some()
            })
            .collect();
        let whole = growth.texts().map(|(_, text)| text).collect();
        (new, whole)
    }

    #[test]
    fn a_text_from_its_beginning_is_new_where_it_grew() {
        let (yes, no) = (true, false);
        assert_eq!(
            run(&["+He", "+Hel", "+Hel", "Hel", "Hello", "Hello"]),
            (vec![yes, yes, no, no, yes, no], "Hello".into())
        );
        assert_eq!(run(&["Yes", "Yes"]), (vec![yes, no], "Yes".into()));
        assert_eq!(run(&["", "+a", ""]), (vec![no, yes, no], "a".into()));
        assert_eq!(
            run(&["+a", "+a", "+ab"]),
            (vec![yes, yes, yes], "ab".into()),
            "taken for a piece at first"
        );
    }

    #[test]
    fn pieces_are_all_new() {
        assert_eq!(
            run(&["+He", "+llo", "+llo"]),
            (vec![true; 3], "Hellollo".into())
        );
        assert_eq!(run(&["+ha", "+ha", "+!"]), (vec![true; 3], "haha!".into()));
        assert_eq!(
            run(&["+1", "+10", "+, ", "+1"]),
            (vec![true; 4], "110, 1".into()),
            "taken for growth at first"
        );
    }

    #[test]
    fn what_one_text_shows_holds_for_all() {
        let mut growth = CumulativeTexts::new(true);
        let new = [(0, "a"), (0, "ab"), (1, "x"), (1, "x"), (0, "ab")]
            .map(|(place, text)| growth.take(place, text, true).is_some());
        assert_eq!(new, [true, true, true, false, false]);
        assert_eq!(growth.take(1, "y", true), Some("y"));
        assert_eq!(growth.take(0, "ab", true), Some("ab"));
        assert_eq!(
            growth.texts().collect::<Vec<_>>(),
            [(0, "aababab"), (1, "xxy")]
        );
    }

    #[test]
    fn pieces_that_are_not_kept_hold_no_memory() {
        let mut growth = CumulativeTexts::new(false);
        assert_eq!(growth.take(0, "a", true), Some("a"));
        assert_eq!(growth.take(0, "b", true), Some("b"));
        assert_eq!(growth.texts().collect::<Vec<_>>(), [(0, "")]);
    }
}
