//! Links the turns of a session by their names.

use llmscen_core::dataset::{Prompt, ReplySlot, TurnLinks};
use std::collections::{BTreeSet, HashMap};

/// A turn, and the names of the turns that it depends on.
#[derive(Debug, Default, PartialEq)]
pub struct NamedTurn {
    /// Its name; None: no other turn names it.
    pub id: Option<String>,
    /// Whose history it continues.
    pub continues: Continues,
    /// Further turns whose end it awaits.
    pub after: Vec<String>,
    /// For each message whose content is the reply of another turn: the index of the message, and that turn.
    pub replies: Vec<(usize, String)>,
    /// The prompt, without links.
    pub prompt: Prompt,
}

/// The turn whose history and reply another one continues.
#[derive(Debug, Default, PartialEq)]
pub enum Continues {
    /// The turn before it in the list.
    #[default]
    Previous,
    /// None: it begins a history of its own.
    Nothing,
    /// The turn of this name.
    Turn(String),
}

/// Links turns. The result has them in an order in which each comes after those that it depends on, otherwise in the
/// order of the list.
///
/// # Errors
/// A name that is unknown or given twice, a cycle, several turns or none that depend on no other, or the reply of a
/// turn that is not awaited.
pub fn link(mut turns: Vec<NamedTurn>) -> Result<Vec<Prompt>, String> {
    let linear = turns.iter().enumerate().all(|(index, turn)| {
        turn.after.is_empty()
            && turn.replies.is_empty()
            && match turn.continues {
                Continues::Previous => true,
                Continues::Nothing => index == 0,
                Continues::Turn(_) => false,
            }
    });
    let names = TurnNames::new(&turns)?;
    if linear {
        return Ok(turns.into_iter().map(|turn| turn.prompt).collect());
    }
    let links = (0..turns.len())
        .map(|index| names.resolve(index, &turns[index]))
        .collect::<Result<Vec<_>, _>>()?;
    check_first(&names, &links)?;
    let order = sort(&names, &links)?;
    let mut position = vec![0; turns.len()];
    for (new, &old) in order.iter().enumerate() {
        position[old] = new as u32;
    }
    check_replies(&names, &order, &links)?;
    let prompt = |&old: &usize| {
        let new = |turn: &u32| position[*turn as usize];
        let TurnLinks {
            continues,
            after,
            replies,
        } = &links[old];
        let links = TurnLinks {
            continues: continues.as_ref().map(new),
            after: after.iter().map(new).collect(),
            replies: replies
                .iter()
                .map(|slot| ReplySlot {
                    turn: new(&slot.turn),
                    ..*slot
                })
                .collect(),
        };
        Prompt {
            links: Some(Box::new(links)),
            ..std::mem::take(&mut turns[old].prompt)
        }
    };
    Ok(order.iter().map(prompt).collect())
}

/// The names of the turns of a list.
struct TurnNames {
    ids: Vec<Option<String>>,
    indexes: HashMap<String, u32>,
}

impl TurnNames {
    fn new(turns: &[NamedTurn]) -> Result<TurnNames, String> {
        let mut indexes = HashMap::new();
        for (index, turn) in (0..).zip(turns) {
            if let Some(id) = &turn.id
                && indexes.insert(id.clone(), index).is_some()
            {
                return Err(format!("two turns have the id `{id}`"));
            }
        }
        Ok(TurnNames {
            ids: turns.iter().map(|turn| turn.id.clone()).collect(),
            indexes,
        })
    }

    /// The name of a turn in errors.
    fn display(&self, index: usize) -> String {
        match self.ids.get(index) {
            Some(Some(id)) => format!("turn `{id}`"),
            _ => format!("turn {index} (0-based)"),
        }
    }

    fn list(&self, indexes: impl Iterator<Item = usize>) -> String {
        let names: Vec<String> = indexes.map(|index| self.display(index)).collect();
        names.join(", ")
    }

    /// The links of a turn, by the indexes of the list.
    fn resolve(&self, index: usize, turn: &NamedTurn) -> Result<TurnLinks, String> {
        let find = |key: &str, id: &str| {
            self.indexes.get(id).copied().ok_or_else(|| {
                format!(
                    "`{key}` of {} names no turn of the row: `{id}`",
                    self.display(index)
                )
            })
        };
        let continues = match &turn.continues {
            Continues::Previous => index.checked_sub(1).map(|before| before as u32),
            Continues::Nothing => None,
            Continues::Turn(id) => Some(find("continues", id)?),
        };
        let mut after = turn
            .after
            .iter()
            .map(|id| find("after", id))
            .collect::<Result<Vec<_>, _>>()?;
        after.retain(|turn| Some(*turn) != continues);
        let slot = |(message, id): &(usize, String)| {
            Ok(ReplySlot {
                message: *message,
                turn: find("reply_of", id)?,
            })
        };
        Ok(TurnLinks {
            continues,
            after,
            replies: turn
                .replies
                .iter()
                .map(slot)
                .collect::<Result<_, String>>()?,
        })
    }
}

fn awaited(links: &TurnLinks) -> impl Iterator<Item = usize> {
    let after = links.after.iter().copied();
    links
        .continues
        .into_iter()
        .chain(after)
        .map(|turn| turn as usize)
}

/// Exactly one turn begins the session.
fn check_first(names: &TurnNames, links: &[TurnLinks]) -> Result<(), String> {
    let first: Vec<usize> = (0..links.len())
        .filter(|&index| awaited(&links[index]).next().is_none())
        .collect();
    match first[..] {
        [_] => Ok(()),
        [] => Err("every turn depends on another one, so none can be the first".to_owned()),
        _ => Err(format!(
            "only one turn can begin a session, but several depend on no other: {}; give the later ones `after`",
            names.list(first.iter().copied())
        )),
    }
}

