use super::*;
use proptest::prelude::*;

fn values(text: &str) -> Vec<(&str, &str, f64)> {
    Page::read(text).samples.iter().map(|sample| (sample.name, sample.labels, sample.value)).collect()
}

#[test]
fn series_are_read_with_and_without_labels_stamps_and_exemplars() {
    let text = "# HELP vllm:x Text { with \"all\" kinds of things}\n# TYPE vllm:x gauge\n\
        vllm:x{engine=\"0\",model_name=\"a,b={c}\"} 2\n\
        bare 12.5\n  indented\t3\r\n\n\
        stamped{} +Inf -3982045\n\
        om_total{le=\"0.5\",} 17 1520879607.789 # {trace_id=\"a} b\"} 0.43 1520879607\n\
        om_bucket{le=\"1\"} 5 # {} 0.67\n\
        nan NaN\n-inf -Inf\nbig 1.7560473e+07\n\
        {\"dotted.name\", zone=\"eu\"} 4\n\
        spaced { a = \"1\" , b=\"2\" }  6\n\
        # UNIT om seconds\n# EOF\nafter_the_end 1\n";
    let read = values(text);
    assert!(read[6].2.is_nan());
    let rest: Vec<_> = read.into_iter().filter(|(name, ..)| *name != "nan").collect();
    assert_eq!(
        rest,
        [
            ("vllm:x", "engine=\"0\",model_name=\"a,b={c}\"", 2.0),
            ("bare", "", 12.5),
            ("indented", "", 3.0),
            ("stamped", "", f64::INFINITY),
            ("om_total", "le=\"0.5\",", 17.0),
            ("om_bucket", "le=\"1\"", 5.0),
            ("-inf", "", f64::NEG_INFINITY),
            ("big", "", 17_560_473.0),
            ("dotted.name", "zone=\"eu\"", 4.0),
            ("spaced", "a = \"1\" , b=\"2\"", 6.0),
        ]
    );
}

#[test]
fn a_line_that_is_no_series_costs_only_itself() {
    let text = "good 1\nbad\nbad x\nbad 1 x\nbad 1 2 3\nbad{a=\"1} 1\nbad{a=1} 1\nbad{a=\"1\" b=\"2\"} 1\nbad=2 1\n1bad 1\n\
        {\"a\":1}\n<html>\nbad{=\"1\"} 1\nalso_good{a=\"\\\"}\\\\\"} 2\n";
    let page = Page::read(text);
    assert_eq!(values(text), [("good", "", 1.0), ("also_good", "a=\"\\\"}\\\\\"", 2.0)]);
    assert_eq!(page.unread, Some(("bad", 12)));
    assert_eq!(page.samples[1].label("a").as_deref(), Some("\"}\\"));
}

#[test]
fn a_last_line_without_its_end_may_be_cut_short_and_does_not_count() {
    assert_eq!(values("a 1\nb 12"), [("a", "", 1.0)]);
    assert_eq!(Page::read("a 1\nb 12").unread, Some(("b 12", 1)));
    assert_eq!(Page::read("a 1\n# EOF").unread, None);
}

#[test]
fn what_only_says_since_when_is_told_apart_by_the_types() {
    let text = "# TYPE a counter\n# TYPE b_total counter\n# TYPE c histogram\n# TYPE d gauge\n# TYPE b_created gauge\n";
    let page = Page::read(text);
    let names = ["a_created", "b_created", "c_created", "d_created", "e_created", "a"];
    assert_eq!(names.map(|name| page.is_birthday(name)), [true, true, true, false, false, false]);
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        series in prop::collection::vec(
            ("[a-zA-Z_:][a-zA-Z0-9_:]{0,9}", prop::collection::vec(("[a-z_][a-z0-9_]{0,5}", ".{0,8}|[\"\\\\,{}= \n#]{0,6}"), 0..4),
             any::<f64>().prop_filter("a number", |value| !value.is_nan()), any::<Option<i64>>()),
            0..12,
        )
    ) {
        let mut text = String::new();
        for (name, labels, value, stamp) in &series {
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let stamp = stamp.map_or(String::new(), |stamp| format!(" {stamp}"));
            text += &format!("{name}{labels} {value}{stamp}\n");
        }
        let page = Page::read(&text);
        prop_assert_eq!(page.unread, None);
        prop_assert_eq!(page.samples.len(), series.len());
        for (sample, (name, labels, value, _)) in page.samples.iter().zip(&series) {
            prop_assert_eq!((sample.name, sample.value), (name.as_str(), *value));
            let read: Vec<_> = pairs(sample.labels).map(|(name, value)| (name.to_owned(), value.into_owned())).collect();
            prop_assert_eq!(&read, labels);
        }
    }

    #[test]
    fn no_text_stops_it(text in "(.|\n){0,200}|[a-z{}\"=,# \n0-9\\\\]{0,200}") {
        let page = Page::read(&text);
        for sample in &page.samples {
            prop_assert!(text.contains(sample.labels) && text.contains(sample.name));
            prop_assert!(pairs(sample.labels).count() <= sample.labels.len());
        }
    }
}
