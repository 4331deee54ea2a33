use super::*;
use crate::parse::parse;

fn read_length(text: &str) -> (Option<Quantity>, Vec<String>) {
    let mut review = Review::default();
    review.key = "max_tokens".to_owned();
    let file = review.sources.add("t", text, Default::default());
    let node = parse(file, 0, text, &mut review).unwrap();
    let value = quantity(&node, &mut review);
    let faults = review
        .faults()
        .iter()
        .map(|f| format!("{} {f}", f.column()))
        .collect();
    (value, faults)
}

fn drawn(family: Family, min: Option<f64>, max: Option<f64>) -> Distribution {
    Distribution::new(family, min, max).unwrap()
}

#[test]
fn every_family_is_parsed() {
    let bin = |low: f64, high: f64| Bin { low, high };
    let bins = |rows: Vec<(f64, Bin)>| Family::Table(Weighted::new(rows).unwrap());
    let parts = vec![
        (3.0, Distribution::fixed(100.0)),
        (1.0, Distribution::uniform(1, 9)),
    ];
    for (text, family) in [
        ("256", Family::Fixed(256.0)),
        (
            "{uniform: [1, 9]}",
            Family::Uniform {
                low: 1.0,
                high: 9.0,
            },
        ),
        (
            "{normal: {mean: 128, sd: 32.5}}",
            Family::Normal {
                mean: 128.0,
                sd: 32.5,
            },
        ),
        (
            "{lognormal: {sd: 0, mean: 2}}",
            Family::Lognormal { mean: 2.0, sd: 0.0 },
        ),
        ("{exponential: 500}", Family::Exponential { mean: 500.0 }),
        (
            "{gamma: {mean: 500, cv: 1.2}}",
            Family::Gamma {
                mean: 500.0,
                cv: 1.2,
            },
        ),
        (
            "{mixture: [{weight: 3, of: 100}, {weight: 1, of: {uniform: [1, 9]}}]}",
            Family::Mixture(Weighted::new(parts).unwrap()),
        ),
        (
            "{histogram: [[0, 100, 30], [100, 500, 70]]}",
            bins(vec![(30.0, bin(0.0, 100.0)), (70.0, bin(100.0, 500.0))]),
        ),
        (
            "{values: [5, 7]}",
            bins(vec![(1.0, bin(5.0, 5.0)), (1.0, bin(7.0, 7.0))]),
        ),
        (
            "{values: [[5, 1], [7, 3]]}",
            bins(vec![(1.0, bin(5.0, 5.0)), (3.0, bin(7.0, 7.0))]),
        ),
    ] {
        let value = Quantity::Drawn(drawn(family, None, None));
        assert_eq!(read_length(text), (Some(value), vec![]), "{text}");
    }
    let item = Quantity::Item("output_tokens".into());
    assert_eq!(read_length("{from: item.output_tokens}").0, Some(item));
    let gamma = Family::Gamma {
        mean: 500.0,
        cv: 1.2,
    };
    let pareto = Family::Pareto {
        low: 100.0,
        alpha: 1.5,
    };
    let capped = Quantity::Drawn(drawn(pareto, None, Some(MAX_TOKENS as f64)));
    assert_eq!(
        read_length("{pareto: {min: 100, alpha: 1.5}}").0,
        Some(capped),
        "no length that no context has"
    );
    let bounded = Quantity::Drawn(drawn(gamma, Some(10.0), Some(4000.0)));
    assert_eq!(
        read_length("{gamma: {mean: 500, cv: 1.2}, min: 10, max: 4000}").0,
        Some(bounded)
    );
}

