//! The audio of a response while it arrives, and its playback at normal speed.

use llmscen_core::outcome::{Audio, Playback};
use llmscen_core::units::Nanos;
use llmscen_protocols::AudioReceived;

/// Follows the audio of one response. The playback starts at the first byte of audio and stops whenever it has played
/// all audio received so far, until the next read with audio. The end of the audio is no under-run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AudioReceiver {
    first: Option<Nanos>,
    received: AudioReceived,
    playback: Playback,
}

impl AudioReceiver {
    /// Records the audio that was received up to `at`, in total.
    pub fn receive(&mut self, total: AudioReceived, at: Nanos) {
        if total.bytes <= self.received.bytes {
            return;
        }
        match self.first {
            None => self.first = Some(at),
            Some(first) => {
                let played_all = first + self.playback.stalled + self.buffered();
                if at > played_all {
                    self.playback.underruns += 1;
                    self.playback.stalled = self.playback.stalled + at.since(played_all);
                }
            }
        }
        self.received = total;
    }

    /// Duration of the audio received so far; zero where the format does not reveal it.
    fn buffered(&self) -> Nanos {
        self.received.duration().unwrap_or_default()
    }

    /// The facts at the end of the response.
    pub fn into_audio(self) -> Audio {
        let duration = self.received.duration();
        Audio {
            duration,
            first: self.first,
            playback: duration.map(|_| self.playback),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of 1000 bytes per second: time in ms, and bytes received so far.
    fn played(reads: &[(u64, u64)]) -> Audio {
        let mut receiver = AudioReceiver::default();
        for &(at, bytes) in reads {
            let total = AudioReceived {
                bytes,
                bytes_per_second: Some(1000),
            };
            receiver.receive(total, Nanos::from_millis(at));
        }
        receiver.into_audio()
    }

    fn underruns(reads: &[(u64, u64)]) -> (u32, u64) {
        let playback = played(reads).playback.unwrap();
        (playback.underruns, playback.stalled.0 / 1_000_000)
    }

    #[test]
    fn playback_waits_when_it_has_played_all_audio() {
        // 100 ms of audio at 50 ms are played at 150 ms.
        assert_eq!(underruns(&[(50, 100), (150, 200)]), (0, 0));
        assert_eq!(underruns(&[(50, 100), (151, 200)]), (1, 1));
        // After a wait of 30 ms the second 100 ms end at 280 ms.
        assert_eq!(underruns(&[(50, 100), (180, 200), (280, 201)]), (1, 30));
        assert_eq!(underruns(&[(50, 100), (180, 200), (290, 201)]), (2, 40));
        // Audio ahead of the playback counts.
        assert_eq!(underruns(&[(0, 1000), (1, 2000), (1999, 2001)]), (0, 0));
        // A read without audio changes nothing.
        assert_eq!(underruns(&[(50, 100), (400, 100)]), (0, 0));
        let audio = played(&[(50, 100), (151, 200)]);
        assert_eq!(
            (audio.first, audio.duration),
            (Some(Nanos::from_millis(50)), Some(Nanos::from_millis(200)))
        );
    }

    #[test]
    fn an_unknown_duration_has_no_playback() {
        let mut receiver = AudioReceiver::default();
        for (at, bytes) in [(5, 10), (900, 20)] {
            let total = AudioReceived {
                bytes,
                bytes_per_second: None,
            };
            receiver.receive(total, Nanos(at));
        }
        let known = Audio {
            first: Some(Nanos(5)),
            ..Audio::default()
        };
        assert_eq!(receiver.into_audio(), known);
    }
}
