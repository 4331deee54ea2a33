//! Texts that a server sends piece by piece, or from their beginning in every event.
//!
//! DashScope does either, as `incremental_output` says, and no event tells which. As long as each text begins with the one
//! before it, the later is the earlier one grown; the first that does not shows that they are pieces. A text that is just
//! the one before it is a repetition and not new, unless no text grew so far, the tokens did, and the end is not here: that
//! looks like two equal pieces, and counts, but proves nothing.

/// The texts of one response, by their place in it.
#[derive(Debug)]
pub struct Growth<P> {
    keep: bool,
    /// Texts are pieces.
    pieces: bool,
    /// A text was seen to grow.
    grew: bool,
    texts: Vec<Text<P>>,
}

#[derive(Debug)]
struct Text<P> {
    place: P,
    text: String,
    /// The lengths at which it was seen, for the case that these were pieces after all.
    seen: Vec<usize>,
}

impl<P: Copy + PartialEq> Growth<P> {
    /// No text yet. Without `keep` nothing is held once texts are known to be pieces.
    pub fn new(keep: bool) -> Growth<P> {
        Growth { keep, pieces: false, grew: false, texts: Vec::new() }
    }

    /// Whether a text that is not empty need not be looked at: it is new, and not kept.
    pub fn is_blind(&self) -> bool {
        self.pieces && !self.keep
    }

    /// Takes the text of this place in one event and says whether it brings new text. `more`: the server counts more
    /// tokens than in the event before, and goes on.
    pub fn take(&mut self, place: P, text: &str, more: bool) -> bool {
        if text.is_empty() {
            return false;
        }
        let known = self.texts.iter().position(|known| known.place == place).unwrap_or_else(|| {
            self.texts.push(Text { place, text: String::new(), seen: Vec::new() });
            self.texts.len() - 1
        });
        let before = &mut self.texts[known];
        match text.strip_prefix(before.text.as_str()).filter(|_| !self.pieces) {
            Some(new) => {
                let first = before.text.is_empty();
                before.text.push_str(new);
                before.seen.push(before.text.len());
                self.grew |= !first && !new.is_empty();
                !new.is_empty() || (more && !self.grew)
            }
            None => {
                self.split();
                if self.keep {
                    self.texts[known].text.push_str(text);
                }
                true
            }
        }
    }

    /// From now on texts are pieces, and those so far were.
    fn split(&mut self) {
        if self.pieces {
            return;
        }
        self.pieces = true;
        for known in &mut self.texts {
            let seen = std::mem::take(&mut known.seen);
            let pieces = seen.into_iter().filter(|_| self.keep).filter_map(|length| known.text.get(..length));
            known.text = pieces.collect();
        }
    }

    /// The texts, each whole.
    pub fn texts(&self) -> impl Iterator<Item = (P, &str)> {
        self.texts.iter().map(|known| (known.place, known.text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these texts were new, and what they came to. A `+` in front: the server counts more tokens.
    fn run(texts: &[&str]) -> (Vec<bool>, String) {
        let mut growth = Growth::new(true);
        let new = texts.iter().map(|text| growth.take(0, text.trim_start_matches('+'), text.starts_with('+'))).collect();
        let whole = growth.texts().map(|(_, text)| text).collect();
        (new, whole)
    }

    #[test]
    fn a_text_from_its_beginning_is_new_where_it_grew() {
        let (yes, no) = (true, false);
        assert_eq!(run(&["+He", "+Hel", "+Hel", "Hel", "Hello", "Hello"]), (vec![yes, yes, no, no, yes, no], "Hello".into()));
        assert_eq!(run(&["Yes", "Yes"]), (vec![yes, no], "Yes".into()));
        assert_eq!(run(&["", "+a", ""]), (vec![no, yes, no], "a".into()));
        assert_eq!(run(&["+a", "+a", "+ab"]), (vec![yes, yes, yes], "ab".into()), "taken for a piece at first");
    }

    #[test]
    fn pieces_are_all_new() {
        assert_eq!(run(&["+He", "+llo", "+llo"]), (vec![true; 3], "Hellollo".into()));
        assert_eq!(run(&["+ha", "+ha", "+!"]), (vec![true; 3], "haha!".into()));
        assert_eq!(run(&["+1", "+10", "+, ", "+1"]), (vec![true; 4], "110, 1".into()), "taken for growth at first");
    }

    #[test]
    fn what_one_text_shows_holds_for_all() {
        let mut growth = Growth::new(true);
        let new = [(0, "a"), (0, "ab"), (1, "x"), (1, "x"), (0, "ab")].map(|(place, text)| growth.take(place, text, true));
        assert_eq!(new, [true, true, true, false, false]);
        assert!(growth.take(1, "y", true) && growth.take(0, "ab", true));
        assert_eq!(growth.texts().collect::<Vec<_>>(), [(0, "aababab"), (1, "xxy")]);
    }

    #[test]
    fn pieces_that_are_not_kept_hold_no_memory() {
        let mut growth = Growth::new(false);
        assert!(growth.take(0, "a", true) && growth.take(0, "b", true) && growth.is_blind());
        assert_eq!(growth.texts().collect::<Vec<_>>(), [(0, "")]);
    }
}
