//! The patterns of dataset cards: `*` and `?` within a folder, `**` across folders, `[a-c]` for one character.

/// Whether a path matches a pattern.
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<char> = pattern.trim_start_matches("./").chars().collect();
    let path: Vec<char> = path.chars().collect();
    // reachable[i]: the pattern so far matches the first i characters.
    let mut reachable = vec![false; path.len() + 1];
    reachable[0] = true;
    let mut rest = pattern.as_slice();
    while let Some((first, mut after)) = rest.split_first() {
        let across = *first == '*' && after.first() == Some(&'*');
        if across {
            after = &after[1..];
            if after.first() == Some(&'/') {
                // `**/` also matches no folder.
                after = &after[1..];
                let before = reachable.clone();
                for (index, c) in path.iter().enumerate() {
                    let below = *c == '/' && before[..=index].contains(&true);
                    reachable[index + 1] = before[index + 1] || below;
                }
            } else {
                spread(&mut reachable, &path, |_| true);
            }
        } else if *first == '*' {
            spread(&mut reachable, &path, |c| c != '/');
        } else {
            let set = (*first == '[')
                .then(|| after.iter().position(|c| *c == ']'))
                .flatten();
            let accepts = |c: char| match (first, set) {
                ('?', _) => c != '/',
                (_, Some(end)) => in_set(&after[..end], c),
                (literal, None) => c == *literal,
            };
            for index in (0..path.len()).rev() {
                reachable[index + 1] = reachable[index] && accepts(path[index]);
            }
            reachable[0] = false;
            if let Some(end) = set {
                after = &after[end + 1..];
            }
        }
        rest = after;
    }
    reachable.last() == Some(&true)
}

fn spread(reachable: &mut [bool], path: &[char], accepts: impl Fn(char) -> bool) {
    for (index, c) in path.iter().enumerate() {
        reachable[index + 1] |= reachable[index] && accepts(*c);
    }
}

fn in_set(set: &[char], c: char) -> bool {
    let (negated, mut rest) = match set.split_first() {
        Some(('!' | '^', rest)) => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    while let Some((low, after)) = rest.split_first() {
        match after {
            ['-', high, after @ ..] => {
                found |= (*low..=*high).contains(&c);
                rest = after;
            }
            after => {
                found |= *low == c;
                rest = after;
            }
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_on_the_hub() {
        for (pattern, path, expected) in [
            ("data/train-*", "data/train-00000-of-00002.parquet", true),
            ("data/train-*", "data/test-00000.parquet", false),
            ("data/*", "data/a/b.parquet", false),
            ("./test.csv", "test.csv", true),
            ("**/test*.jsonl", "test.jsonl", true),
            ("**/test*.jsonl", "a/b/test_1.jsonl", true),
            ("**/test*.jsonl", "a/mytest.jsonl", false),
            ("data/**", "data/a/b.parquet", true),
            ("en/[0-4]?.json", "en/3x.json", true),
            ("en/[!0-4]?.json", "en/3x.json", false),
            ("a.json", "axjson", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
