//! Formats of audio files: detected by their first bytes, with their duration where the format reveals it.

use llmscen_core::units::Nanos;

/// The duration of an audio file; None where its format does not reveal it.
///
/// # Errors
/// It is no audio file of a known format.
pub(super) fn duration(bytes: &[u8]) -> Result<Option<Nanos>, &'static str> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    if starts(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") {
        return wav(bytes)
            .map(Some)
            .ok_or("is not a valid WAV file: its format or its samples are missing");
    }
    if starts(b"fLaC") {
        return Ok(flac(bytes));
    }
    if starts(b"OggS") {
        return Ok(ogg(bytes));
    }
    // MP4 and WebM.
    if bytes.get(4..8) == Some(b"ftyp") || starts(&[0x1a, 0x45, 0xdf, 0xa3]) {
        return Ok(None);
    }
    if let Some(duration) = mp3(bytes) {
        return Ok(duration);
    }
    Err("is not an audio file: it has no header of WAV, MP3, FLAC, Ogg, MP4 or WebM")
}

/// The samples of a WAV file with 16 bits and one channel at this rate.
///
/// # Errors
/// It is another file.
pub(super) fn samples(bytes: &[u8], rate: u32) -> Result<&[u8], String> {
    let wanted = || {
        format!(
            "is not a WAV file of 16 bits, one channel and {rate} Hz; convert it: ffmpeg -i FILE \
            -ac 1 -ar {rate} -c:a pcm_s16le OUT.wav"
        )
    };
    let (format, data) = wav_chunks(bytes).ok_or_else(wanted)?;
    // Format 1 is PCM; 0xfffe names the format later, with the same number of bits.
    let is_pcm = matches!(u16_le(format, 0), Some(1 | 0xfffe));
    let is_wanted = u16_le(format, 2) == Some(1)
        && u32_le(format, 4) == Some(u64::from(rate))
        && u16_le(format, 14) == Some(16);
    let whole = data.len() / 2 * 2;
    let data = data.get(..whole).filter(|data| !data.is_empty());
    data.filter(|_| is_pcm && is_wanted).ok_or_else(wanted)
}

/// The duration of `samples` at `rate` per second. None without samples: a header may state 0 for an unknown number.
fn span(samples: u64, rate: u64) -> Option<Nanos> {
    let nanos = (u128::from(samples) * 1_000_000_000).checked_div(rate.into())?;
    let nanos = u64::try_from(nanos).ok();
    nanos.filter(|nanos| *nanos > 0).map(Nanos)
}

fn u16_le(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u64::from(u16::from_le_bytes(field.try_into().ok()?)))
}

fn u32_le(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(field.try_into().ok()?)))
}

/// Bytes of samples by bytes per second.
fn wav(bytes: &[u8]) -> Option<Nanos> {
    let (format, data) = wav_chunks(bytes)?;
    span(data.len() as u64, u32_le(format, 8)?)
}

/// The format and the samples of a WAV file.
fn wav_chunks(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if !bytes.starts_with(b"RIFF") {
        return None;
    }
    let (mut at, mut format) = (12, None);
    loop {
        let size = u32_le(bytes, at + 4)? as usize;
        let body = at + 8;
        let end = body.saturating_add(size).min(bytes.len());
        match bytes.get(at..at + 4)? {
            b"fmt " => format = bytes.get(body..end),
            // A program that writes to a pipe does not know the sizes, and may state those of a file without samples.
            b"data" if size == 0 => {
                let riff = u32_le(bytes, 4)? as usize;
                let is_last = matches!(riff, 0 | 0xffff_ffff) || riff + 8 == body;
                return Some((format?, bytes.get(body..).filter(|_| is_last)?));
            }
            b"data" => return Some((format?, bytes.get(body..end)?)),
            _ => {}
        }
        // Chunks are padded to an even length.
        at = body.checked_add(size)?.checked_add(size % 2)?;
    }
}

