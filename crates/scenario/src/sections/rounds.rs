//! `rounds`: how often each case is run.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Node};
use crate::values::{expect, object_schema};
use llmscen_core::plan::Case;

const EXPECTED: &str = "a whole number from 1 to 1000";
const EXAMPLE: &str = "`rounds: 3`, or `rounds: { count: 5, restart: true }`";
const KEYS: [&str; 2] = ["count", "restart"];
const MOST: i64 = 1000;

/// A number, or a number with `restart`.
pub(crate) static ROUNDS: Leaf = Leaf {
    expected: "a whole number from 1 to 1000, or `{ count, restart }`",
    sweepable: true,
    schema: || {
        let count = serde_json::json!({ "type": "integer", "minimum": 1, "maximum": MOST });
        let keys = serde_json::json!({ "count": count, "restart": { "type": "boolean" } });
        serde_json::json!({ "anyOf": [count, object_schema(keys, &["count"])] })
    },
    check: check_rounds,
};

/// The rounds of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    /// Number of rounds per case.
    pub count: u32,
    /// Whether the server is restarted before each round after the first.
    pub restart: bool,
}

fn check_rounds(node: &Node, review: &mut Review) {
    if !matches!(node.data, Data::Map(_)) {
        if read_count(node).is_none() {
            expect(node, EXPECTED, EXAMPLE, review);
        }
        return;
    }
    for entry in node
        .entries()
        .iter()
        .filter(|entry| !KEYS.contains(&entry.key.as_str()))
    {
        let mistake = Mistake::new(
            entry.key_at,
            format!("unknown key `{}`", entry.key),
            "not a key of `rounds`",
        );
        review.push(mistake.help("Keys of `rounds` are `count` and `restart`."));
    }
    let Some(count) = node.get("count") else {
        review.push(
            Mistake::new(node.at, "`rounds` needs `count`", "`count` is missing")
                .help(format!("For example {EXAMPLE}.")),
        );
        return;
    };
    if !count.is_open() && read_count(count).is_none() {
        "count".clone_into(&mut review.key);
        expect(count, EXPECTED, EXAMPLE, review);
    }
    if let Some(restart) = node
        .get("restart")
        .filter(|node| !node.is_open() && !matches!(node.data, Data::Bool(_)))
    {
        "restart".clone_into(&mut review.key);
        expect(restart, "`true` or `false`", EXAMPLE, review);
    }
}

fn read_count(node: &Node) -> Option<u32> {
    node.integer()
        .filter(|n| (1..=MOST).contains(n))
        .and_then(|n| u32::try_from(n).ok())
}

/// None where the value is invalid.
pub(crate) fn decode(node: &Node) -> Option<Rounds> {
    match node.get("count") {
        Some(count) => {
            let restart = node
                .get("restart")
                .is_some_and(|restart| restart.data == Data::Bool(true));
            Some(Rounds {
                count: read_count(count)?,
                restart,
            })
        }
        None => Some(Rounds {
            count: read_count(node)?,
            restart: false,
        }),
    }
}

/// Reports `restart` for a server that the run does not start.
pub(crate) fn check_restart(root: &Node, cases: &[Case], review: &mut Review) {
    let restart = root
        .get("rounds")
        .filter(|rounds| decode(rounds).is_some_and(|rounds| rounds.restart))
        .and_then(|rounds| rounds.entry("restart"));
    // A `server` with errors counts too.
    let has_server = root
        .get("target")
        .is_some_and(|target| target.entry("server").is_some());
    let Some(entry) =
        restart.filter(|_| !has_server && cases.iter().any(|case| case.target.server.is_none()))
    else {
        return;
    };
    let label = "the run does not start this target";
    let mistake = Mistake::new(
        entry.key_at,
        "`rounds.restart` needs a managed server",
        label,
    );
    let mistake = mistake.also_if(
        root.entry_at("target").map(|target| target.key_at),
        "has no `server`",
    );
    review.push(
        mistake.help(
            "Add `target.server`, for example `server: { preset: vllm }`, or remove `restart`.",
        ),
    );
}

#[cfg(test)]
mod tests {
    use crate::tests::{load_with, messages, plan};

    const BASE: &str = "version: 1\nname: t\ndataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 2 }\n";
    const MANAGED: &str = "target: { url: \"http://127.0.0.1:9/v1/chat/completions\", model: m, server: { command: s, ready: { log: up } } }\n";

    fn rounds(text: &str) -> (u32, bool) {
        let plan = plan(&format!("{BASE}{MANAGED}{text}"));
        (plan.rounds, plan.restart)
    }

    #[test]
    fn rounds_are_a_number_or_a_mapping_with_restart() {
        assert_eq!(
            (rounds(""), rounds("rounds: 3\n")),
            ((1, false), (3, false))
        );
        assert_eq!(rounds("rounds: { count: 5, restart: true }\n"), (5, true));
        assert_eq!(
            (
                rounds("rounds: { count: 5 }\n"),
                rounds("rounds: { count: 5, restart: false }\n")
            ),
            ((5, false), (5, false))
        );
        let again = plan(
            &plan(&format!(
                "{BASE}{MANAGED}rounds: {{ count: 5, restart: true }}\n"
            ))
            .resolved,
        );
        assert_eq!(
            (again.rounds, again.restart),
            (5, true),
            "a stored plan says it too"
        );
    }

    #[test]
    fn restart_needs_a_managed_server() {
        let faults = |target: &str, text: &str| {
            messages(load_with(&format!("{BASE}{target}{text}"), &[], &[]))
        };
        let simulator = "target: { url: simulator, model: m }\n";
        assert_eq!(
            faults(simulator, "rounds: { count: 5, restart: true }\n"),
            ["t.yaml:6:21 `rounds.restart` needs a managed server"]
        );
        assert!(
            load_with(
                &format!("{BASE}{simulator}rounds: {{ count: 5, restart: false }}\n"),
                &[],
                &[]
            )
            .is_ok()
        );
        for (wrong, has_server) in [
            (
                "rounds: 0\n",
                "t.yaml:6:9 `rounds` must be a whole number from 1 to 1000",
            ),
            (
                "rounds: { count: 0 }\n",
                "t.yaml:6:18 `count` must be a whole number from 1 to 1000",
            ),
            (
                "rounds: { restart: true }\n",
                "t.yaml:6:9 `rounds` needs `count`",
            ),
            (
                "rounds: { count: 2, restart: 1 }\n",
                "t.yaml:6:30 `restart` must be `true` or `false`",
            ),
            (
                "rounds: { count: 2, anew: true }\n",
                "t.yaml:6:21 unknown key `anew`",
            ),
        ] {
            assert_eq!(faults(MANAGED, wrong), [has_server]);
        }
    }
}
