use super::*;
use flate2::Compression as Level;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;
use std::io::Write;

/// Compresses the parts with a flush after each, as a server does with events; returns the end of each part, too.
fn encode_flushed<W: Write>(
    parts: &[&[u8]],
    mut encoder: W,
    len: impl Fn(&W) -> usize,
) -> (W, Vec<usize>) {
    let mut ends = Vec::new();
    for part in parts {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
        ends.push(len(&encoder));
    }
    (encoder, ends)
}

fn gzip(parts: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let (encoder, ends) = encode_flushed(
        parts,
        GzEncoder::new(Vec::new(), Level::default()),
        |encoder| encoder.get_ref().len(),
    );
    (encoder.finish().unwrap(), ends)
}

fn zstd(parts: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 0).unwrap();
    let (encoder, ends) = encode_flushed(parts, encoder, |encoder| encoder.get_ref().len());
    (encoder.finish().unwrap(), ends)
}

fn decoder_of(codings: &str) -> Result<ContentDecoder, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_str(codings).unwrap());
    ContentDecoder::from_headers(&headers)
}

/// The decoded chunks, and how the body ends.
fn decode_body<'a>(
    codings: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Result<(), Failure>) {
    let mut decoder = decoder_of(codings).unwrap();
    let mut plain = Vec::new();
    for chunk in chunks {
        if let Err(failure) = decoder.push(chunk, &mut |bytes| plain.extend_from_slice(bytes)) {
            return (plain, Err(failure));
        }
    }
    let end = decoder.finish();
    (plain, end)
}

const PARTS: [&[u8]; 3] = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"];

#[test]
fn every_coding_is_decoded_and_plain_content_is_unchanged() {
    let plain = PARTS.concat();
    let mut zlib = ZlibEncoder::new(Vec::new(), Level::default());
    zlib.write_all(&plain).unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Level::default());
    raw.write_all(&plain).unwrap();
    let encoded = [
        ("gzip", gzip(&PARTS).0),
        ("X-GZip", gzip(&PARTS).0),
        ("zstd", zstd(&PARTS).0),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", raw.finish().unwrap()),
        ("identity", plain.clone()),
        ("", plain.clone()),
    ];
    for (coding, bytes) in encoded {
        let (got, end) = decode_body(coding, [&bytes[..]]);
        assert_eq!(end, Ok(()), "{coding}");
        assert_eq!(got, plain, "{coding}");
    }
    assert_eq!(
        ContentDecoder::from_headers(&HeaderMap::new())
            .unwrap()
            .stages
            .len(),
        0
    );
}

#[test]
fn an_event_is_complete_with_its_last_byte() {
    for (coding, (bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        let mut decoder = decoder_of(coding).unwrap();
        let mut start = 0;
        for (end, part) in ends.into_iter().zip(PARTS) {
            let mut plain = Vec::new();
            decoder
                .push(&bytes[start..end], &mut |slice| {
                    plain.extend_from_slice(slice)
                })
                .unwrap();
            assert_eq!(plain, part, "{coding}");
            start = end;
        }
    }
}

#[test]
fn nested_codings_are_decoded_in_reverse_order() {
    let inner = gzip(&PARTS).0;
    let both = zstd(&[&inner]).0;
    assert_eq!(
        decode_body("gzip, zstd", [&both[..]]),
        (PARTS.concat(), Ok(()))
    );
    let mut headers = HeaderMap::new();
    headers.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(CONTENT_ENCODING, HeaderValue::from_static("identity, zstd"));
    let mut plain = Vec::new();
    ContentDecoder::from_headers(&headers)
        .unwrap()
        .push(&both, &mut |bytes| plain.extend_from_slice(bytes))
        .unwrap();
    assert_eq!(plain, PARTS.concat());
    assert_eq!(
        decode_body("zstd, gzip", [&both[..]]).1.unwrap_err().kind,
        FailureKind::Decode
    );
}

#[test]
fn members_and_frames_may_follow_one_another() {
    let twice = [gzip(&PARTS[..1]).0, gzip(&PARTS[1..]).0].concat();
    assert_eq!(decode_body("gzip", [&twice[..]]), (PARTS.concat(), Ok(())));
    let twice = [zstd(&PARTS[..1]).0, zstd(&PARTS[1..]).0].concat();
    assert_eq!(decode_body("zstd", [&twice[..]]), (PARTS.concat(), Ok(())));
}

#[test]
fn a_cut_body_is_truncated_and_an_empty_one_is_complete() {
    for (coding, (bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        let (plain, end) = decode_body(coding, [&bytes[..ends[1]]]);
        assert_eq!(plain, PARTS[..2].concat());
        let failure = end.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Truncated);
        assert_eq!(
            failure.message,
            format!("the body ended in the middle of its {coding} data")
        );
        assert_eq!(decode_body(coding, [&b""[..]]), (Vec::new(), Ok(())));
    }
}

#[test]
fn content_before_a_fault_is_kept() {
    for (coding, (mut bytes, ends)) in [("gzip", gzip(&PARTS)), ("zstd", zstd(&PARTS))] {
        bytes[ends[1]..].fill(0xff);
        let (plain, end) = decode_body(coding, [&bytes[..]]);
        assert_eq!(plain, PARTS[..2].concat(), "{coding}");
        let failure = end.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Decode);
        assert!(
            failure
                .message
                .starts_with(&format!("the {coding} data cannot be read: ")),
            "{}",
            failure.message
        );
    }
}

