//! The llmscen program; everything is in the library.

use llmscen::cli::{World, main as program};
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    llmscen::run::panics::watch();
    // Without it, only the end at the limit is less clear.
    _ = llmscen::cli::survive_large_files();
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let terminals = (out.is_terminal(), err.is_terminal());
    // Scenarios can only refer to Unicode names and values.
    let env = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    let args = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    program(World {
        args,
        env: env.collect(),
        out: &mut out,
        err: &mut err,
        terminals,
    })
    .into()
}
