//! The profile CSV of LMDeploy's benchmark scripts in its three generations, each with its header and a row per case.

use crate::export::measured::SortedValues;
use crate::export::{Export, ExportError, File, Measured, csv};
use llmscen_core::metric::Metric;
use llmscen_core::stats::quantile;

/// profile_generation.py of 2023.
const GENERATION_2023: [&str; 13] = [
    "batch",
    "prompt_tokens",
    "completion_tokens",
    "1st_token_latency(min)(s)",
    "1st_token_latency(max)(s)",
    "1st_token_latency(ave)(s)",
    "percentile50(s)",
    "percentile75(s)",
    "percentile95(s)",
    "percentile99(s)",
    "throughput(token/s)",
    "mem_per_proc(GB)",
    "mem_per_gpu(GB)",
];

/// profile_generation.py of 2024.
const GENERATION: [&str; 13] = [
    "batch",
    "prompt_tokens",
    "completion_tokens",
    "throughput(total tok/s)",
    "throughput(out tok/s)",
    "mem(GB)",
    "FTL(ave)(s)",
    "FTL(min)(s)",
    "FTL(max)(s)",
    "50%(s)",
    "75%(s)",
    "95%(s)",
    "99%(s)",
];

/// profile_throughput.py of 2024, including its misspelling.
const THROUGHPUT: [&str; 13] = [
    "batch",
    "num_promts",
    "RPS",
    "RPM",
    "FTL(ave)(s)",
    "FTL(min)(s)",
    "FTL(max)(s)",
    "50%(s)",
    "75%(s)",
    "95%(s)",
    "99%(s)",
    "throughput(out tok/s)",
    "throughput(total tok/s)",
];

/// profile_restful_api.py of 2024.
const RESTFUL: [&str; 9] = [
    "batch",
    "num_prompts",
    "RPS",
    "RPM",
    "FTL(ave)(s)",
    "FTL(min)(s)",
    "FTL(max)(s)",
    "throughput(out tok/s)",
    "throughput(total tok/s)",
];

/// lmdeploy/profiler.py, used by all scripts since 2025.
const PROFILER: [&str; 7] = [
    "batch",
    "num_prompts",
    "RPS",
    "RPM",
    "FTL(ave)(s)",
    "throughput(out tok/s)",
    "throughput(total tok/s)",
];

/// The text of a missing value.
const MISSING: &str = "-";

/// The files with their headers.
const FILES: [(&str, &[&str]); 5] = [
    ("1/profile_generation.csv", &GENERATION_2023),
    ("2/profile_generation.csv", &GENERATION),
    ("2/profile_throughput.csv", &THROUGHPUT),
    ("2/profile_restful_api.csv", &RESTFUL),
    ("3/profile_throughput.csv", &PROFILER),
];

/// Five files with a line per case.
#[derive(Debug, Default)]
pub(super) struct Lmdeploy {
    lines: [Vec<Vec<String>>; 5],
}

impl Export for Lmdeploy {
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError> {
        let values = CaseValues::new(case);
        for (lines, (_, head)) in self.lines.iter_mut().zip(FILES) {
            lines.push(head.iter().map(|column| values.cell(column)).collect());
        }
        Ok(Vec::new())
    }

    fn end(&mut self) -> Result<Vec<File>, ExportError> {
        let file = |((name, head), lines): ((&str, &[&str]), &Vec<Vec<String>>)| {
            let head = head.iter().map(|&column| column.to_owned()).collect();
            let lines: Vec<_> = std::iter::once(head).chain(lines.iter().cloned()).collect();
            Ok(File {
                name: name.to_owned(),
                bytes: csv(&lines)?,
            })
        };
        FILES.into_iter().zip(&self.lines).map(file).collect()
    }
}

/// The values of a case; times in seconds.
struct CaseValues {
    batch: Option<u32>,
    requests: usize,
    prompt: Option<f64>,
    completion: Option<f64>,
    ftl: Option<SortedValues>,
    tokens: Vec<f64>,
    rps: Option<f64>,
    output: Option<f64>,
    total: Option<f64>,
}

impl CaseValues {
    fn new(case: &Measured<'_>) -> CaseValues {
        let over = |amount: Option<f64>| {
            amount
                .zip(case.window())
                .map(|(amount, window)| amount / window)
        };
        let (input, output) = (
            case.total(Metric::PromptTokens),
            case.total(Metric::BilledTokens),
        );
        let mean =
            |metric: Metric| SortedValues::new(case.values(metric)).map(|spread| spread.mean());
        CaseValues {
            batch: case.concurrency(),
            requests: case.rows.len(),
            prompt: mean(Metric::PromptTokens),
            completion: mean(Metric::BilledTokens),
            ftl: SortedValues::new(
                case.values(Metric::TtftService)
                    .into_iter()
                    .map(|millis| millis / 1e3)
                    .collect(),
            ),
            tokens: token_latencies(case),
            rps: over(Some(case.completed() as f64)),
            output: over(output),
            total: over(input.zip(output).map(|(input, output)| input + output)),
        }
    }