#[test]
fn an_unknown_coding_is_named_and_too_many_are_refused() {
    let failure = decoder_of("gzip, br").err().unwrap();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert_eq!(
        failure.message,
        "the response is compressed with `br`; only gzip, deflate and zstd are supported"
    );
    let failure = decoder_of("gzip, gzip, gzip, gzip, gzip").err().unwrap();
    assert_eq!(failure.message, "the response is compressed 5 times");
}

#[test]
fn a_decompression_bomb_is_decoded_in_small_slices_and_stopped() {
    let mut encoder = GzEncoder::new(Vec::new(), Level::best());
    encoder.write_all(&vec![0; 4 << 20]).unwrap();
    let bomb = encoder.finish().unwrap();
    let mut decoder = decoder_of("gzip").unwrap();
    assert_eq!(decoder.stages[0].budget, MAX_OUTPUT);
    decoder.stages[0].budget = 6 << 20;
    let mut largest = 0;
    let mut total = 0;
    let mut sink = |slice: &[u8]| {
        largest = slice.len().max(largest);
        total += slice.len();
    };
    assert_eq!(decoder.push(&bomb, &mut sink), Ok(()));
    assert_eq!(
        decoder.push(&bomb, &mut sink).unwrap_err().message,
        "the gzip data decompresses to more than 1 GiB"
    );
    assert_eq!(total, (6 << 20) + OUTPUT_CHUNK);
    assert_eq!(largest, OUTPUT_CHUNK);
}

#[test]
fn a_zstd_window_above_the_limit_of_rfc_9659_is_refused() {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 0).unwrap();
    encoder
        .set_parameter(::zstd::stream::raw::CParameter::WindowLog(24))
        .unwrap();
    encoder.write_all(b"data: one\n\n").unwrap();
    let failure = decode_body("zstd", [&encoder.finish().unwrap()[..]])
        .1
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Decode);
    assert!(
        failure.message.contains("too much memory"),
        "{}",
        failure.message
    );
}

proptest! {
    #[test]
    fn chunk_boundaries_change_nothing(content in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..40) {
        let parts: Vec<&[u8]> = content.chunks(97).collect();
        for (coding, bytes) in [("gzip", gzip(&parts).0), ("zstd", zstd(&parts).0)] {
            prop_assert_eq!(decode_body(coding, bytes.chunks(size)), (content.clone(), Ok(())));
        }
    }

    #[test]
    fn chunk_boundaries_change_nothing_in_corrupt_data(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        head in 0_usize..20
    ) {
        for (coding, good) in [("gzip", gzip(&PARTS).0), ("zstd", zstd(&PARTS).0), ("deflate", Vec::new())] {
            let all = [&good[..head.min(good.len())], &bytes[..]].concat();
            let whole = decode_body(coding, [&all[..]]);
            let cut = decode_body(coding, all.chunks(1));
            let kind = |end: &Result<(), Failure>| end.as_ref().err().map(|failure| failure.kind);
            prop_assert_eq!(kind(&whole.1), kind(&cut.1), "{}", coding);
            prop_assert!(whole.1.is_err() || whole.0 == cut.0, "{}", coding);
        }
    }
}
