//! How the end of a body is found.

use crate::http1::Fault;

/// Bytes of chunk extensions and trailers of one response, at the most: they mean nothing here.
const EXTRAS: u32 = 16 << 10;

/// What frames a body, and how much of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are left; never none.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked(Place, u32),
    /// The end of the connection ends it.
    Close,
    /// Nothing is left.
    Done,
}

/// Where in a chunked body the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the size of a chunk, after so many digits.
    Size(u64, u8),
    /// After the size, in what may follow it on its line.
    Extension(u64),
    /// At the line feed behind the size.
    SizeEnd(u64),
    /// In the data, of which so many bytes are left.
    Data(u64),
    /// At the line end behind the data.
    DataReturn,
    DataEnd,
    /// At the beginning of a trailer line, and within one.
    Trailer,
    InTrailer,
    /// At the last line feed of all.
    End,
}

impl Framing {
    /// A body of so many bytes.
    pub fn of_length(length: u64) -> Framing {
        if length == 0 { Framing::Done } else { Framing::Length(length) }
    }

    /// A body in chunks.
    pub fn chunked() -> Framing {
        Framing::Chunked(Place::Size(0, 0), 0)
    }

    /// Hands on what of these bytes belongs to the body; how many of them belong to the response.
    ///
    /// # Errors
    /// They are no chunks. Everything before the fault was handed on.
    pub fn take(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, Fault> {
        match *self {
            Framing::Done => Ok(0),
            Framing::Close => {
                sink(bytes);
                Ok(bytes.len())
            }
            Framing::Length(left) => {
                let used = left.min(bytes.len() as u64) as usize;
                sink(&bytes[..used]);
                *self = Framing::of_length(left - used as u64);
                Ok(used)
            }
            Framing::Chunked(mut place, mut extras) => {
                let mut used = 0;
                while let Some((&byte, rest)) = bytes.get(used..).and_then(<[u8]>::split_first) {
                    if let Place::Data(left) = place {
                        let here = left.min(rest.len() as u64 + 1) as usize;
                        sink(&bytes[used..used + here]);
                        used += here;
                        place = if left == here as u64 { Place::DataReturn } else { Place::Data(left - here as u64) };
                        continue;
                    }
                    used += 1;
                    let Some(further) = next(place, byte, &mut extras)? else {
                        *self = Framing::Done;
                        return Ok(used);
                    };
                    place = further;
                }
                *self = Framing::Chunked(place, extras);
                Ok(used)
            }
        }
    }
}

/// The place after a byte that is no data; None: that was the last byte of all.
fn next(place: Place, byte: u8, extras: &mut u32) -> Result<Option<Place>, Fault> {
    let mut extra = |place| {
        *extras += 1;
        if *extras > EXTRAS { Err(Fault::Unreadable("too many chunk extensions or trailers")) } else { Ok(Some(place)) }
    };
    match (place, byte) {
        (Place::Size(size, digits), byte) if byte.is_ascii_hexdigit() => {
            let digit = (byte as char).to_digit(16).unwrap_or_default();
            // Fifteen digits are an exabyte.
            match digits {
                15 => Err(Fault::Unreadable("a chunk's size is too large")),
                _ => Ok(Some(Place::Size(size << 4 | u64::from(digit), digits + 1))),
            }
        }
        (Place::Size(_, 0), _) => Err(Fault::Unreadable("a chunk without its size")),
        (Place::Size(size, _) | Place::Extension(size), b'\r') => Ok(Some(Place::SizeEnd(size))),
        (Place::Size(size, _), b' ' | b'\t' | b';') => extra(Place::Extension(size)),
        (Place::Size(..), _) => Err(Fault::Unreadable("a chunk's size is no number")),
        (Place::Extension(_), b'\n') => Err(Fault::Unreadable("a bare line feed behind a chunk's size")),
        (Place::Extension(size), _) => extra(Place::Extension(size)),
        (Place::SizeEnd(0), b'\n') => Ok(Some(Place::Trailer)),
        (Place::SizeEnd(size), b'\n') => Ok(Some(Place::Data(size))),
        (Place::DataReturn, b'\r') => Ok(Some(Place::DataEnd)),
        (Place::DataEnd, b'\n') => Ok(Some(Place::Size(0, 0))),
        (Place::Trailer, b'\r') => Ok(Some(Place::End)),
        (Place::InTrailer, b'\n') => extra(Place::Trailer),
        (Place::Trailer | Place::InTrailer, _) => extra(Place::InTrailer),
        (Place::End, b'\n') => Ok(None),
        _ => Err(Fault::Unreadable("a chunk without its line end")),
    }
}