/// STREAMINFO, the first block (RFC 9639, section 8.2): 20 bits of sample rate, then 36 bits of the number of samples
/// from bit 28 on; 0 samples are an unknown number.
fn flac(bytes: &[u8]) -> Option<Nanos> {
    let field: [u8; 8] = bytes.get(18..26)?.try_into().ok()?;
    let field = u64::from_be_bytes(field);
    span(field & ((1 << 36) - 1), field >> 44)
}

/// The position of the last page (RFC 3533). That of Opus counts samples of 48 kHz from the start of the skipped ones
/// (RFC 7845).
fn ogg(bytes: &[u8]) -> Option<Nanos> {
    let packet = 27 + usize::from(*bytes.get(26)?);
    let head = bytes.get(packet..)?;
    let (rate, skipped) = if head.starts_with(b"OpusHead") {
        (48_000, u16_le(head, 10)?)
    } else if head.starts_with(b"\x01vorbis") {
        (u32_le(head, 12)?, 0)
    } else {
        return None;
    };
    let last = bytes.windows(4).rposition(|window| window == b"OggS")?;
    let field: [u8; 8] = bytes.get(last + 6..last + 14)?.try_into().ok()?;
    let position = u64::try_from(i64::from_le_bytes(field)).ok()?;
    span(position.checked_sub(skipped)?, rate)
}

/// The duration of all frames, if they are known to be all; None where the file does not start with two frames.
fn mp3(bytes: &[u8]) -> Option<Option<Nanos>> {
    let mut at = 0;
    if bytes.starts_with(b"ID3") {
        // Its length has 7 bits per byte.
        let size = bytes.get(6..10)?;
        let size = size
            .iter()
            .fold(0, |sum, byte| sum << 7 | usize::from(*byte));
        let footer = if bytes.get(5)? & 0x10 == 0 { 0 } else { 10 };
        at = 10 + size + footer;
    }
    let (mut frames, mut samples, mut rate) = (0, 0, 0);
    while let Some(frame) = bytes.get(at..).and_then(Mp3Frame::parse) {
        // The first frame may hold facts about the file and no sound.
        let body = bytes.get(at..at + frame.length).unwrap_or_default();
        let is_sound = frames > 0
            || ![b"Xing", b"Info", b"VBRI"]
                .iter()
                .any(|tag| contains(body, *tag));
        samples += if is_sound { frame.samples } else { 0 };
        rate = frame.rate;
        frames += 1;
        at += frame.length;
    }
    // Sound after other bytes would be missing in the duration; a tag at the end of the file is short or begins with
    // its name.
    let rest = bytes.get(at..).unwrap_or_default();
    let is_tag = rest.starts_with(b"TAG") || rest.starts_with(b"APETAGEX") || rest.len() < 1024;
    let known = || span(samples, rate).filter(|_| is_tag);
    (frames > 1).then(known)
}

fn contains(bytes: &[u8], tag: &[u8]) -> bool {
    bytes.windows(tag.len()).any(|window| window == tag)
}

struct Mp3Frame {
    /// Bytes.
    length: usize,
    samples: u64,
    /// Samples per second.
    rate: u64,
}

