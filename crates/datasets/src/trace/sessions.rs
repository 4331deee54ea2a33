//! Which requests of a session await which others, and how long they wait after them.
//!
//! Logs state this in three ways: a session's requests in a row, the parent of each request, or the times of requests
//! in nested groups. In the last form, a request awaits those that had ended when it began:
//!
//! ```text
//! plan ████                        search awaits plan     wait: from the end of plan to the start of search
//! search    ██████                 read awaits plan
//! read      ███                    answer awaits search and read
//! answer            ████
//! ```

use crate::conversations::MAX_WAIT;
use llmscen_core::dataset::TurnDependencies;
use llmscen_core::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

/// What a session must be, for errors.
pub const EXPECTED: &str =
    "the requests of a session at ascending times, each after those that it depends on";
/// Nesting of groups that is supported.
pub const MAX_DEPTH: u32 = 256;

/// Nanoseconds on the clock of a log.
pub type LogTime = i64;

/// A session of the log. Its first turn awaits none.
#[derive(Debug, PartialEq)]
pub struct LoggedSession {
    /// Time of the first request in nanoseconds on the clock of the log.
    pub at: LogTime,
    pub turns: Vec<LoggedTurn>,
    /// What each turn awaits, and then each joint, see [`llmscen_core::dataset::TurnDependencies`]; None where each
    /// turn awaits the one before it.
    pub awaited: Option<TurnDependencies>,
}

#[derive(Debug, PartialEq)]
pub struct LoggedTurn {
    /// Place of the request in the text of the log.
    pub span: Range<usize>,
    pub wait: Wait,
}

/// Time between the end of the awaited turns and a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As in the log.
    Logged(Nanos),
    /// The log lacks the end of an awaited turn: the time since its start.
    SinceStart(Nanos),
}

/// A session that cannot be sent.
#[derive(Debug, PartialEq)]
pub struct SessionError {
    /// Offset of the request in the text of the log.
    pub offset: usize,
    pub problem: String,
}

fn error<T>(span: &Range<usize>, problem: impl Into<String>) -> Result<T, SessionError> {
    Err(SessionError {
        offset: span.start,
        problem: problem.into(),
    })
}

/// Time from `since` to `to`; 0 if `to` is earlier.
fn elapsed(since: LogTime, to: LogTime) -> Nanos {
    Nanos(u64::try_from(to.saturating_sub(since)).unwrap_or(0))
}

/// A request of a session whose requests follow one another.
pub struct ChainedTurn {
    pub span: Range<usize>,
    pub start: Option<LogTime>,
    /// Time since the end of the request before it.
    pub delay: Option<LogTime>,
}

/// Links requests that follow one another.
///
/// # Errors
/// A negative delay, a time before that of the request before it, or neither time nor delay.
pub fn link_chain(
    chain: impl ExactSizeIterator<Item = ChainedTurn>,
) -> Result<Option<LoggedSession>, SessionError> {
    let mut chain = chain.peekable();
    let Some(first) = chain.peek() else {
        return Ok(None);
    };
    let Some(at) = first.start else {
        return error(
            &first.span,
            "the first request of a session needs a `timestamp`",
        );
    };
    let mut turns = Vec::with_capacity(chain.len());
    let mut before = Some(at);
    let mut latest = at;
    for (index, turn) in (0u32..).zip(chain) {
        let ChainedTurn { span, start, delay } = turn;
        if start.is_some_and(|start| start < latest) {
            return error(
                &span,
                "the request is earlier than the one before it in its session",
            );
        }
        let wait = match (delay, start, before) {
            (Some(delay), ..) if delay < 0 => {
                return error(
                    &span,
                    format!("negative `delay`: {} ms", delay as f64 / 1e6),
                );
            }
            (Some(delay), ..) if elapsed(0, delay) > MAX_WAIT => {
                return error(&span, "a `delay` of more than a year");
            }
            _ if index == 0 => Wait::Logged(Nanos::ZERO),
            (Some(delay), ..) => Wait::Logged(elapsed(0, delay)),
            (None, Some(start), Some(before)) => Wait::SinceStart(elapsed(before, start)),
            _ => {
                return error(
                    &span,
                    "the request needs a `delay`, or a `timestamp` here and in the request before it",
                );
            }
        };
        before = start;
        latest = start.unwrap_or(latest);
        turns.push(LoggedTurn { span, wait });
    }
    Ok(Some(LoggedSession {
        at,
        turns,
        awaited: None,
    }))
}