#[test]
fn times_have_the_same_notation_with_units() {
    let read = |text: &str| {
        wait(
            &parse(0, 0, text, &mut Review::default()).unwrap(),
            &mut Review::default(),
        )
    };
    for (text, family) in [
        ("2s", Family::Fixed(2e9)),
        ("0", Family::Fixed(0.0)),
        (
            "{uniform: [0s, 3s]}",
            Family::Uniform {
                low: 0.0,
                high: 3e9,
            },
        ),
        ("{exponential: 2s}", Family::Exponential { mean: 2e9 }),
        (
            "{normal: {mean: 2s, sd: 500ms}}",
            Family::Normal { mean: 2e9, sd: 5e8 },
        ),
        (
            "{pareto: {min: 1s, alpha: 2.5}}",
            Family::Pareto {
                low: 1e9,
                alpha: 2.5,
            },
        ),
    ] {
        assert_eq!(read(text), Some(drawn(family, None, None)), "{text}");
    }
    for bad in [
        "2",
        "{uniform: [3s, 1s]}",
        "{uniform: 1s}",
        "{exponential: 0s}",
        "{normal: 1s}",
        "[1s, 2s]",
        "{}",
        "{from: item.x}",
    ] {
        assert_eq!(read(bad), None, "{bad}");
    }
}

fn in_folder(text: &str, csv: &str) -> (Option<Quantity>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lengths.csv"), csv).unwrap();
    let mut review = Review::default();
    let file = review.sources.add("t", text, folder.path().to_path_buf());
    let node = parse(file, 0, text, &mut review).unwrap();
    let value = quantity(&node, &mut review);
    let inlined = inline_files(&node, &QUANTITY, &mut review);
    if let (Some(value), Some(inlined)) = (&value, inlined) {
        let text = inlined.to_string();
        let stored = parse(0, 0, &text, &mut Review::default()).unwrap();
        assert_eq!(
            quantity(&stored, &mut review).as_ref(),
            Some(value),
            "the stored plan draws the same"
        );
    }
    let faults = review
        .faults()
        .iter()
        .map(|f| format!("{}:{}: {}", f.file(), f.line(), f.message()))
        .collect();
    (value, faults)
}

#[test]
fn values_come_from_a_column_of_a_file() {
    let rows = [(2.0, 5.0), (1.0, 90.0)].map(|(count, value)| {
        (
            count,
            Bin {
                low: value,
                high: value,
            },
        )
    });
    let table = Family::Table(Weighted::new(rows.to_vec()).unwrap());
    let expected = Some(Quantity::Drawn(drawn(table, None, None)));
    for (text, csv) in [
        ("{file: lengths.csv}", "5\n90\n\n5\n"),
        ("{file: lengths.csv}", "tokens\n5\n5\n90"),
        (
            "{file: lengths.csv, column: out}",
            "in,out\r\n1,90\r\n2,5\r\n3,5\r\n",
        ),
        ("{file: lengths.csv}", "\u{feff}5\n\"5\"\n\" 90 \",\n"),
        (
            "{file: lengths.csv, column: out}",
            "in\tout\n1,0\t90\n\n2\t5\n3\t5\n",
        ),
    ] {
        assert_eq!(in_folder(text, csv), (expected.clone(), vec![]), "{csv:?}");
    }
    for (text, csv, fault) in [
        (
            "{file: lengths.csv, column: outt}",
            "in,out\n1,2\n",
            "t:1: `lengths.csv` has no column `outt`",
        ),
        (
            "{file: lengths.csv}",
            "tokens\n\"1,000\"\n",
            "lengths.csv:2: `1,000` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "tokens\n\n1,000\n",
            "lengths.csv:3: a row of 2 cells, where the first has 1",
        ),
        (
            "{file: lengths.csv}",
            "20000000\n5\n",
            "lengths.csv:1: `20000000` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "5\n1e300\n",
            "lengths.csv:2: `1e300` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "5\n18446744073709551616\n",
            "lengths.csv:2: `18446744073709551616` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "in,out\n1,2\n",
            "t:1: `lengths.csv` has 2 columns",
        ),
        (
            "{file: lengths.csv}",
            "n\n5\nx\n",
            "lengths.csv:3: `x` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "n\n5\n-2\n",
            "lengths.csv:3: `-2` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "n\nNaN\n",
            "lengths.csv:2: `NaN` is not a number of tokens from 1 to 10000000",
        ),
        (
            "{file: lengths.csv}",
            "n\n",
            "t:1: `lengths.csv` has no rows",
        ),
        ("{file: lengths.csv}", "", "t:1: `lengths.csv` has no rows"),
        ("{file: length.csv}", "", "t:1: `length.csv` not found"),
    ] {
        assert_eq!(
            in_folder(text, csv),
            (None, vec![fault.to_owned()]),
            "{text} {csv:?}"
        );
    }
}

