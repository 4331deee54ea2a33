//! Bounds for what comes from outside: files that are read whole, and templates.
//!
//! A device, a pipe or a file without end must not fill the memory or block, and a text must not overflow the stack of the
//! thread that reads it. Whatever reads such a file or makes a template environment does it here.

mod depth;
mod read;
mod template;

pub use depth::{check_depth, check_path};
pub use read::{CONFIG, DATA, PICTURE, ROW, TEXT, TOKENIZER, open, open_stream, read, read_stream, read_text, size};
pub use template::{environment, render};
