//! `llmscen extras`: man pages and shell completions, in the folders in which packages install them.

use crate::cli::args;
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::builder::Resettable;
use clap_complete::Shell;
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/llmscen"),
    (Shell::Zsh, "share/zsh/site-functions/_llmscen"),
    (Shell::Fish, "share/fish/vendor_completions.d/llmscen.fish"),
];

pub fn extras(prefix: &Path, terminal: &mut Terminal) -> Exit {
    match write_all(prefix) {
        Ok(()) => {
            terminal.status(&format!(
                "wrote man pages and shell completions to {}",
                prefix.join("share").display()
            ));
            Exit::Pass
        }
        Err((path, error)) => {
            terminal.error(&format!("cannot write {}: {error}", path.display()));
            Exit::Error
        }
    }
}

fn write_all(prefix: &Path) -> Result<(), (PathBuf, Error)> {
    let manual = prefix.join("share/man/man1");
    let write_manual = || {
        fs::create_dir_all(&manual)?;
        // A page lists the commands by itself.
        clap_mangen::generate_to(args::command().before_help(Resettable::Reset), &manual)
    };
    write_manual().map_err(|error| (manual.clone(), error))?;
    for (shell, name) in COMPLETIONS {
        let path = prefix.join(name);
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut args::command(), "llmscen", &mut script);
        let folder = path.parent().unwrap_or(prefix);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, script))
            .map_err(|error| (path, error))?;
    }
    Ok(())
}
