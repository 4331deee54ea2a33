//! `--compat`: results in the form of other tools.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llmscen_core::export_format::Peer;
use llmscen_core::plan::Plan;

/// Which tools.
#[derive(Debug, Default, Args)]
pub struct Compat {
    /// Write the results in the form of these tools too, under compat/: evalscope,vllm
    #[arg(long = "compat", value_name = "TOOL", value_delimiter = ',', value_parser = tools())]
    pub tools: Vec<Peer>,
}

impl Compat {
    /// Adds them to those that the scenario names.
    pub fn add_to(&self, plan: &mut Plan) {
        let compat = &mut plan.report.compat;
        *compat = Peer::ALL.into_iter().filter(|peer| compat.contains(peer) || self.tools.contains(peer)).collect();
    }
}

fn tools() -> impl TypedValueParser<Value = Peer> {
    let named = |name: String| Peer::parse(&name).ok_or("no such tool");
    PossibleValuesParser::new(Peer::ALL.map(Peer::name)).try_map(named)
}
