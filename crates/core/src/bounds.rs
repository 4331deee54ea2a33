//! Limits for untrusted input: files that are read into memory, and templates.
//!
//! An endless file, device or pipe must not fill the memory or block, and a deeply nested text must not overflow the
//! stack of its parser. All code that reads such a file or creates a template environment uses this module.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

mod limited;
mod template;

pub use limited::{THREAD as LIMITED_THREAD, count_allocated, count_freed};
pub use template::{Formula, Template, check_depth, check_path, environment};

/// Maximum size of a scenario, template, prompt, baseline, preset or certificate file, bytes.
pub const TEXT: u64 = 16 << 20;
/// Maximum size of a model's configuration, bytes.
pub const CONFIG: u64 = 64 << 20;
/// Maximum size of a tokenizer file, bytes. The largest published vocabularies take 35 MB.
pub const TOKENIZER: u64 = 256 << 20;

/// Maximum size of an image, an audio file or a video, bytes.
pub const MEDIA: u64 = 64 << 20;
/// Maximum size of a prompt file that is read into memory, after decompression, bytes.
pub const DATA: u64 = 1 << 30;
/// Maximum size of a dataset row, bytes.
pub const ROW: u64 = 64 << 20;

/// Maximum wait for a program to open the other end of a named pipe.
const WRITER: Duration = Duration::from_secs(5);

/// Reads a file of at most `limit` bytes. A folder, device, pipe or kernel file is an error.
///
/// # Errors The file is not a regular file, is too long, or cannot be read.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_stream(open(path)?, limit)
}

/// Reads a UTF-8 file of at most `limit` bytes.
///
/// # Errors As [`read`], or the file is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read(path, limit)?;
    String::from_utf8(bytes).map_err(|error| {
        Error::new(
            ErrorKind::InvalidData,
            format!("not UTF-8: {}", error.utf8_error()),
        )
    })
}

/// Reads a stream of at most `limit` bytes to its end.
///
/// # Errors The stream is too long, or cannot be read.
pub fn read_stream(stream: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = stream.take(limit + 1).read_to_end(&mut bytes)?;
    if count as u64 > limit {
        return Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("longer than {}", size(limit)),
        ));
    }
    Ok(bytes)
}

/// Opens a file that ends and never blocks: a regular file, or one that the shell has connected, such as `/dev/stdin`.
///
/// # Errors The file is not a regular file, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    check_kind(path, false)?;
    File::open(path)
}

/// Opens a file whose rows are read one by one. Named pipes are accepted once a program writes to them.
///
/// # Errors The file is a folder, device or socket, no program writes to the pipe, or the file cannot be opened.
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
        return Err(Error::new(
            ErrorKind::IsADirectory,
            "this is a folder, not a file",
        ));
    } else if kind.is_fifo() && !pipes && !connected {
        "a named pipe"
    } else if kind.is_char_device() && !(connected && (is_terminal(path) || is_dev_null(&found)))
        || kind.is_block_device()
    {
        "a device"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_file() && !connected && is_kernel_file(path) {
        "a file of the kernel"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("this is {what}, not a regular file"),
    ))
}

/// Whether the shell has already opened the file: standard input, or the file that `<(command)` names.
fn is_connected(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

fn is_terminal(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| std::io::IsTerminal::is_terminal(&file))
}

/// Whether the file is `/dev/null`, which stands for an empty file.
fn is_dev_null(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev())
}

/// Files in `/proc` and `/sys` report no length, and some block until an event occurs.
fn is_kernel_file(path: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|path| path.starts_with("/proc") || path.starts_with("/sys"))
}

fn is_pipe(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type())
}

/// Opening a pipe for reading blocks until a program opens it for writing, so a thread opens it and the wait has a
/// timeout.
fn open_pipe(path: &Path) -> io::Result<File> {
    let (send, opened) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::Builder::new()
        .name("pipe".into())
        .spawn(move || {
            let _ = send.send(File::open(path));
        })?;
    let timeout = || {
        Error::new(
            ErrorKind::TimedOut,
            format!(
                "no program wrote to this pipe within {} s",
                WRITER.as_secs()
            ),
        )
    };
    opened
        .recv_timeout(WRITER)
        .unwrap_or_else(|_| Err(timeout()))
}

/// Formats a size: `16 MiB`.
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

    fn read_error(path: &str) -> String {
        read(Path::new(path), 1 << 10).unwrap_err().to_string()
    }

    #[test]
    fn endless_and_blocking_files_are_errors() {
        assert_eq!(
            read_error("/dev/zero"),
            "this is a device, not a regular file"
        );
        assert_eq!(
            read_error("/dev/urandom"),
            "this is a device, not a regular file"
        );
        assert_eq!(read_error("/dev"), "this is a folder, not a file");
        assert_eq!(
            read_error("/proc/kmsg"),
            "this is a file of the kernel, not a regular file"
        );
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(
            read_error(&pipe.display().to_string()),
            "this is a named pipe, not a regular file"
        );
    }

    #[test]
    fn a_file_may_have_the_maximum_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, [b'x'; 1024]).unwrap();
        assert_eq!(read(&path, 1024).unwrap().len(), 1024);
        assert_eq!(
            read_error(&path.display().to_string().replace("long", "none")),
            "No such file or directory (os error 2)"
        );
        std::fs::write(&path, [b'x'; 1025]).unwrap();
        assert_eq!(
            read(&path, 1024).unwrap_err().to_string(),
            "longer than 1 KiB"
        );
    }
}