    fn cell(&self, column: &str) -> String {
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or_else(|| MISSING.to_owned(), |v| format!("{v:.decimals$}"))
        };
        let ftl = |get: fn(&SortedValues) -> f64| number(self.ftl.as_ref().map(get), 3);
        let mean = |value: Option<f64>| {
            value.map_or_else(
                || MISSING.to_owned(),
                |v| format!("{}", (v * 100.0).round() / 100.0),
            )
        };
        match column {
            "batch" => self
                .batch
                .map_or_else(|| MISSING.to_owned(), |users| users.to_string()),
            "num_prompts" | "num_promts" => self.requests.to_string(),
            "prompt_tokens" => mean(self.prompt),
            "completion_tokens" => mean(self.completion),
            "RPS" => number(self.rps, 3),
            "RPM" => number(self.rps.map(|rps| rps * 60.0), 3),
            "FTL(ave)(s)" | "1st_token_latency(ave)(s)" => ftl(SortedValues::mean),
            "FTL(min)(s)" | "1st_token_latency(min)(s)" => ftl(SortedValues::min),
            "FTL(max)(s)" | "1st_token_latency(max)(s)" => ftl(SortedValues::max),
            "50%(s)" | "percentile50(s)" => number(self.token_quantile(0.5), 3),
            "75%(s)" | "percentile75(s)" => number(self.token_quantile(0.75), 3),
            "95%(s)" | "percentile95(s)" => number(self.token_quantile(0.95), 3),
            "99%(s)" | "percentile99(s)" => number(self.token_quantile(0.99), 3),
            "throughput(out tok/s)" | "throughput(token/s)" => number(self.output, 3),
            "throughput(total tok/s)" => number(self.total, 3),
            _ => MISSING.to_owned(),
        }
    }

    /// The quantile of the scripts: the value at index ⌊p·n⌋.
    fn token_quantile(&self, share: f64) -> Option<f64> {
        self.tokens
            .get((share * self.tokens.len() as f64) as usize)
            .copied()
    }
}

/// The latencies of the tokens after the first in seconds, ascending, as the scripts count them: of tokens that
/// arrive together the first has the full gap, the others have 0.
fn token_latencies(case: &Measured<'_>) -> Vec<f64> {
    let mut all = Vec::new();
    for row in case.ok().filter(|row| row.first_token().is_some()) {
        all.extend(row.gaps().iter().map(|gap| gap / 1e3));
        let tokens = row.output_tokens().unwrap_or_default() as usize;
        all.extend(std::iter::repeat_n(
            0.0,
            tokens.saturating_sub(1 + row.gaps().len()),
        ));
    }
    quantile::sort(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use crate::export::fixture::texts;
    use llmscen_core::artifacts::ExportFormat;

    #[test]
    fn every_generation_has_its_columns() {
        let known = [
            (
                "1/profile_generation.csv",
                "batch,prompt_tokens,completion_tokens,1st_token_latency(min)(s),1st_token_latency(max)(s),1st_token_latency(ave)(s),percentile50(s),percentile75(s),percentile95(s),percentile99(s),throughput(token/s),mem_per_proc(GB),mem_per_gpu(GB)\r\n2,10,2.5,0.040,0.100,0.070,0.020,0.030,0.060,0.060,5.000,-,-\r\n",
            ),
            (
                "2/profile_generation.csv",
                "batch,prompt_tokens,completion_tokens,throughput(total tok/s),throughput(out \
                 tok/s),mem(GB),FTL(ave)(s),FTL(min)(s),FTL(max)(s),50%(s),75%(s),95%(s),99%(s)\r\n2,10,2.5,25.000,5.000,-,0.070,0.040,0.100,0.020,0.030,0.060,0.060\r\n",
            ),
            (
                "2/profile_throughput.csv",
                "batch,num_promts,RPS,RPM,FTL(ave)(s),FTL(min)(s),FTL(max)(s),50%(s),75%(s),95%(s),99%(s),\
                 throughput(out tok/s),throughput(total tok/s)\r\n\
                 2,6,2.000,120.000,0.070,0.040,0.100,0.020,0.030,0.060,0.060,5.000,25.000\r\n",
            ),
            (
                "2/profile_restful_api.csv",
                "batch,num_prompts,RPS,RPM,FTL(ave)(s),FTL(min)(s),FTL(max)(s),throughput(out \
                 tok/s),throughput(total \
                 tok/s)\r\n2,6,2.000,120.000,0.070,0.040,0.100,5.000,25.000\r\n",
            ),
            (
                "3/profile_throughput.csv",
                "batch,num_prompts,RPS,RPM,FTL(ave)(s),throughput(out tok/s),throughput(total tok/s)\r\n\
                 2,6,2.000,120.000,0.070,5.000,25.000\r\n",
            ),
        ];
        assert_eq!(
            texts(ExportFormat::Lmdeploy),
            known.map(|(name, text)| (name.to_owned(), text.to_owned()))
        );
    }
}
