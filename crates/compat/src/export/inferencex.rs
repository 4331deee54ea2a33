//! The aggregate file `agg_*.json` of InferenceX (formerly InferenceMAX), after its utils/process_result.py of 2026.
//!
//! That script divides the values of `vllm bench serve` by the GPUs, converts times to seconds, and adds the
//! interactivity 1000 / TPOT. What it takes from the environment of a job is read from the scenario, or absent.

use crate::export::vllm::summary;
use crate::export::{Export, ExportError, File, Measured, Names, slug};
use llmscen_core::dataset::Source;
use llmscen_core::distribution::Family;
use llmscen_core::quantity::Quantity;
use serde_json::{Map, Value, json};

/// A file per case.
#[derive(Debug, Default)]
pub(super) struct InferenceX {
    names: Names,
}

impl Export for InferenceX {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let name = self.names.unique(&slug(&case.case.id));
        Ok(vec![File {
            name: format!("agg_{name}.json"),
            bytes: serde_json::to_vec_pretty(&aggregate(case))?,
        }])
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        Ok(Vec::new())
    }
}

fn aggregate(case: &Measured<'_>) -> Map<String, Value> {
    let command = Command::new(case);
    let saved = summary(case);
    let number = |key: &str| saved.get(key).and_then(Value::as_f64);
    let per_gpu = |tokens: Option<f64>| Some(tokens? / f64::from(case.case.target.gpus?));
    let (output, total) = (
        number("output_throughput"),
        number("total_token_throughput"),
    );
    let input = total.zip(output).map(|(total, output)| total - output);
    let managed = case.case.target.server.is_some();
    let mut all: Map<String, Value> = [
        ("conc", json!(case.concurrency())),
        ("model", json!(case.model())),
        ("framework", json!(command.framework())),
        ("isl", json!(prompt_length(case))),
        ("osl", json!(fixed(case.case.request.max_tokens.as_ref()))),
        // A server that the run started runs on this machine alone.
        ("is_multinode", json!(managed.then_some(false))),
        ("tp", json!(command.tensor())),
        ("ep", json!(command.expert())),
        ("dp_attention", json!(command.data_parallel_attention())),
        ("tput_per_gpu", json!(per_gpu(total))),
        ("output_tput_per_gpu", json!(per_gpu(output))),
        ("input_tput_per_gpu", json!(per_gpu(input))),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    for (key, millis) in saved
        .iter()
        .filter_map(|(key, value)| Some((key.strip_suffix("_ms")?, value.as_f64()?)))
    {
        all.insert(key.to_owned(), json!(millis / 1e3));
        if key.ends_with("tpot") && millis > 0.0 {
            all.insert(key.replace("tpot", "intvty"), json!(1e3 / millis));
        }
    }
    all.retain(|_, value| !value.is_null());
    all
}

fn fixed(length: Option<&Quantity>) -> Option<u64> {
    let Quantity::Drawn(drawn) = length? else {
        return None;
    };
    match drawn.family() {
        Family::Fixed(tokens) => Some(*tokens as u64),
        // InferenceX draws lengths up to the one that it names.
        Family::Uniform { high, .. } => Some(*high as u64),
        _ => None,
    }
}

fn prompt_length(case: &Measured<'_>) -> Option<u64> {
    match &case.case.dataset.source {
        Source::Random { tokens, .. } => fixed(Some(tokens)),
        _ => None,
    }
}

const TENSOR: [&str; 3] = ["--tensor-parallel-size", "--tp-size", "--tp"];
const EXPERT: [&str; 2] = ["--ep-size", "--expert-parallel-size"];

/// The words of the command of a managed server; empty without one. `_` in flags is read as `-`.
struct Command(Vec<String>);

impl Command {
    fn new(case: &Measured<'_>) -> Command {
        let words = case
            .case
            .target
            .server
            .iter()
            .flat_map(|server| &server.command);
        let flat = |word: &String| match word.split_once('=').filter(|_| word.starts_with('-')) {
            Some((flag, value)) => vec![flag.replace('_', "-"), value.to_owned()],
            None if word.starts_with('-') => vec![word.replace('_', "-")],
            None => vec![word.clone()],
        };
        Command(words.flat_map(flat).collect())
    }

    fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|word| word == flag)
    }

    fn number(&self, flags: &[&str]) -> Option<u64> {
        let at = self
            .0
            .iter()
            .position(|word| flags.contains(&word.as_str()))?;
        self.0.get(at + 1)?.parse().ok()
    }

    /// Tensor parallelism: without a flag the engines use one GPU.
    fn tensor(&self) -> Option<u64> {
        self.framework()?;
        Some(self.number(&TENSOR).unwrap_or(1))
    }

    /// Expert parallelism: vLLM's is on or off, over all GPUs of a replica.
    fn expert(&self) -> Option<u64> {
        let tensor = self.tensor()?;
        let whole = self.has("--enable-expert-parallel").then_some(tensor);
        Some(self.number(&EXPERT).or(whole).unwrap_or(1))
    }

    /// As text, as in the files of InferenceX.
    fn data_parallel_attention(&self) -> Option<&'static str> {
        self.framework()?;
        let is_on = self.has("--enable-dp-attention");
        Some(if is_on { "true" } else { "false" })
    }

    /// InferenceX's name of the engine.
    fn framework(&self) -> Option<&'static str> {
        let runs = |name: &str| {
            let ends = |word: &String| word.rsplit('/').next() == Some(name);
            self.0.iter().take(3).any(ends)
        };
        [
            ("vllm", "vllm"),
            ("sglang.launch_server", "sglang"),
            ("trtllm-serve", "trt"),
        ]
        .into_iter()
        .find_map(|(program, framework)| runs(program).then_some(framework))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{case, files, rows};
    use llmscen_core::artifacts::ExportFormat;
    use llmscen_core::load::Shape;
    use llmscen_core::plan::Case;
    use llmscen_core::target::{ManagedServer, Readiness};
    use llmscen_core::units::Nanos;

    fn exported(case: &Case) -> Value {
        let file = files(ExportFormat::InferenceX, case, rows()).remove(0);
        assert_eq!(file.name, "agg_concurrency=2.json");
        serde_json::from_slice(&file.bytes).unwrap()
    }

    #[test]
    fn values_are_those_of_vllm_per_gpu_and_in_seconds() {
        let mut case = case(Shape::Closed { users: 2 });
        case.target.gpus = Some(4);
        case.target.server = Some(ManagedServer {
            command: ["vllm", "serve", "org/m-7b", "--tensor_parallel_size=4"]
                .map(str::to_owned)
                .to_vec(),
            env: Vec::new(),
            cwd: None,
            ready: Readiness::Log("ready".into()),
            timeout: Nanos::from_millis(1),
            interval: Nanos::from_millis(1),
            log: "server.log".into(),
            restart: Default::default(),
            grace: Nanos::from_millis(1),
        });
        case.request.max_tokens = Some(Quantity::fixed(3));
        let all = exported(&case);
        let known = json!({
            "conc": 2, "model": "org/m-7b", "framework": "vllm", "osl": 3, "tp": 4, "ep": 1,
            "dp_attention": "false", "is_multinode": false,
            "tput_per_gpu": 6.25, "output_tput_per_gpu": 1.25, "input_tput_per_gpu": 5.0, "mean_ttft": 0.07,
        });
        for (key, value) in known.as_object().unwrap() {
            assert_eq!(&all[key], value, "{key}");
        }
        let ratio = all["median_intvty"].as_f64().unwrap() * all["median_tpot"].as_f64().unwrap();
        assert!((ratio - 1.0).abs() < 1e-9, "{all}");
    }

    #[test]
    fn what_the_scenario_does_not_say_is_absent() {
        let all = exported(&case(Shape::Closed { users: 2 }));
        for key in [
            "hw",
            "precision",
            "framework",
            "tp",
            "tput_per_gpu",
            "isl",
            "is_multinode",
            "dp_attention",
        ] {
            assert!(all.get(key).is_none(), "{key}: {all}");
        }
    }
}
