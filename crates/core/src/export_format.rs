//! Tools whose result files can be written beside our own.

/// A tool that measures the same things and writes files of its own, which its users feed to their dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `evalscope perf`.
    Evalscope,
    /// `vllm bench serve`.
    Vllm,
    /// NVIDIA AIPerf.
    Aiperf,
    /// GuideLLM.
    Guidellm,
    /// LMDeploy's profiling scripts.
    Lmdeploy,
}

impl Peer {
    /// All of them, in the order in which their files are written.
    pub const ALL: [Peer; 5] = [Peer::Evalscope, Peer::Vllm, Peer::Aiperf, Peer::Guidellm, Peer::Lmdeploy];

    /// Its name in `report.compat`, and of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Evalscope => "evalscope",
            Peer::Vllm => "vllm",
            Peer::Aiperf => "aiperf",
            Peer::Guidellm => "guidellm",
            Peer::Lmdeploy => "lmdeploy",
        }
    }

    /// The tool of that name.
    pub fn parse(name: &str) -> Option<Peer> {
        Peer::ALL.into_iter().find(|peer| peer.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        assert_eq!(Peer::ALL.map(|peer| Peer::parse(peer.name())), Peer::ALL.map(Some));
        assert_eq!(Peer::parse("k6"), None);
    }
}