/// A request that names its parent.
pub struct ChildTurn {
    pub span: Range<usize>,
    pub start: LogTime,
    pub id: String,
    /// None: it begins a session.
    pub parent: Option<String>,
}

/// Links requests to their parents. Each tree is a session.
///
/// # Errors
/// An id that is given twice, a parent that is unknown or later, or a cycle.
pub fn link_parents(rows: Vec<ChildTurn>) -> Result<Vec<LoggedSession>, SessionError> {
    let mut indexes = HashMap::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        if indexes.insert(row.id.as_str(), index).is_some() {
            return error(&row.span, format!("two requests have the id {}", row.id));
        }
    }
    let parent = |row: &ChildTurn| match &row.parent {
        None => Ok(None),
        Some(parent) => match indexes.get(parent.as_str()) {
            Some(index) => Ok(Some(*index)),
            None => error(
                &row.span,
                format!("the parent {parent} of {} is not in the log", row.id),
            ),
        },
    };
    let parents = rows.iter().map(parent).collect::<Result<Vec<_>, _>>()?;
    let places =
        Places::new(&parents).map_err(|index| cycle(&rows[index].span, &rows[index].id))?;
    if let Some((row, parent)) = rows
        .iter()
        .zip(&parents)
        .filter_map(|(row, parent)| Some((row, &rows[(*parent)?])))
        .find(|(row, parent)| row.start < parent.start)
    {
        return error(
            &row.span,
            format!("{} is earlier than its parent {}", row.id, parent.id),
        );
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // A child at the time of its parent comes after it.
    order.sort_by_key(|&index| (rows[index].start, places.depth[index]));
    let mut position = vec![0u32; rows.len()];
    let mut sessions: Vec<LoggedSession> = Vec::new();
    // The parent of each turn of each session.
    let mut awaited: Vec<Vec<Option<u32>>> = Vec::new();
    let mut session_of_root = HashMap::new();
    for index in order {
        let row = &rows[index];
        let number = *session_of_root
            .entry(places.root[index])
            .or_insert_with(|| {
                sessions.push(LoggedSession {
                    at: row.start,
                    turns: Vec::new(),
                    awaited: None,
                });
                awaited.push(Vec::new());
                sessions.len() - 1
            });
        let session = &mut sessions[number];
        position[index] = session.turns.len() as u32;
        awaited[number].push(parents[index].map(|parent| position[parent]));
        session.turns.push(LoggedTurn {
            span: row.span.clone(),
            wait: match parents[index] {
                Some(parent) => Wait::SinceStart(elapsed(rows[parent].start, row.start)),
                None => Wait::Logged(Nanos::ZERO),
            },
        });
    }
    for (session, awaited) in sessions.iter_mut().zip(&awaited) {
        session.awaited = branches(awaited.iter().map(Option::as_slice));
    }
    Ok(sessions)
}

/// What each turn, and each joint, awaits; None where each awaits the one before it.
fn branches<'a>(awaited: impl Iterator<Item = &'a [u32]> + Clone) -> Option<TurnDependencies> {
    first_branch(awaited.clone())?;
    Some(awaited.map(Box::from).collect())
}

/// The first turn that does not just await the turn before it.
pub fn first_branch<'a>(awaited: impl Iterator<Item = &'a [u32]>) -> Option<u32> {
    let mut turns = (0u32..).zip(awaited);
    turns
        .find(|(turn, awaited)| !awaited.iter().copied().eq(turn.checked_sub(1)))
        .map(|(turn, _)| turn)
}

