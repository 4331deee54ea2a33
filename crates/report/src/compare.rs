//! Runs side by side, as a table for a terminal, as values for a spreadsheet, as Markdown, HTML and JSON.

mod html;
mod json;
mod labels;
mod markdown;
mod notes;
mod separated;
mod signals;
mod table;

pub use html::html;
pub use json::{COMPARISON_SCHEMA, json};
pub use labels::ended;
pub use markdown::markdown;
pub use notes::{differs, notes};
pub use separated::separated;
pub use table::table;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