#[test]
fn pairs_are_read_from_the_scenario() {
    let read = |text: &str| {
        let mut review = Review::default();
        let node = parse(
            review.sources.add("t", text, Default::default()),
            0,
            text,
            &mut review,
        )
        .unwrap();
        let pairs = pairs(&node, &mut review);
        (
            pairs,
            review
                .faults()
                .iter()
                .map(|f| f.message().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let expected = Weighted::new(vec![(1.0, (100, 20)), (3.0, (4000, 300))]);
    assert_eq!(
        read("{pairs: [[100, 20], [4000, 300, 3]]}"),
        (expected, vec![])
    );
    for (text, fault) in [
        ("{pairs: [[100, 0]]}", "a pair is `[input, output]`"),
        (
            "{pairs: []}",
            "the table needs a pair with a weight above 0",
        ),
        (
            "{pairs: [[1, 2, 0]]}",
            "the table needs a pair with a weight above 0",
        ),
        (
            "{pears: [[1, 2]]}",
            "`` must be a table of prompt and output lengths",
        ),
    ] {
        let (pairs, faults) = read(text);
        assert!(
            pairs.is_none() && faults[0].starts_with(fault),
            "{text}: {faults:?}"
        );
    }
}

#[test]
fn each_error_has_its_position() {
    for (text, fault) in [
        (
            "0",
            "1 `max_tokens` must be a whole number of tokens from 1 to 10000000",
        ),
        (
            "{uniform: [9, 1]}",
            "11 `uniform` needs `[low, high]`, two whole numbers above 0 with low ≤ high",
        ),
        (
            "{normal: {mean: 5, sd: -1}}",
            "10 this needs `{ mean: …, sd: … }`, a mean above 0 and a standard \
            deviation of 0 or more",
        ),
        (
            "{exponential: .nan}",
            "15 `exponential` needs its mean, a number of tokens above 0",
        ),
        (
            "{uniform: [1, 9], min: 8, max: 7}",
            "24 empty range: `min` is greater than `max`",
        ),
        (
            "{normal: {mean: 9, sd: 1}, min: 100}",
            "33 no value of this distribution is within its bounds",
        ),
        (
            "{pareto: {min: 9, alpha: 1}}",
            "10 this distribution has no mean",
        ),
        (
            "{pareto: {min: 10000000, alpha: 2}}",
            "10 no value of this distribution is within its bounds",
        ),
        (
            "{values: []}",
            "10 `values` needs `[value, …]` or `[[value, weight], …]`, numbers of tokens, 1 or \
            more, and weights of 0 or more, not all 0",
        ),
        (
            "{histogram: [[1, 2, 0]]}",
            "13 `histogram` needs `[[low, high, weight], …]`, ranges of tokens with low < high \
            and weights of 0 or more, not all 0",
        ),
        (
            "{mixture: [{weight: 0, of: 5}]}",
            "11 `mixture` needs `[{ weight: …, of: … }, …]`, two or more distributions with \
            weights of 0 or more, not all 0",
        ),
        (
            "{mixture: [{weight: 1, of: {exponential: 0}}]}",
            "42 `exponential` needs its mean, a number of tokens above 0",
        ),
        ("{uniform: [1, 9], column: x}", "19 `column` needs `file`"),
        ("{unifrom: [1, 9]}", "2 unknown distribution `unifrom`"),
        (
            "{from: output_tokens}",
            "8 `from` needs a field of the dataset's rows, such as `item.output_tokens`",
        ),
    ] {
        assert_eq!(read_length(text), (None, vec![fault.to_owned()]), "{text}");
    }
}