/// The indexes of the turns in the order in which they are sent at the earliest.
fn sort(names: &TurnNames, links: &[TurnLinks]) -> Result<Vec<usize>, String> {
    let mut missing: Vec<usize> = links.iter().map(|links| awaited(links).count()).collect();
    let mut awaiting = vec![Vec::new(); links.len()];
    for (index, links) in links.iter().enumerate() {
        awaited(links).for_each(|turn| awaiting[turn].push(index));
    }
    let is_ready = |missing: &[usize], index: &usize| missing[*index] == 0;
    let mut ready: BTreeSet<usize> = (0..links.len())
        .filter(|index| is_ready(&missing, index))
        .collect();
    let mut order = Vec::with_capacity(links.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &later in &awaiting[index] {
            missing[later] -= 1;
            ready.extend(Some(later).filter(|later| is_ready(&missing, later)));
        }
    }
    if order.len() == links.len() {
        return Ok(order);
    }
    let cycle = (0..links.len()).filter(|&index| missing[index] > 0);
    Err(format!(
        "these turns depend on each other in a cycle, or on a turn of one: {}",
        names.list(cycle)
    ))
}

/// A reply can be inserted only if its turn has ended, so the turn must be awaited, directly or by a turn that is.
fn check_replies(names: &TurnNames, order: &[usize], links: &[TurnLinks]) -> Result<(), String> {
    for &index in order {
        let mut ancestors = BTreeSet::new();
        let mut open: Vec<usize> = match links[index].replies[..] {
            [] => continue,
            _ => awaited(&links[index]).collect(),
        };
        while let Some(turn) = open.pop() {
            if ancestors.insert(turn) {
                open.extend(awaited(&links[turn]));
            }
        }
        let mut replies = links[index].replies.iter().map(|slot| slot.turn as usize);
        if let Some(turn) = replies.find(|turn| !ancestors.contains(turn)) {
            return Err(format!(
                "`reply_of` of {} names {}, which it does not await; add it to `after`",
                names.display(index),
                names.display(turn)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(id: &str, continues: Continues, after: &[&str]) -> NamedTurn {
        NamedTurn {
            id: Some(id.to_owned()),
            continues,
            after: after.iter().map(|id| (*id).to_owned()).collect(),
            replies: Vec::new(),
            prompt: Prompt {
                text: id.to_owned(),
                ..Prompt::default()
            },
        }
    }

    fn from(id: &str) -> Continues {
        Continues::Turn(id.to_owned())
    }

    #[test]
    fn turns_are_sorted_so_that_each_comes_after_those_it_awaits() {
        let merge = NamedTurn {
            replies: vec![(0, "search".to_owned())],
            ..turn("merge", from("a"), &["search", "a"])
        };
        let turns = link(vec![
            merge,
            turn("plan", Continues::Nothing, &[]),
            turn("a", Continues::Previous, &[]),
            turn("search", Continues::Nothing, &["plan"]),
        ])
        .unwrap();
        let found: Vec<(&str, TurnLinks)> = turns
            .iter()
            .map(|turn| (turn.text.as_str(), (**turn.links.as_ref().unwrap()).clone()))
            .collect();
        let links = |continues, after: &[u32], replies: &[ReplySlot]| TurnLinks {
            continues,
            after: after.to_vec(),
            replies: replies.to_vec(),
        };
        let slot = ReplySlot {
            message: 0,
            turn: 2,
        };
        assert_eq!(
            found,
            [
                ("plan", links(None, &[], &[])),
                ("a", links(Some(0), &[], &[])),
                ("search", links(None, &[0], &[])),
                ("merge", links(Some(1), &[2], &[slot])),
            ]
        );
    }

    #[test]
    fn a_list_without_names_is_a_conversation() {
        let turns = link(vec![NamedTurn::default(), NamedTurn::default()]).unwrap();
        assert!(turns.iter().all(|turn| turn.links.is_none()));
    }

    #[test]
    fn graphs_that_cannot_be_sent_are_errors() {
        let plan = || turn("plan", Continues::Nothing, &[]);
        let error = |turns| link(turns).unwrap_err();
        assert_eq!(
            error(vec![plan(), turn("a", from("plam"), &[])]),
            "`continues` of turn `a` names no turn of the row: `plam`"
        );
        assert_eq!(
            error(vec![plan(), turn("a", Continues::Previous, &["join"])]),
            "`after` of turn `a` names no turn of the row: `join`"
        );
        assert_eq!(error(vec![plan(), plan()]), "two turns have the id `plan`");
        assert_eq!(
            error(vec![
                plan(),
                turn("a", from("b"), &[]),
                turn("b", from("a"), &[])
            ]),
            "these turns depend on each other in a cycle, or on a turn of one: turn `a`, turn `b`"
        );
        assert_eq!(
            error(vec![turn("a", from("a"), &[])]),
            "every turn depends on another one, so none can be the first"
        );
        let unnamed = NamedTurn {
            continues: Continues::Nothing,
            ..NamedTurn::default()
        };
        assert_eq!(
            error(vec![plan(), unnamed]),
            "only one turn can begin a session, but several depend on no other: turn `plan`, turn 1 (0-based); \
             give the later ones `after`"
        );
        let merge = NamedTurn {
            replies: vec![(0, "search".to_owned())],
            ..turn("merge", from("plan"), &[])
        };
        assert_eq!(
            error(vec![
                plan(),
                turn("search", Continues::Nothing, &["plan"]),
                merge
            ]),
            "`reply_of` of turn `merge` names turn `search`, which it does not await; add it to `after`"
        );
    }
}
