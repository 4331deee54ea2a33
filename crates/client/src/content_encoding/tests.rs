use super::*;
use flate2::Compression as Level;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;
use std::io::Write;

/// Compresses each part on its own and flushes after it, as a server does with each event; returns where the parts end.
fn flushed<W: Write>(parts: &[&[u8]], mut packer: W, len: impl Fn(&W) -> usize) -> (W, Vec<usize>) {
    let mut ends = Vec::new();
    for part in parts {
        packer.write_all(part).unwrap();
        packer.flush().unwrap();
        ends.push(len(&packer));
    }
    (packer, ends)
}

fn gzip(parts: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let (packer, ends) = flushed(parts, GzEncoder::new(Vec::new(), Level::default()), |packer| packer.get_ref().len());
    (packer.finish().unwrap(), ends)
}

fn zstd(parts: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let packer = ::zstd::stream::write::Encoder::new(Vec::new(), 0).unwrap();
    let (packer, ends) = flushed(parts, packer, |packer| packer.get_ref().len());
    (packer.finish().unwrap(), ends)
}

fn unpacker(codings: &str) -> Result<Unpacker, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_str(codings).unwrap());
    Unpacker::of(&headers)
}

/// What the chunks come to, and how the body ends.
fn unpack<'a>(codings: &str, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), Failure>) {
    let mut unpacker = unpacker(codings).unwrap();
    let mut plain = Vec::new();
    for chunk in chunks {
        if let Err(failure) = unpacker.push(chunk, &mut |bytes| plain.extend_from_slice(bytes)) {
            return (plain, Err(failure));
        }
    }
    let end = unpacker.finish();
    (plain, end)
}

const PARTS: [&[u8]; 3] = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"];

#[test]
fn every_coding_is_undone_and_without_one_nothing_is() {
    let plain = PARTS.concat();
    let mut zlib = ZlibEncoder::new(Vec::new(), Level::default());
    zlib.write_all(&plain).unwrap();
    let mut bare = DeflateEncoder::new(Vec::new(), Level::default());
    bare.write_all(&plain).unwrap();
    let packed = [
        ("gzip", gzip(&PARTS).0),
        ("X-GZip", gzip(&PARTS).0),
        ("zstd", zstd(&PARTS).0),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", bare.finish().unwrap()),
        ("identity", plain.clone()),
        ("", plain.clone()),
    ];
    for (coding, bytes) in packed {
        let (got, end) = unpack(coding, [&bytes[..]]);
        assert_eq!(end, Ok(()), "{coding}");
        assert_eq!(got, plain, "{coding}");
    }
    assert_eq!(Unpacker::of(&HeaderMap::new()).unwrap().stages.len(), 0);
}