fn cycle(span: &Range<usize>, id: &str) -> SessionError {
    SessionError {
        offset: span.start,
        problem: format!("the parents of {id} form a cycle"),
    }
}

/// The places of nodes in trees.
pub struct Places {
    pub root: Vec<usize>,
    /// 0 for a root.
    pub depth: Vec<u32>,
}

impl Places {
    /// The places of nodes with these parents. The error is a node of a cycle, or one below a cycle.
    pub fn new(parents: &[Option<usize>]) -> Result<Places, usize> {
        const UNKNOWN: u32 = u32::MAX;
        let mut places = Places {
            root: (0..parents.len()).collect(),
            depth: vec![UNKNOWN; parents.len()],
        };
        let mut path = Vec::new();
        for index in 0..parents.len() {
            let mut node = index;
            while places.depth[node] == UNKNOWN {
                path.push(node);
                match parents[node] {
                    // A path with more nodes than there are visits one twice.
                    Some(_) if path.len() > parents.len() => return Err(index),
                    Some(parent) => node = parent,
                    None => places.depth[node] = 0,
                }
            }
            while let Some(below) = path.pop() {
                if below != node {
                    places.root[below] = places.root[node];
                    places.depth[below] = places.depth[node] + 1;
                }
                node = below;
            }
        }
        Ok(places)
    }
}

/// A request with its times.
#[derive(Clone, Debug)]
pub struct TimedRequest {
    pub span: Range<usize>,
    pub start: LogTime,
    pub end: Option<LogTime>,
}

/// A request, or a group of requests such as those of a sub-agent.
#[derive(Debug)]
pub enum Unit {
    Request(TimedRequest),
    Group(Vec<Unit>),
}

impl Unit {
    /// The start of its first request and the end of its last one.
    fn interval(&self) -> Option<(LogTime, LogTime)> {
        match self {
            Unit::Request(request) => Some((request.start, request.end.unwrap_or(request.start))),
            Unit::Group(units) => units
                .iter()
                .filter_map(Unit::interval)
                .reduce(|(a, b), (c, d)| (a.min(c), b.max(d))),
        }
    }
}

/// Links requests by their times: within a group, a unit awaits those that had ended when it began. The first units
/// of a group await what the group awaits. A request that overlaps the first one awaits it nevertheless.
pub fn link_times(units: Vec<Unit>) -> Option<LoggedSession> {
    let mut nodes = Vec::new();
    place(units, &[], &mut nodes);
    let of_request = |index: &usize| nodes[*index].request.is_some();
    let (mut order, joints): (Vec<usize>, Vec<usize>) =
        (0..nodes.len()).partition(|index| of_request(index));
    order.sort_by_key(|&index| nodes[index].start());
    let mut position = vec![0u32; nodes.len()];
    for (new, &old) in (0..).zip(order.iter().chain(&joints)) {
        position[old] = new;
    }
    let first = *order.first()?;
    let positions = |awaited: &[usize]| {
        let mut positions: Vec<u32> = awaited.iter().map(|old| position[*old]).collect();
        positions.sort_unstable();
        positions
    };
    let awaited_by = |old: usize| match nodes[old].awaited[..] {
        [] if old != first => std::slice::from_ref(&first),
        _ => &nodes[old].awaited[..],
    };
    let turn = |&old: &usize| {
        let node = &nodes[old];
        let awaited = awaited_by(old);
        let end = awaited
            .iter()
            .map(|old| nodes[*old].end)
            .max_by_key(|end| end.at);
        let since = end.map_or(node.start(), |end| end.at);
        let wait = elapsed(since, node.start());
        Some(LoggedTurn {
            span: node.request.as_ref()?.span.clone(),
            wait: match end.is_none_or(|end| end.is_logged) {
                true => Wait::Logged(wait),
                false => Wait::SinceStart(wait),
            },
        })
    };
    let of_turns = order.iter().map(|&old| positions(awaited_by(old)));
    let of_joints = joints.iter().map(|&old| positions(&nodes[old].awaited));
    let awaited: Vec<Vec<u32>> = of_turns.chain(of_joints).collect();
    Some(LoggedSession {
        at: nodes[first].start(),
        turns: order.iter().filter_map(turn).collect(),
        awaited: branches(awaited.iter().map(Vec::as_slice)),
    })
}

