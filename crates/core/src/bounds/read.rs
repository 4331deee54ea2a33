//! Files that are read whole, each up to a longest length.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

/// Longest scenario, template, prompt, baseline, preset or certificate file.
pub const TEXT: u64 = 16 << 20;
/// Longest configuration of a model.
pub const CONFIG: u64 = 64 << 20;
/// Longest tokenizer file. The largest vocabularies published take 35 MB.
pub const TOKENIZER: u64 = 256 << 20;

/// Longest picture.
pub const PICTURE: u64 = 64 << 20;
/// Longest file of prompts that is read whole, unpacked.
pub const DATA: u64 = 1 << 30;
/// Longest row of a dataset.
pub const ROW: u64 = 64 << 20;

/// How long a named pipe may take to get a writer.
const WRITER: Duration = Duration::from_secs(5);

/// Reads a whole file of at most `most` bytes. A folder, a device, a pipe or a file of the kernel is an error at once.
///
/// # Errors
/// What the file is instead, that it is too long, or the system's error.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_stream(open(path)?, most)
}

/// The same for a text.
///
/// # Errors
/// As [`read`], and what is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, format!("not UTF-8: {}", error.utf8_error())))
}

/// Reads a stream of at most `most` bytes to its end.
///
/// # Errors
/// That it is too long, or the system's error.
pub fn read_stream(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = stream.take(most + 1).read_to_end(&mut bytes)?;
    if count as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {}", size(most))));
    }
    Ok(bytes)
}

/// Opens a file that ends and that never blocks: a regular one, or what the caller's shell has connected, such as `/dev/stdin`.
///
/// # Errors
/// What the file is instead, or the system's error.
pub fn open(path: &Path) -> io::Result<File> {
    check_kind(path, false)?;
    File::open(path)
}

/// Opens a file whose rows are read one by one: named pipes, too, once a program writes to them.
///
/// # Errors
/// What the file is instead, that nothing writes to a pipe, or the system's error.
pub fn open_stream(path: &Path) -> io::Result<File> {
    check_kind(path, true)?;
    if !is_connected(path) && std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)) {
        return open_pipe(path);
    }
    File::open(path)
}

fn check_kind(path: &Path, pipes: bool) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let found = std::fs::metadata(path)?;
    let kind = found.file_type();
    let connected = is_connected(path);
    let what = if kind.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "this is a folder, not a file"));
    } else if kind.is_fifo() && !pipes && !connected {
        "a named pipe"
    } else if kind.is_char_device() && !(connected && (is_terminal(path) || is_nothing(&found))) || kind.is_block_device() {
        "a device"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_file() && !connected && is_of_the_kernel(path) {
        "a file of the kernel"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("this is {what}, not a regular file")))
}

/// What the shell has opened already: `-`, and the file that `<(command)` names.
fn is_connected(path: &Path) -> bool {
    path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

fn is_terminal(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| std::io::IsTerminal::is_terminal(&file))
}

/// Whether it is `/dev/null`, which a shell connects in place of an empty file.
fn is_nothing(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev())
}

/// Files in these folders have no length, and some of them block until something happens.
fn is_of_the_kernel(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| path.starts_with("/proc") || path.starts_with("/sys"))
}

fn is_pipe(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type())
}

/// Opening a pipe for reading blocks until a program opens it for writing. A thread waits for that, so that it can be stopped
/// waiting for.
fn open_pipe(path: &Path) -> io::Result<File> {
    let (send, opened) = std::sync::mpsc::channel();
    let own = path.to_owned();
    std::thread::Builder::new().name("pipe".into()).spawn(move || {
        let _ = send.send(File::open(own));
    })?;
    let silent = || Error::new(ErrorKind::TimedOut, format!("no program wrote to this pipe within {} s", WRITER.as_secs()));
    opened.recv_timeout(WRITER).unwrap_or_else(|_| Err(silent()))
}

/// A length as text: `16 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> String {
        read(Path::new(path), 1 << 10).unwrap_err().to_string()
    }

    #[test]
    fn what_never_ends_or_blocks_is_refused_at_once() {
        assert_eq!(refused("/dev/zero"), "this is a device, not a regular file");
        assert_eq!(refused("/dev/urandom"), "this is a device, not a regular file");
        assert_eq!(refused("/dev"), "this is a folder, not a file");
        assert_eq!(refused("/proc/kmsg"), "this is a file of the kernel, not a regular file");
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(refused(&pipe.display().to_string()), "this is a named pipe, not a regular file");
    }

    #[test]
    fn a_file_may_be_as_long_as_the_bound_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, [b'x'; 1024]).unwrap();
        assert_eq!(read(&path, 1024).unwrap().len(), 1024);
        assert_eq!(refused(&path.display().to_string().replace("long", "none")), "No such file or directory (os error 2)");
        std::fs::write(&path, [b'x'; 1025]).unwrap();
        assert_eq!(read(&path, 1024).unwrap_err().to_string(), "longer than 1 KiB");
    }
}