#[test]
fn an_event_is_there_as_soon_as_its_last_byte_is() {
    for (coding, (bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        let mut unpacker = unpacker(coding).unwrap();
        let mut start = 0;
        for (end, part) in ends.into_iter().zip(PARTS) {
            let mut plain = Vec::new();
            unpacker.push(&bytes[start..end], &mut |slice| plain.extend_from_slice(slice)).unwrap();
            assert_eq!(plain, part, "{coding}");
            start = end;
        }
    }
}

#[test]
fn codings_in_a_row_are_undone_last_first() {
    let inner = gzip(&PARTS).0;
    let both = zstd(&[&inner]).0;
    assert_eq!(unpack("gzip, zstd", [&both[..]]), (PARTS.concat(), Ok(())));
    let mut headers = HeaderMap::new();
    headers.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(CONTENT_ENCODING, HeaderValue::from_static("identity, zstd"));
    let mut plain = Vec::new();
    Unpacker::of(&headers).unwrap().push(&both, &mut |bytes| plain.extend_from_slice(bytes)).unwrap();
    assert_eq!(plain, PARTS.concat());
    assert_eq!(unpack("zstd, gzip", [&both[..]]).1.unwrap_err().kind, FailureKind::Decode);
}

#[test]
fn members_and_frames_may_follow_one_another() {
    let twice = [gzip(&PARTS[..1]).0, gzip(&PARTS[1..]).0].concat();
    assert_eq!(unpack("gzip", [&twice[..]]), (PARTS.concat(), Ok(())));
    let twice = [zstd(&PARTS[..1]).0, zstd(&PARTS[1..]).0].concat();
    assert_eq!(unpack("zstd", [&twice[..]]), (PARTS.concat(), Ok(())));
}

#[test]
fn a_cut_body_is_truncated_and_an_empty_one_is_whole() {
    for (coding, (bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        let (plain, end) = unpack(coding, [&bytes[..ends[1]]]);
        assert_eq!(plain, PARTS[..2].concat());
        let failure = end.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Truncated);
        assert_eq!(failure.message, format!("the body ended in the middle of its {coding} data"));
        assert_eq!(unpack(coding, [&b""[..]]), (Vec::new(), Ok(())));
    }
}

#[test]
fn what_was_good_before_a_fault_is_kept() {
    for (coding, (mut bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        bytes[ends[1]..].fill(0xff);
        let (plain, end) = unpack(coding, [&bytes[..]]);
        assert_eq!(plain, PARTS[..2].concat(), "{coding}");
        let failure = end.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Decode);
        assert!(failure.message.starts_with(&format!("the {coding} data cannot be read: ")), "{}", failure.message);
    }
}

#[test]
fn an_unknown_coding_is_named_and_too_many_are_refused() {
    let failure = unpacker("gzip, br").err().unwrap();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert_eq!(failure.message, "the response is compressed with `br`; only gzip, deflate and zstd are read");
    let failure = unpacker("gzip, gzip, gzip, gzip, gzip").err().unwrap();
    assert_eq!(failure.message, "the response is compressed 5 times over");
}

#[test]
fn a_bomb_is_unpacked_in_small_slices_and_stopped() {
    let mut packer = GzEncoder::new(Vec::new(), Level::best());
    packer.write_all(&vec![0; 4 << 20]).unwrap();
    let bomb = packer.finish().unwrap();
    let mut unpacker = unpacker("gzip").unwrap();
    assert_eq!(unpacker.stages[0].left, YIELD);
    unpacker.stages[0].left = 6 << 20;
    let (mut largest, mut all) = (0, 0);
    let mut sink = |slice: &[u8]| {
        largest = slice.len().max(largest);
        all += slice.len();
    };
    assert_eq!(unpacker.push(&bomb, &mut sink), Ok(()));
    assert_eq!(unpacker.push(&bomb, &mut sink).unwrap_err().message, "the gzip data comes to more than 1 GiB");
    assert_eq!(all, (6 << 20) + STEP);
    assert_eq!(largest, STEP);
}

#[test]
fn a_zstd_window_larger_than_the_web_allows_is_refused() {
    let mut packer = ::zstd::stream::write::Encoder::new(Vec::new(), 0).unwrap();
    packer.set_parameter(::zstd::stream::raw::CParameter::WindowLog(24)).unwrap();
    packer.write_all(b"data: one\n\n").unwrap();
    let failure = unpack("zstd", [&packer.finish().unwrap()[..]]).1.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert!(failure.message.contains("too much memory"), "{}", failure.message);
}

proptest! {
    #[test]
    fn cuts_anywhere_change_nothing(content in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..40) {
        let parts: Vec<&[u8]> = content.chunks(97).collect();
        for (coding, bytes) in [("gzip", gzip(&parts).0), ("zstd", zstd(&parts).0)] {
            prop_assert_eq!(unpack(coding, bytes.chunks(size)), (content.clone(), Ok(())));
        }
    }

    #[test]
    fn whatever_the_bytes_cuts_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..400), head in 0_usize..20) {
        for (coding, good) in [("gzip", gzip(&PARTS).0), ("zstd", zstd(&PARTS).0), ("deflate", Vec::new())] {
            let all = [&good[..head.min(good.len())], &bytes[..]].concat();
            let (whole, cut) = (unpack(coding, [&all[..]]), unpack(coding, all.chunks(1)));
            let kind = |end: &Result<(), Failure>| end.as_ref().err().map(|failure| failure.kind);
            prop_assert_eq!(kind(&whole.1), kind(&cut.1), "{}", coding);
            prop_assert!(whole.1.is_err() || whole.0 == cut.0, "{}", coding);
        }
    }
}