/// The largest number of turns that one awaits directly. More are awaited by a joint.
const MAX_DIRECT: usize = 16;
/// How many turns before one are looked at for those that it awaits directly.
const MAX_LOOKED_AT: usize = 256;

/// The end of a request, or its start if the log lacks the end.
#[derive(Clone, Copy, Debug)]
struct End {
    at: LogTime,
    is_logged: bool,
}

/// A request, or a joint.
struct Node {
    request: Option<TimedRequest>,
    awaited: Vec<usize>,
    end: End,
}

impl Node {
    fn request(request: TimedRequest, awaited: Vec<usize>) -> Node {
        Node {
            end: End {
                at: request.end.unwrap_or(request.start),
                is_logged: request.end.is_some(),
            },
            request: Some(request),
            awaited,
        }
    }

    fn start(&self) -> LogTime {
        self.request.as_ref().map_or(self.end.at, |own| own.start)
    }
}

/// Adds a joint of these nodes, if there are many.
fn join(awaited: Vec<usize>, nodes: &mut Vec<Node>) -> Vec<usize> {
    let last = awaited
        .iter()
        .map(|index| nodes[*index].end)
        .max_by_key(|end| end.at);
    match last {
        Some(end) if awaited.len() > MAX_DIRECT => {
            nodes.push(Node {
                request: None,
                awaited,
                end,
            });
            vec![nodes.len() - 1]
        }
        _ => awaited,
    }
}

/// Adds the requests of a group with those that they await. `before`: what the group awaits. Returns the nodes that
/// no other of the group awaits.
fn place(units: Vec<Unit>, before: &[usize], nodes: &mut Vec<Node>) -> Vec<usize> {
    let mut units: Vec<((LogTime, LogTime), Unit)> = units
        .into_iter()
        .filter_map(|unit| Some((unit.interval()?, unit)))
        .collect();
    units.sort_by_key(|((start, _), _)| *start);
    let mut intervals: Vec<(LogTime, LogTime)> = Vec::with_capacity(units.len());
    let mut latest_ends: Vec<LogTime> = Vec::with_capacity(units.len());
    let mut lasts: Vec<Vec<usize>> = Vec::with_capacity(units.len());
    let mut is_awaited = vec![false; units.len()];
    // Units by their ends, without those of the latest joint.
    let mut open = BinaryHeap::new();
    let mut joint: Vec<usize> = Vec::new();
    for (index, (interval, unit)) in units.into_iter().enumerate() {
        let mut requests: Vec<usize> = Vec::new();
        match direct_predecessors(&intervals, &latest_ends, interval.0) {
            Some(awaited) => {
                for &index in &awaited {
                    is_awaited[index] = true;
                    requests.extend(&lasts[index]);
                }
            }
            None => {
                // A joint of all that had ended, of which the latest joint has a part.
                while let Some(&Reverse((end, index))) = open.peek()
                    && end <= interval.0
                {
                    open.pop();
                    is_awaited[index] = true;
                    joint.extend(&lasts[index]);
                }
                joint = join(std::mem::take(&mut joint), nodes);
                requests.extend(&joint);
            }
        }
        if requests.is_empty() {
            requests.extend(before);
        }
        let requests = join(requests, nodes);
        lasts.push(match unit {
            Unit::Request(request) => {
                nodes.push(Node::request(request, requests));
                vec![nodes.len() - 1]
            }
            Unit::Group(group) => {
                let last = place(group, &requests, nodes);
                join(last, nodes)
            }
        });
        open.push(Reverse((interval.1, index)));
        let latest = latest_ends
            .last()
            .map_or(interval.1, |end| interval.1.max(*end));
        latest_ends.push(latest);
        intervals.push(interval);
    }
    let last = lasts.into_iter().zip(is_awaited);
    let last = last.filter(|(_, is_awaited)| !is_awaited);
    last.flat_map(|(last, _)| last).collect()
}

