//! What was counted for each objective of each server, as a file and as the tables of `docs/explanation/error-rates.md`.

/// Verdicts on one objective of one server, each from n requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub server: String,
    pub objective: String,
    pub saturated: bool,
    pub n: usize,
    pub trials: usize,
    /// PASS and FAIL at the truth, PASS at 1.25 and at 2 times the truth.
    pub counts: [usize; 4],
    /// Mean of the design effects; 0 without any.
    pub effect: f64,
}

impl Cell {
    /// One of its counts, in percent.
    pub fn percent(&self, place: usize) -> f64 {
        self.counts[place] as f64 * 100.0 / self.trials as f64
    }
}

/// The first line of the file.
const HEAD: &str = "server;objective;saturated;n;trials;pass;fail;pass_1_25;pass_2;effect";

/// The file of the cells.
pub fn write(cells: &[Cell]) -> String {
    let line = |cell: &Cell| {
        let Cell {
            server,
            objective,
            saturated,
            n,
            trials,
            counts: [pass, fail, near, far],
            effect,
        } = cell;
        format!(
            "{server};{objective};{saturated};{n};{trials};{pass};{fail};{near};{far};{effect:.2}\n"
        )
    };
    format!("{HEAD}\n{}", cells.iter().map(line).collect::<String>())
}

/// The cells of a file.
pub fn read(text: &str) -> Vec<Cell> {
    let cell = |line: &str| {
        let parts: Vec<&str> = line.split(';').collect();
        let number = |at: usize| parts[at].parse().expect("a whole number");
        Cell {
            server: parts[0].to_owned(),
            objective: parts[1].to_owned(),
            saturated: parts[2] == "true",
            n: number(3),
            trials: number(4),
            counts: [number(5), number(6), number(7), number(8)],
            effect: parts[9].parse().expect("a number"),
        }
    };
    text.lines().skip(1).map(cell).collect()
}

fn sizes(cells: &[Cell]) -> Vec<usize> {
    let mut sizes: Vec<usize> = cells.iter().map(|cell| cell.n).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Kinds of cells, and which belong to them.
type Group = (&'static str, fn(&Cell) -> bool);

/// The groups of the short table.
pub const GROUPS: [Group; 10] = [
    ("all, below saturation", |cell| !cell.saturated),
    ("quantiles of `ttft`, `e2e`, `tpot`", |cell| {
        !cell.saturated && has_objective(cell, &["ttft.p", "e2e", "tpot"])
    }),
    ("quantiles of `itl`", |cell| {
        !cell.saturated && has_objective(cell, &["itl"])
    }),
    ("`itl.p99`, closed loops", |cell| {
        !cell.saturated && cell.server.starts_with("closed") && has_objective(cell, &["itl.p99"])
    }),
    ("`goodput`, `error_rate`, `ttft.mean`", |cell| {
        !cell.saturated && has_objective(cell, &["goodput", "error_rate", "ttft.mean"])
    }),
    ("`output_tps`", |cell| {
        !cell.saturated && has_objective(cell, &["output_tps"])
    }),
    ("near saturation", |cell| {
        cell.saturated
            && !["closed", "overload", "fresh"]
                .iter()
                .any(|kind| cell.server.starts_with(kind))
    }),
    ("overload, any limit", |cell| {
        cell.server.starts_with("overload")
    }),
    ("fresh, from the first request", |cell| {
        cell.server.starts_with("fresh")
    }),
    ("closed, with start and drain", |cell| {
        cell.saturated && cell.server.starts_with("closed")
    }),
];

fn has_objective(cell: &Cell, names: &[&str]) -> bool {
    names.iter().any(|name| cell.objective.starts_with(name))
}

/// Means over the cells of each group, in percent.
pub fn short(cells: &[Cell]) -> String {
    let mut text =
        "| objectives | n | cells | false PASS | false FAIL | worst PASS | worst FAIL | PASS at 1.25 × | PASS at 2 × |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for (name, belongs) in GROUPS {
        for n in sizes(cells) {
            let own: Vec<&Cell> = cells
                .iter()
                .filter(|cell| cell.n == n && belongs(cell))
                .collect();
            if own.is_empty() {
                continue;
            }
            let mean =
                |place| own.iter().map(|cell| cell.percent(place)).sum::<f64>() / own.len() as f64;
            let worst = |place| {
                own.iter()
                    .map(|cell| cell.percent(place))
                    .fold(0.0, f64::max)
            };
            let ([pass, fail, near, far], count) = ([0, 1, 2, 3].map(mean), own.len());
            let worst = format!("{:.0} | {:.0}", worst(0), worst(1));
            text += &format!(
                "| {name} | {n} | {count} | {pass:.1} | {fail:.1} | {worst} | {near:.0} | {far:.0} |\n"
            );
        }
    }
    text
}

/// Each cell: false PASS / false FAIL, PASS at 1.25 and at 2 times the truth, in percent.
pub fn long(cells: &[Cell]) -> String {
    let sizes = sizes(cells);
    let head: String = sizes.iter().map(|n| format!(" n = {n} |")).collect();
    let mut text = format!(
        "| server | objective |{head}\n|---|---|{}\n",
        "---|".repeat(sizes.len())
    );
    for first in cells.iter().filter(|cell| Some(&cell.n) == sizes.first()) {
        let same =
            |cell: &&Cell| (&cell.server, &cell.objective) == (&first.server, &first.objective);
        let figures = |cell: &Cell| {
            let [pass, fail, near, far] = [0, 1, 2, 3].map(|place| cell.percent(place));
            format!(" {pass:.0} / {fail:.0}, {near:.0}, {far:.0} |")
        };
        let figures: String = cells.iter().filter(same).map(figures).collect();
        text += &format!("| {} | `{}` |{figures}\n", first.server, first.objective);
    }
    text
}

/// Marks of the short and the long table in a page.
const MARKS: [&str; 2] = ["<!-- means -->", "<!-- cells -->"];

/// The page with the tables of these cells: each is between its mark and the next empty line.
pub fn page(text: &str, cells: &[Cell]) -> String {
    MARKS
        .iter()
        .zip([short(cells), long(cells)])
        .fold(text.to_owned(), |text, (mark, table)| {
            let (before, after) = text.split_once(&format!("{mark}\n")).expect("a mark");
            let (_, after) = after
                .split_once("\n\n")
                .expect("an empty line after the table");
            format!("{before}{mark}\n{table}\n{after}")
        })
}
