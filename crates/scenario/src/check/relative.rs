//! The right side of a relative comparison: `1.10 * baseline`, `baseline`, `0.95 * reference`.

use super::CheckError;
use super::cursor::Cursor;
use crate::suggest::near;
use llmscen_core::baseline::Against;
use llmscen_core::check::Op;

const WORDS: [Against; 2] = [Against::Baseline, Against::Reference];
const FORM: &str = "Write for example `1.10 * baseline`, `0.95 * reference`, or `baseline` alone.";

/// What a word says a limit is relative to.
pub(super) fn named(word: &str) -> Option<Against> {
    WORDS.into_iter().find(|own| own.name() == word)
}

/// Reads a multiple, if one stands here; else nothing is taken.
pub(super) fn read(cursor: &mut Cursor<'_>, op: Op) -> Result<Option<(Against, f64)>, CheckError> {
    let start = *cursor;
    let (number, number_at) = cursor.number();
    let (unit, unit_at) = cursor.unit();
    let times = cursor.peek() == Some('*');
    let found = match (number.is_empty(), times) {
        (true, false) => named(unit).map(|to| (to, 1.0, unit_at.clone())),
        (true, true) if named(unit).is_some() => {
            let error = CheckError::new(unit_at, "the factor stands first", "in front of this word");
            return Err(error.help(FORM));
        }
        (false, true) => Some(multiple(cursor, (number, number_at.clone()), (unit, unit_at.clone()))?),
        (false, false) if named(unit).is_some() => {
            let error = CheckError::new(unit_at, format!("`*` is missing before `{unit}`"), "expected `*`");
            return Err(error.help(FORM));
        }
        _ => None,
    };
    let Some((to, factor, at)) = found else {
        *cursor = start;
        return Ok(None);
    };
    if matches!(op, Op::Equal | Op::Unequal) {
        let error = CheckError::new(at, format!("`{op}` has no relative limit"), "no two runs are equal");
        return Err(error.help("A relative limit goes with `<`, `<=`, `>` or `>=`."));
    }
    Ok(Some((to, factor)))
}

type Part<'a> = (&'a str, std::ops::Range<usize>);

/// The rest of `1.10 * baseline`, of which the factor is read.
fn multiple(
    cursor: &mut Cursor<'_>,
    (number, at): Part<'_>,
    (unit, unit_at): Part<'_>,
) -> Result<(Against, f64, std::ops::Range<usize>), CheckError> {
    cursor.eat('*');
    let (word, word_at) = cursor.word();
    let Some(to) = named(word) else {
        let meant = near(word, WORDS.iter().map(|own| own.name()));
        let label = meant.map_or("expected `baseline` or `reference`".to_owned(), |meant| format!("did you mean `{meant}`?"));
        return Err(CheckError::new(cursor.visible(word_at), "a product is a multiple of another run", label).help(FORM));
    };
    if !unit.is_empty() {
        return Err(CheckError::new(unit_at, "a factor has no unit", "a plain number").help(FORM));
    }
    match number.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor.is_finite() => Ok((to, factor, at.start..word_at.end)),
        Ok(_) => Err(CheckError::new(at, "the factor must be above 0", format!("no multiple of the {word}")).help(FORM)),
        Err(_) => Err(CheckError::new(at, format!("`{number}` is not a number"), "expected a factor such as 1.10").help(FORM)),
    }
}
