//! `llmscen guard`: the process that a run starts to watch over a server under management. Not for people.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use llmscen_client::server::supervisor;
use std::io::BufReader;

pub fn watch_over(terminal: &mut Terminal) -> Exit {
    match supervisor::guard(BufReader::new(std::io::stdin()), std::io::stdout()) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            terminal.error(&format!("cannot watch over a server: {error}; `llmscen run` starts this where it is needed"));
            Exit::Error
        }
    }
}