impl Mp3Frame {
    /// Parses a header of layer III (ISO 11172-3 and 13818-3).
    fn parse(bytes: &[u8]) -> Option<Mp3Frame> {
        const KBITS_1: [u64; 15] = [
            0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
        ];
        const KBITS_2: [u64; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
        const RATES: [u64; 3] = [44_100, 48_000, 32_000];
        let &[sync, version, rates, _] = bytes.first_chunk::<4>()?;
        let is_layer_3 = sync == 0xff && version & 0xe0 == 0xe0 && version & 0x06 == 0x02;
        let divisor = match version >> 3 & 3 {
            3 => 1,
            2 => 2,
            0 => 4,
            _ => return None,
        };
        let kbits = if divisor == 1 { KBITS_1 } else { KBITS_2 };
        let kbits = *kbits.get(usize::from(rates >> 4)).filter(|&&n| n > 0)?;
        let rate = RATES.get(usize::from(rates >> 2 & 3))? / divisor;
        let samples = if divisor == 1 { 1152 } else { 576 };
        let length = samples / 8 * kbits * 1000 / rate + u64::from(rates >> 1 & 1);
        is_layer_3.then_some(Mp3Frame {
            length: length as usize,
            samples,
            rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(bytes: &[u8]) -> Option<u64> {
        duration(bytes).unwrap().map(|span| span.0 / 1_000_000)
    }

    #[test]
    fn the_duration_of_each_format_is_known() {
        let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        wav.extend([8_000_u32.to_le_bytes(), 16_000_u32.to_le_bytes()].concat());
        wav.extend(b"\x02\0\x10\0LIST\x03\0\0\0abc\0data\xff\xff\xff\xff");
        wav.extend([0; 4000]);
        assert_eq!(millis(&wav), Some(250));
        let size = wav.len() - 4004;
        wav[size..size + 4].fill(0);
        assert_eq!(millis(&wav), Some(250), "the size is not known");
        wav[4..8].copy_from_slice(&(size as u32 + 4 - 8).to_le_bytes());
        assert_eq!(millis(&wav), Some(250), "the sizes are those of no samples");
        wav.truncate(size + 4);
        let refused = duration(&wav).unwrap_err();
        assert!(refused.contains("its samples are missing"), "{refused}");

        let mut flac = b"fLaC\0\0\0\x22".to_vec();
        flac.extend([0; 10]);
        flac.extend((16_000_u64 << 44 | 15 << 36 | 24_000).to_be_bytes());
        assert_eq!(millis(&flac), Some(1500));
        flac[22..26].fill(0);
        assert_eq!(millis(&flac), None);

        let page = |granule: i64, packet: &[u8]| {
            let start = [b"OggS\0\x02", &granule.to_le_bytes()[..]].concat();
            [&start[..], &[0; 12], &[1, packet.len() as u8], packet].concat()
        };
        let opus = page(0, b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0");
        let opus = [opus, page(48_000 + 312, b"sound")].concat();
        assert_eq!(millis(&opus), Some(1000));
        let vorbis = page(0, b"\x01vorbis\0\0\0\0\x01\x80\x3e\0\0");
        let vorbis = [vorbis, page(8_000, b"sound")].concat();
        assert_eq!(millis(&vorbis), Some(500));

        // 128 kbit/s at 44.1 kHz: frames of 417 bytes and 1152 samples.
        let frame = |tag: &[u8]| {
            let mut frame = b"\xff\xfb\x90\x00".to_vec();
            frame.extend(tag);
            frame.resize(417, 0);
            frame
        };
        let mut mp3 = b"ID3\x04\0\0\0\0\x01\x02".to_vec();
        mp3.extend([0; 130]);
        mp3.extend(frame(b"Info"));
        mp3.extend(frame(b"").repeat(49));
        assert_eq!(millis(&mp3), Some(49 * 1_152_000 / 44_100));
        mp3.extend([0; 7]);
        assert_eq!(millis(&mp3), Some(49 * 1_152_000 / 44_100), "padding");
        mp3.extend(frame(b"").repeat(9));
        assert_eq!(millis(&mp3), None, "more sound after other bytes");
    }

    #[test]
    fn other_files_are_refused_and_other_audio_has_no_duration() {
        assert_eq!(millis(b"\0\0\0\x20ftypM4A "), None);
        for bytes in [
            &b""[..],
            b"hello",
            b"\xff\xfb\x90\x00",
            b"RIFF\0\0\0\0AVI LIST",
        ] {
            assert!(
                duration(bytes)
                    .unwrap_err()
                    .starts_with("is not an audio file"),
            );
        }
        assert!(
            duration(b"RIFF\0\0\0\0WAVEfmt ")
                .unwrap_err()
                .starts_with("is not a valid WAV file")
        );
    }
}