/// The intervals that ended at `start` or before, without those that ended before another of them began. The
/// intervals are sorted by their starts; `latest_ends`: the latest end up to each. None where there are many, or too
/// many to look at.
fn direct_predecessors(
    intervals: &[(LogTime, LogTime)],
    latest_ends: &[LogTime],
    start: LogTime,
) -> Option<Vec<usize>> {
    let has_ended = |index: &usize| intervals[*index].1 <= start;
    let looked_at = || (0..intervals.len()).rev().take(MAX_LOOKED_AT);
    let Some(last) = looked_at().find(has_ended) else {
        return (intervals.len() <= MAX_LOOKED_AT).then(Vec::new);
    };
    let last_start = intervals[last].0;
    let overlapping: Vec<usize> = (0..last)
        .rev()
        .take_while(|index| latest_ends[*index] > last_start)
        .take(MAX_LOOKED_AT)
        .collect();
    let is_complete = overlapping.len() < MAX_LOOKED_AT;
    let mut found = vec![last];
    found.extend(
        overlapping
            .into_iter()
            .filter(|index| intervals[*index].1 > last_start && has_ended(index)),
    );
    (is_complete && found.len() <= MAX_DIRECT).then_some(found)
}

/// A span of a trace.
pub struct Span {
    pub span: Range<usize>,
    pub id: String,
    /// None: the span is the first of its trace.
    pub parent: Option<String>,
    pub trace: String,
    /// Traces with an equal conversation are one session.
    pub conversation: Option<String>,
    /// The times of a request; None for other spans.
    pub request: Option<TimedRequest>,
}

