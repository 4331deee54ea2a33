//! Runs side by side, as a table for a terminal, as values for a spreadsheet, as Markdown, HTML and JSON.

mod html;
mod json;
mod markdown;
mod notes;
mod separated;
mod signals;
mod table;
mod words;

pub use html::html;
pub use json::{COMPARISON_SCHEMA, json};
pub use markdown::markdown;
pub use notes::{differs, notes};
pub use separated::separated;
pub use table::table;
pub use words::ended;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