/// Links the requests among spans. A request that contains another one counts as a group: the inner ones were sent.
///
/// # Errors
/// A span that is given twice, a parent that is unknown, a cycle, or nesting that is too deep.
pub fn link_spans(mut spans: Vec<Span>) -> Result<Vec<LoggedSession>, SessionError> {
    let mut indexes: HashMap<(&str, &str), usize> = HashMap::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        if indexes.insert((&span.trace, &span.id), index).is_some() {
            return error(&span.span, format!("two spans have the id {}", span.id));
        }
    }
    let parent = |span: &Span| match &span.parent {
        None => Ok(None),
        Some(parent) => match indexes.get(&(span.trace.as_str(), parent.as_str())) {
            Some(index) => Ok(Some(*index)),
            None => error(
                &span.span,
                format!("the parent {parent} of span {} is not in the log", span.id),
            ),
        },
    };
    let parents = spans.iter().map(parent).collect::<Result<Vec<_>, _>>()?;
    let places =
        Places::new(&parents).map_err(|index| cycle(&spans[index].span, &spans[index].id))?;
    if let Some(deep) = places.depth.iter().position(|depth| *depth > MAX_DEPTH) {
        return error(
            &spans[deep].span,
            format!("spans are nested in more than {MAX_DEPTH} levels"),
        );
    }
    // A conversation is stated by some spans of a trace.
    let mut conversations: HashMap<&str, &str> = HashMap::new();
    for span in &spans {
        if let Some(conversation) = &span.conversation {
            conversations.entry(&span.trace).or_insert(conversation);
        }
    }
    let key = |span: &Span| {
        let trace = span.trace.as_str();
        conversations
            .get(trace)
            .map_or((false, trace.to_owned()), |name| (true, (*name).to_owned()))
    };
    let keys: Vec<(bool, String)> = spans.iter().map(key).collect();
    let mut units: Vec<Vec<Unit>> = spans.iter().map(|_| Vec::new()).collect();
    let mut by_depth: Vec<usize> = (0..spans.len()).collect();
    by_depth.sort_by_key(|&index| std::cmp::Reverse(places.depth[index]));
    let mut sessions: HashMap<&(bool, String), Vec<(usize, Unit)>> = HashMap::new();
    for index in by_depth {
        let mut inner = std::mem::take(&mut units[index]);
        let unit = match (inner.len(), spans[index].request.take()) {
            (0, None) => continue,
            (0, Some(request)) => Unit::Request(request),
            (1, _) => inner.remove(0),
            _ => Unit::Group(inner),
        };
        match parents[index] {
            Some(parent) => units[parent].push(unit),
            None => sessions
                .entry(&keys[index])
                .or_default()
                .push((index, unit)),
        }
    }
    let mut sessions: Vec<Vec<(usize, Unit)>> = sessions.into_values().collect();
    // The order of a hash map is random.
    sessions
        .iter_mut()
        .for_each(|units| units.sort_by_key(|(index, _)| *index));
    sessions.sort_by_key(|units| units.first().map(|(index, _)| *index));
    let link =
        |units: Vec<(usize, Unit)>| link_times(units.into_iter().map(|(_, unit)| unit).collect());
    Ok(sessions.into_iter().filter_map(link).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn requests(intervals: &[(LogTime, LogTime)]) -> Vec<Unit> {
        let request = |(index, (start, length)): (usize, &(LogTime, LogTime))| {
            Unit::Request(TimedRequest {
                span: index..index + 1,
                start: *start,
                end: Some(start + length),
            })
        };
        intervals.iter().enumerate().map(request).collect()
    }

    fn links(session: &LoggedSession) -> usize {
        let awaited = session.awaited.as_ref().unwrap();
        awaited.iter().map(|awaited| awaited.len()).sum()
    }

    /// For each turn, the turns that it awaits, directly or not.
    fn awaited(session: &LoggedSession) -> Vec<BTreeSet<usize>> {
        let turns = session.turns.len();
        let direct = |node: usize| match &session.awaited {
            Some(awaited) => awaited[node].to_vec(),
            None => (node as u32).checked_sub(1).into_iter().collect(),
        };
        let closure = |turn: usize| {
            let mut found = BTreeSet::new();
            let mut open = vec![turn];
            while let Some(node) = open.pop() {
                let new = direct(node).into_iter().map(|node| node as usize);
                open.extend(new.filter(|node| found.insert(*node)));
            }
            found.into_iter().filter(|node| *node < turns).collect()
        };
        (0..turns).map(closure).collect()
    }

    proptest! {
        #[test]
        fn a_request_awaits_all_that_had_ended_when_it_began(
            intervals in proptest::collection::vec((0..400i64, 0..300i64), 1..600),
        ) {
            let session = link_times(requests(&intervals)).unwrap();
            let awaited = awaited(&session);
            let times: Vec<(LogTime, LogTime)> = session.turns.iter().map(|turn| intervals[turn.span.start]).collect();
            for (turn, (start, _)) in times.iter().enumerate().skip(1) {
                let ended = |other: &usize| *other < turn && times[*other].0 + times[*other].1 <= *start;
                let mut expected: BTreeSet<usize> = (0..times.len()).filter(ended).collect();
                let end = |turn: usize| times[turn].0 + times[turn].1;
                let since = expected.iter().map(|turn| end(*turn)).max().unwrap_or(end(0));
                // Every turn awaits the first one.
                expected.insert(0);
                prop_assert_eq!(&awaited[turn], &expected, "turn {}", turn);
                prop_assert_eq!(session.turns[turn].wait, Wait::Logged(elapsed(since, *start)));
            }
        }
    }

    #[test]
    fn many_that_overlap_have_few_links() {
        const MANY: LogTime = 10_000;
        let parallel = |start: LogTime| (0..MANY).map(move |n| (start + n, 2 * MANY - n));
        let both: Vec<(LogTime, LogTime)> = parallel(0).chain(parallel(3 * MANY)).collect();
        let staggered: Vec<(LogTime, LogTime)> =
            (0..2 * MANY).map(|n| (n, MANY / 2 + n % 7)).collect();
        for intervals in [both, staggered] {
            let session = link_times(requests(&intervals)).unwrap();
            assert_eq!(session.turns.len(), intervals.len());
            assert!(
                links(&session) < 20 * intervals.len(),
                "{}",
                links(&session)
            );
        }
    }
}
